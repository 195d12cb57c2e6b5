// Checks with MQTT.js, for Node.js and for a browser: `runChecks(mqtt, urls, version)`; version 3, 4 or 5 of the protocol.
//
// Each client takes the next of the addresses, so that with those of several nodes every check crosses them. A check that finds something
// wrong throws, with a reason.
'use strict';

const WAIT_MS = 20000;

function fail(reason) {
  throw new Error('FAILED: ' + reason);
}

function equal(found, wanted, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) fail(`${what}: ${String(a).slice(0, 300)}, not ${String(b).slice(0, 300)}`);
}

function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('FAILED: ' + what + ' does not come')), WAIT_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function bytes(length) {
  return Uint8Array.from({ length }, (_, at) => (at * 31 + (at >> 8)) & 255);
}

function text(payload) {
  return new TextDecoder().decode(payload);
}

// A FIFO that can be waited on.
class Mailbox {
  constructor() {
    this.items = [];
    this.waiting = [];
  }
  put(item) {
    const next = this.waiting.shift();
    if (next) next(item);
    else this.items.push(item);
  }
  take(what) {
    if (this.items.length) return Promise.resolve(this.items.shift());
    return within(new Promise((resolve) => this.waiting.push(resolve)), what);
  }
}

function checksFor(mqtt, urls, version) {
  const v5 = version === 5;
  let turn = 0;

  // A connected client whose calls wait for their acknowledgement.
  class Client {
    static async connect(clientId, { clean = true, will, properties } = {}) {
      const self = new Client();
      const options = {
        clientId, clean, will, protocolVersion: version, reconnectPeriod: 0, keepalive: 60, connectTimeout: WAIT_MS,
        // MQTT.js announces and uses aliases only where it is told to.
        properties: v5 ? { topicAliasMaximum: 10, ...(clean ? {} : { sessionExpiryInterval: 300 }), ...properties } : undefined,
      };
      if (version === 3) options.protocolId = 'MQIsdp';
      self.messages = new Mailbox();
      self.disconnects = new Mailbox();
      self.client = mqtt.connect(urls[turn++ % urls.length], options);
      self.gone = new Promise((resolve) => self.client.on('close', resolve));
      self.client.on('message', (topic, payload, packet) => self.messages.put({ topic, payload, packet }));
      self.client.on('disconnect', (packet) => self.disconnects.put(packet));
      const connected = new Promise((resolve, reject) => {
        self.client.on('connect', resolve);
        self.client.on('error', reject);
      });
      self.connack = await within(connected, `the connection of ${clientId}`);
      return self;
    }

    async subscribe(filter, qos, options = {}) {
      const granted = await within(this.client.subscribeAsync(filter, { qos, ...options }), `SUBACK for ${filter}`);
      equal(granted.map((g) => g.qos), [qos], `SUBACK for ${filter}`);
    }

    async publish(topic, payload, options = {}) {
      await within(this.client.publishAsync(topic, payload, options), `the acknowledgement of ${topic}`);
    }

    message(what = 'a message') {
      return this.messages.take(what);
    }

    // Nothing more waits: what this client publishes to itself comes first.
    async nothing() {
      const topic = `nothing/${this.client.options.clientId}`;
      await this.subscribe(topic, 1);
      await this.publish(topic, 'marker', { qos: 1 });
      equal((await this.message('the marker')).topic, topic, 'a message too many');
    }

    async close() {
      await within(this.client.endAsync(), 'the end');
    }

    // Closes the connection without DISCONNECT.
    tear() {
      this.client.stream.destroy();
    }
  }

  const checks = {
    async everyQos() {
      const [subscriber, publisher] = [await Client.connect('js-sub'), await Client.connect('js-pub')];
      await subscriber.subscribe('js/qos/#', 2);
      for (const qos of [0, 1, 2]) {
        await publisher.publish(`js/qos/${qos}`, `payload ${qos}`, { qos });
        const { topic, payload, packet } = await subscriber.message();
        equal([topic, text(payload), packet.qos, packet.retain], [`js/qos/${qos}`, `payload ${qos}`, qos, false], 'message');
      }
      await publisher.publish('js/qos/empty', '', { qos: 1 });
      equal((await subscriber.message()).payload.length, 0, 'empty payload');
      const topic = 'js/qos/grüße 日本 🚀/$inside/ /';
      await publisher.publish(topic, 'ü', { qos: 1 });
      const got = await subscriber.message();
      equal([got.topic, text(got.payload)], [topic, 'ü'], 'topic beyond ASCII');
      const large = bytes(1500000);
      await publisher.publish('js/qos/large', bufferOf(large), { qos: 2 });
      const back = (await subscriber.message('the large message')).payload;
      if (back.length !== large.length || !large.every((byte, at) => byte === back[at])) fail('the large payload has changed');
      await subscriber.nothing();
      await publisher.close();
      await subscriber.close();
    },

    async queuedMessages() {
      const first = await Client.connect('js-kept', { clean: false });
      await first.subscribe('js/queue/#', 2);
      await first.close();
      const publisher = await Client.connect('js-pub');
      for (let number = 0; number < 40; number++) {
        await publisher.publish('js/queue/q', String(number), { qos: 1 + (number % 2) });
      }
      const again = await Client.connect('js-kept', { clean: false });
      if (version !== 3) equal(again.connack.sessionPresent, true, 'session present');
      const got = [];
      for (let number = 0; number < 40; number++) got.push(await again.message(`queued message ${number}`));
      for (const qos of [1, 2]) {
        const numbers = got.filter((m) => m.packet.qos === qos).map((m) => Number(text(m.payload)));
        equal(numbers, Array.from({ length: 20 }, (_, at) => 2 * at + qos - 1), `queued messages of QoS ${qos}`);
      }
      await again.nothing();
      await again.close();
      await (await Client.connect('js-kept')).close();
      await publisher.close();
    },

    async retained() {
      const publisher = await Client.connect('js-pub');
      await publisher.publish('js/retained/a', 'kept', { qos: 1, retain: true });
      const late = await Client.connect('js-late');
      await late.subscribe('js/retained/#', 1);
      const got = await late.message('the retained message');
      equal([text(got.payload), got.packet.retain], ['kept', true], 'retained message');
      await publisher.publish('js/retained/a', '', { qos: 1, retain: true });
      equal((await late.message('the deletion')).packet.retain, false, 'the retain flag of a live message');
      const later = await Client.connect('js-later');
      await later.subscribe('js/retained/#', 1);
      await later.nothing();
      for (const client of [publisher, late, later]) await client.close();
    },

    async wills() {
      const watcher = await Client.connect('js-watcher');
      await watcher.subscribe('js/will/#', 1);
      const will = (topic) => ({ topic, payload: bufferOf(new TextEncoder().encode('gone')), qos: 1, retain: false });
      (await Client.connect('js-torn', { will: will('js/will/torn') })).tear();
      const got = await watcher.message('the will');
      equal([got.topic, text(got.payload)], ['js/will/torn', 'gone'], 'will');
      await (await Client.connect('js-graceful', { will: will('js/will/graceful') })).close();
      await watcher.nothing();
      await watcher.close();
    },

    async shared() {
      const members = [await Client.connect('js-member-1'), await Client.connect('js-member-2')];
      const publisher = await Client.connect('js-pub');
      for (const member of members) await member.subscribe('$share/js/js/jobs/+', 1);
      for (let number = 0; number < 30; number++) await publisher.publish('js/jobs/x', String(number), { qos: 1 });
      // Each at least once: the group's leader may move meanwhile, to spread leadership, and hand over again what it has not heard of.
      const got = new Set();
      const all = new Promise((resolve) => {
        for (const member of members) {
          const take = () => {
            for (const message of member.messages.items.splice(0)) got.add(Number(text(message.payload)));
            if (got.size >= 30) resolve();
          };
          member.client.on('message', () => setTimeout(take, 0));
          take();
        }
      });
      await within(all, 'each job');
      equal([...got].sort((a, b) => a - b), Array.from({ length: 30 }, (_, at) => at), 'jobs');
      for (const client of [...members, publisher]) await client.close();
    },
  };

  if (v5) {
    checks.properties = async () => {
      const [subscriber, publisher] = [await Client.connect('js-sub'), await Client.connect('js-pub')];
      await subscriber.subscribe('js/p/#', 1, { rap: true, rh: 2, properties: { subscriptionIdentifier: 7 } });
      const properties = {
        // MQTT.js keeps the order within a name.
        userProperties: { dup: ['first', 'second'], other: 'mid' }, contentType: 'text/plain', responseTopic: 'js/answer',
        correlationData: bufferOf(Uint8Array.from([0, 1, 255])), payloadFormatIndicator: true, messageExpiryInterval: 100,
      };
      await publisher.publish('js/p/1', 'x', { qos: 1, retain: true, properties });
      const { packet } = await subscriber.message();
      const found = packet.properties;
      equal({ ...found.userProperties }, properties.userProperties, 'user properties');
      equal([found.contentType, found.responseTopic, [...found.correlationData], found.payloadFormatIndicator],
        ['text/plain', 'js/answer', [0, 1, 255], true], 'properties');
      equal([packet.retain, found.subscriptionIdentifier], [true, 7], 'retain as published, subscription identifier');
      if (![99, 100].includes(found.messageExpiryInterval)) fail(`message expiry interval ${found.messageExpiryInterval}`);
      // More topics than aliases, each several times.
      for (let number = 0; number < 60; number++) await publisher.publish(`js/p/alias/${number % 15}`, String(number), { qos: 1 });
      for (let number = 0; number < 60; number++) {
        const got = await subscriber.message(`message ${number}`);
        equal([got.topic, text(got.payload)], [`js/p/alias/${number % 15}`, String(number)], 'topic and payload');
      }
      await publisher.publish('js/p/1', '', { qos: 1, retain: true });
      const local = await Client.connect('js-local');
      await local.subscribe('js/local', 1, { nl: true });
      await local.publish('js/local', 'mine', { qos: 1 });
      await publisher.publish('js/local', 'yours', { qos: 1 });
      equal(text((await local.message()).payload), 'yours', 'no local');
      for (const client of [subscriber, publisher, local]) await client.close();
    };

    checks.takeover = async () => {
      const first = await Client.connect('js-same');
      const second = await Client.connect('js-same');
      equal((await first.disconnects.take('DISCONNECT')).reasonCode, 0x8e, 'reason of the takeover');
      await within(first.gone, 'the close of the old connection');
      await second.nothing();
      await second.close();
    };
  }
  return checks;
}

// MQTT.js wants a Buffer in Node.js, and takes an array of bytes in a browser.
function bufferOf(array) {
  return globalThis.Buffer ? globalThis.Buffer.from(array) : array;
}

async function runChecks(mqtt, urls, version, log) {
  for (const [name, check] of Object.entries(checksFor(mqtt, urls, version))) {
    await check();
    log(`ok ${name}`);
  }
}

if (typeof module !== 'undefined') module.exports = { runChecks };
