"""Checks with paho-mqtt 2: paho_checks.py TRANSPORT VERSION PORT...

Each client takes the next of the ports, so that with the ports of several nodes every check crosses them.
"""
import itertools
import queue
import sys
import threading

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

TRANSPORT, VERSION, PORTS = sys.argv[1], sys.argv[2], itertools.cycle(int(p) for p in sys.argv[3:])
V5 = VERSION == '5'
WAIT = 20


def fail(reason):
    sys.exit('FAILED: ' + reason)


def equal(found, wanted, what):
    if found != wanted:
        fail('%s: %r, not %r' % (what, found, wanted))


def properties(kind, **values):
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Client:
    """A connected client whose calls wait for their acknowledgement."""

    def __init__(self, client_id, clean=True, will=None, wait=True):
        arguments = {} if V5 else {'clean_session': clean}
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id, transport=TRANSPORT,
                                  protocol=mqtt.MQTTv5 if V5 else mqtt.MQTTv311, **arguments)
        self.messages = queue.Queue()
        self.acks = queue.Queue()
        self.connected = threading.Event()
        self.gone = threading.Event()
        self.session_present = None
        if TRANSPORT == 'websockets':
            self.client.ws_set_options(path='/mqtt')
        if will:
            self.client.will_set(will[0], will[1], qos=1, retain=False)
        self.client.on_connect = self.on_connect
        self.client.on_message = lambda c, u, m: self.messages.put(m)
        self.client.on_subscribe = lambda c, u, mid, codes, p: self.acks.put((mid, [code.value for code in codes]))
        self.client.on_disconnect = lambda c, u, flags, code, p: self.gone.set()
        arguments = {}
        if V5:
            arguments['clean_start'] = clean
            if not clean:
                arguments['properties'] = properties(PacketTypes.CONNECT, SessionExpiryInterval=300)
        self.client.connect('127.0.0.1', next(PORTS), keepalive=60, **arguments)
        self.client.loop_start()
        if wait and not self.connected.wait(WAIT):
            fail('%s is not connected' % client_id)

    def on_connect(self, client, userdata, flags, code, props):
        equal(code.value, 0, 'CONNACK')
        self.session_present = flags.session_present
        self.connected.set()

    def subscribe(self, topic, qos, options=None):
        _, mid = self.client.subscribe(topic, options=options) if options else self.client.subscribe(topic, qos)
        while True:
            acked, codes = self.acks.get(timeout=WAIT)
            if acked == mid:
                equal(codes, [qos], 'SUBACK for %s' % topic)
                return

    def publish(self, topic, payload, qos, retain=False, **props):
        arguments = {'properties': properties(PacketTypes.PUBLISH, **props)} if props else {}
        info = self.client.publish(topic, payload, qos, retain, **arguments)
        info.wait_for_publish(WAIT)
        if not info.is_published():
            fail('the publish to %s is not acknowledged' % topic)

    def message(self, what='message'):
        try:
            return self.messages.get(timeout=WAIT)
        except queue.Empty:
            fail('%s does not come' % what)

    def nothing(self):
        try:
            extra = self.messages.get(timeout=0.4)
        except queue.Empty:
            return
        fail('a message too many: %s %r' % (extra.topic, extra.payload))

    def close(self):
        self.client.disconnect()
        if not self.gone.wait(WAIT):
            fail('the broker does not close after DISCONNECT')
        self.client.loop_stop()

    def tear(self):
        """Closes the socket without DISCONNECT."""
        sock = self.client.socket()
        self.client.loop_stop()
        sock.close()


def effective(subscriber, publisher, topic):
    """A subscription is effective on its own node when it is acknowledged, on the others a moment later."""
    for attempt in range(100):
        publisher.publish(topic, b'probe', 1)
        try:
            subscriber.messages.get(timeout=0.1)
        except queue.Empty:
            continue
        while True:
            try:
                subscriber.messages.get(timeout=0.2)
            except queue.Empty:
                return
    fail('the subscription to %s is not effective' % topic)


def every_qos():
    subscriber, publisher = Client('sub'), Client('pub')
    subscriber.subscribe('qos/#', 2)
    effective(subscriber, publisher, 'qos/probe')
    for qos in (0, 1, 2):
        publisher.publish('qos/%d' % qos, b'payload %d' % qos, qos)
        got = subscriber.message('the message with QoS %d' % qos)
        equal((got.topic, got.payload, got.qos, got.retain), ('qos/%d' % qos, b'payload %d' % qos, qos, False), 'message')
    publisher.publish('qos/empty', b'', 1)
    equal(subscriber.message('the empty message').payload, b'', 'empty payload')
    big = bytes(range(256)) * 2000
    publisher.publish('qos/big', big, 2)
    equal(subscriber.message('the large message').payload, big, 'large payload')
    subscriber.nothing()
    publisher.close()
    subscriber.close()


