"""Checks with aiomqtt: aiomqtt_checks.py VERSION (3.1.1 or 5) PORT...

Each client takes the next of the ports, so that with the ports of several nodes every check crosses them.
"""
import asyncio
import itertools
import sys

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

VERSION, PORTS = sys.argv[1], itertools.cycle(int(p) for p in sys.argv[2:])
V5 = VERSION == '5'
WAIT = 20


def equal(found, wanted, what):
    if found != wanted:
        sys.exit('FAILED: %s: %r, not %r' % (what, found, wanted))


def properties(kind, **values):
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


def client(client_id, clean=True, will=None):
    arguments = {'clean_start': clean} if V5 else {'clean_session': clean}
    if V5 and not clean:
        arguments['properties'] = properties(PacketTypes.CONNECT, SessionExpiryInterval=300)
    return aiomqtt.Client('127.0.0.1', next(PORTS), identifier=client_id, will=will, timeout=WAIT,
                          protocol=aiomqtt.ProtocolVersion.V5 if V5 else aiomqtt.ProtocolVersion.V311, **arguments)


async def message(of):
    return await asyncio.wait_for(anext(of.messages), WAIT)


async def nothing(of, name):
    """What this client publishes to itself comes first: nothing else waits."""
    await of.subscribe('nothing/' + name, qos=1)
    await of.publish('nothing/' + name, b'marker', qos=1)
    equal((await message(of)).topic.value, 'nothing/' + name, 'a message too many')


async def every_qos():
    async with client('asub') as subscriber, client('apub') as publisher:
        await subscriber.subscribe('a/qos/#', qos=2)
        for qos in (0, 1, 2):
            await publisher.publish('a/qos/%d' % qos, b'payload %d' % qos, qos=qos)
            got = await message(subscriber)
            equal((got.topic.value, got.payload, got.qos, got.retain), ('a/qos/%d' % qos, b'payload %d' % qos, qos, False),
                  'message')
        await nothing(subscriber, 'asub')


async def many_at_once():
    async with client('asub') as subscriber, client('apub') as publisher:
        await subscriber.subscribe('a/many', qos=1)
        await asyncio.gather(*(publisher.publish('a/many', b'%d' % number, qos=1) for number in range(200)))
        got = sorted([int((await message(subscriber)).payload) for _ in range(200)])
        equal(got, list(range(200)), 'messages published at once')


async def queued_messages():
    async with client('akept', clean=False) as first:
        await first.subscribe('a/queue', qos=1)
    async with client('apub') as publisher:
        for number in range(30):
            await publisher.publish('a/queue', b'%d' % number, qos=1)
    async with client('akept', clean=False) as again:
        equal([int((await message(again)).payload) for _ in range(30)], list(range(30)), 'queued messages')
        await nothing(again, 'akept')
    async with client('akept'):
        pass


async def retained():
    async with client('apub') as publisher, client('alate') as late:
        await publisher.publish('a/retained', b'kept', qos=1, retain=True)
        await late.subscribe('a/retained', qos=1)
        got = await message(late)
        equal((got.payload, got.retain), (b'kept', True), 'retained message')
        await publisher.publish('a/retained', b'', qos=1, retain=True)
        equal((await message(late)).retain, False, 'the retain flag of a live message')


async def wills():
    async with client('awatch') as watcher:
        await watcher.subscribe('a/will/#', qos=1)
        torn = client('atorn', will=aiomqtt.Will('a/will/torn', b'gone', qos=1))
        await torn.__aenter__()
        torn._client.socket().shutdown(2)
        equal((await message(watcher)).payload, b'gone', 'will')
        try:
            await torn.__aexit__(None, None, None)
        except aiomqtt.MqttError:
            pass
        async with client('agraceful', will=aiomqtt.Will('a/will/graceful', b'never', qos=1)):
            pass
        await nothing(watcher, 'awatch')


async def version_5():
    async with client('asub') as subscriber, client('apub') as publisher:
        await subscriber.subscribe('a/p', options=SubscribeOptions(qos=1, retainAsPublished=True))
        pairs = [('dup', 'first'), ('other', 'mid'), ('dup', 'second')]
        await publisher.publish('a/p', b'x', qos=1, retain=True, properties=properties(
            PacketTypes.PUBLISH, UserProperty=pairs, ContentType='text/plain', ResponseTopic='answer', CorrelationData=b'\x00'))
        got = await message(subscriber)
        equal((got.retain, got.properties.UserProperty, got.properties.ContentType, got.properties.ResponseTopic,
               got.properties.CorrelationData), (True, pairs, 'text/plain', 'answer', b'\x00'), 'properties')
        await publisher.publish('a/p', b'', qos=1, retain=True)


async def main():
    for check in [every_qos, many_at_once, queued_messages, retained, wills] + ([version_5] if V5 else []):
        await asyncio.wait_for(check(), 3 * WAIT)
        print('ok', check.__name__, flush=True)


asyncio.run(main())
