"""Checks with gmqtt: gmqtt_checks.py PORT VERSION (3.1.1 or 5)"""
import asyncio
import sys

from gmqtt import Client as Gmqtt
from gmqtt.mqtt.constants import MQTTv311, MQTTv50

PORT = int(sys.argv[1])
VERSION = {'3.1.1': MQTTv311, '5': MQTTv50}[sys.argv[2]]
WAIT = 20


def equal(found, wanted, what):
    if found != wanted:
        sys.exit('FAILED: %s: %r, not %r' % (what, found, wanted))


class Client:
    def __init__(self, client_id, clean=True, **props):
        self.client = Gmqtt(client_id, clean_session=clean, **props)
        self.messages = asyncio.Queue()
        self.connected = asyncio.Event()
        self.subscribed = asyncio.Event()
        self.flags = None
        self.client.on_connect = self.on_connect
        self.client.on_message = self.on_message
        self.client.on_subscribe = lambda client, mid, qos, props: self.subscribed.set()

    def on_connect(self, client, flags, code, props):
        equal(code, 0, 'CONNACK')
        self.flags = flags
        self.connected.set()

    async def on_message(self, client, topic, payload, qos, props):
        self.messages.put_nowait((topic, payload, qos, props))
        return 0

    async def connect(self):
        await self.client.connect('127.0.0.1', PORT, version=VERSION)
        await asyncio.wait_for(self.connected.wait(), WAIT)
        return self

    async def subscribe(self, topic, qos):
        self.subscribed.clear()
        self.client.subscribe(topic, qos=qos)
        await asyncio.wait_for(self.subscribed.wait(), WAIT)

    async def message(self):
        return await asyncio.wait_for(self.messages.get(), WAIT)

    async def close(self):
        await self.client.disconnect()


async def every_qos():
    subscriber, publisher = await Client('gsub').connect(), await Client('gpub').connect()
    await subscriber.subscribe('g/#', 2)
    pairs = [('dup', 'first'), ('other', 'mid'), ('dup', 'second')]
    for qos in (0, 1, 2):
        properties = {'user_property': pairs, 'content_type': 'text/plain'} if VERSION == MQTTv50 else {}
        publisher.client.publish('g/%d' % qos, 'payload %d' % qos, qos=qos, **properties)
        topic, payload, got_qos, props = await subscriber.message()
        equal((topic, payload, got_qos), ('g/%d' % qos, b'payload %d' % qos, qos), 'message')
        if VERSION != MQTTv50:
            continue
        equal(props['user_property'], pairs, 'user properties')
        equal(props['content_type'], ['text/plain'], 'content type')
    await publisher.close()
    await subscriber.close()


async def queued_messages():
    kept = {'session_expiry_interval': 300} if VERSION == MQTTv50 else {}
    first = await Client('gkept', clean=False, **kept).connect()
    await first.subscribe('gq', 1)
    await first.close()
    publisher = await Client('gpub').connect()
    watcher = await Client('gwatch').connect()
    await watcher.subscribe('gq', 1)
    # This client raises an error where the broker's Receive Maximum, 10, is reached.
    for number in range(8):
        publisher.client.publish('gq', str(number), qos=1)
    for number in range(8):
        equal((await watcher.message())[1], b'%d' % number, 'live message')
    again = await Client('gkept', clean=False, **kept).connect()
    equal(again.flags & 1, 1, 'session present')
    for number in range(8):
        equal((await again.message())[1], b'%d' % number, 'queued message')
    for client in (again, publisher, watcher):
        await client.close()


async def retained():
    publisher = await Client('gpub').connect()
    watcher = await Client('gwatch').connect()
    await watcher.subscribe('gr', 1)
    publisher.client.publish('gr', 'kept', qos=1, retain=True)
    await watcher.message()
    late = await Client('glate').connect()
    await late.subscribe('gr', 1)
    equal((await late.message())[1], b'kept', 'retained message')
    publisher.client.publish('gr', '', qos=1, retain=True)
    await watcher.message()
    for client in (late, publisher, watcher):
        await client.close()


async def main():
    for check in (every_qos, queued_messages, retained):
        await asyncio.wait_for(check(), 3 * WAIT)
        print('ok', check.__name__, flush=True)


asyncio.run(main())