def queued_messages():
    first = Client('kept', clean=False)
    equal(first.session_present, False, 'session present at first')
    first.subscribe('queue/#', 2)
    first.close()
    publisher = Client('pub')
    for number in range(50):
        publisher.publish('queue/q', b'%d' % number, 1 + number % 2)
    again = Client('kept', clean=False)
    equal(again.session_present, True, 'session present at the second connect')
    # This client hands a QoS 2 message over when it is released: the order is kept within each level only.
    got = [again.message('queued message %d' % number) for number in range(50)]
    for qos in (1, 2):
        equal([int(m.payload) for m in got if m.qos == qos], list(range(qos - 1, 50, 2)), 'queued messages of QoS %d' % qos)
    again.nothing()
    again.close()
    clean = Client('kept', clean=True)
    equal(clean.session_present, False, 'session present after a clean start')
    clean.close()
    publisher.close()


def retained():
    publisher = Client('pub')
    publisher.publish('retained/a', b'kept', 1, retain=True)
    late = Client('late')
    for attempt in range(20):
        # Another node may know of the message a moment later; subscribing again sends it again.
        late.subscribe('retained/#', 1)
        try:
            got = late.messages.get(timeout=1)
            break
        except queue.Empty:
            continue
    else:
        fail('the retained message does not come')
    equal((got.payload, got.retain), (b'kept', True), 'retained message')
    effective(late, publisher, 'retained/probe')
    publisher.publish('retained/a', b'', 1, retain=True)
    equal(late.message('the deletion').retain, False, 'retain flag of a live message')
    effective(late, publisher, 'retained/probe')
    later = Client('later')
    later.subscribe('retained/#', 1)
    later.nothing()
    for client in (publisher, late, later):
        client.close()


def wills():
    watcher = Client('watcher')
    watcher.subscribe('will/#', 1)
    effective(watcher, publisher := Client('pub'), 'will/probe')
    publisher.close()
    Client('torn', will=('will/torn', b'gone')).tear()
    equal(watcher.message().payload, b'gone', 'will')
    Client('graceful', will=('will/graceful', b'never')).close()
    watcher.nothing()
    watcher.close()


def shared():
    members = [Client('member-%d' % n) for n in range(2)]
    publisher = Client('pub')
    for member in members:
        member.subscribe('$share/group/jobs/+', 1)
        member.subscribe('effective/%d' % id(member), 1)
    for member in members:
        effective(member, publisher, 'effective/%d' % id(member))
    for number in range(30):
        publisher.publish('jobs/x', b'%d' % number, 1)
    got = []
    while len(got) < 30:
        before = len(got)
        for member in members:
            while not member.messages.empty():
                got.append(int(member.messages.get().payload))
        if len(got) == before:
            try:
                got.append(int(members[0].messages.get(timeout=0.2).payload))
            except queue.Empty:
                shared.patience -= 1
                if not shared.patience:
                    fail('shared subscription: only %r' % sorted(got))
    # QoS 1: what is in flight while the leadership of the group's shard moves may come to another member as well.
    equal(sorted(set(got)), list(range(30)), 'jobs')
    for client in members + [publisher]:
        client.nothing()
        client.close()


shared.patience = 50


def version_5():
    subscriber, publisher = Client('sub'), Client('pub')
    subscriber.subscribe('p/#', 1, options=SubscribeOptions(qos=1, retainAsPublished=True))
    effective(subscriber, publisher, 'p/probe')
    pairs = [('dup', 'first'), ('other', 'mid'), ('dup', 'second')]
    publisher.publish('p/1', b'x', 1, retain=True, UserProperty=pairs, ContentType='text/plain', ResponseTopic='answer',
                      CorrelationData=b'\x00\x01', PayloadFormatIndicator=1, MessageExpiryInterval=100)
    got = subscriber.message()
    equal(got.properties.UserProperty, pairs, 'user properties')
    equal((got.properties.ContentType, got.properties.ResponseTopic, got.properties.CorrelationData,
           got.properties.PayloadFormatIndicator), ('text/plain', 'answer', b'\x00\x01', 1), 'properties')
    if got.properties.MessageExpiryInterval not in (99, 100):
        fail('message expiry interval %r' % got.properties.MessageExpiryInterval)
    equal(got.retain, True, 'retain as published')
    local = Client('local')
    local.subscribe('local', 1, options=SubscribeOptions(qos=1, noLocal=True))
    effective(local, publisher, 'local')
    local.publish('local', b'mine', 1)
    local.nothing()
    publisher.publish('local', b'yours', 1)
    equal(local.message().payload, b'yours', 'no local')
    first = Client('same')
    second = Client('same')
    if not first.gone.wait(WAIT):
        fail('no takeover')
    first.client.loop_stop()
    second.close()
    publisher.publish('p/1', b'', 1, retain=True)
    for client in (subscriber, publisher, local):
        client.close()


for check in [every_qos, queued_messages, retained, wills, shared] + ([version_5] if V5 else []):
    check()
    print('ok', check.__name__, flush=True)
