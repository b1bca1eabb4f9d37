"""The table of `test_mistakes`: typical mistakes of newcomers, and of users of other libraries.

It is meant to be read: what the user wrote, and what Python shows. Each row is written for one of
the clients, where `connection`, `sender` and `receiver` are open. ``$URL`` stands for the URL of a
broker that lets in everybody, ``$SECURED`` for one with users and rules, ``$CLOSED`` for one that
makes no queues by itself, ``$QUEUE`` for the address of `sender` and `receiver`; other words after
a dollar sign are ports; ``…`` in a message stands for what differs between systems.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ASYNC: Final = "asyncio"
BLOCKING: Final = "blocking"


@dataclass(frozen=True)
class Mistake:
    """One mistake: what it is, what the user wrote, and the last line that Python shows.

    `compiled` is what the compiled build shows, where mypyc itself refuses an argument.
    """

    name: str
    written: str
    shown: str
    client: str = ASYNC
    compiled: str | None = None


MISTAKES: Final = [
    # ── URLs ───────────────────────────────────────────────────────────────────────────────────
    Mistake(
        "a host without a scheme",
        "await ferrymq.connect('localhost:5672')",
        "ValueError: a URL starts with amqp://, amqps://, ws:// or wss://, and this one has none "
        "of "
        "them: did you mean amqp://localhost:5672?",
    ),
    Mistake(
        "another scheme",
        "await ferrymq.connect('http://localhost:15672')",
        "ValueError: a URL starts with amqp://, amqps://, ws:// or wss://, not http:",
    ),
    Mistake(
        "no URL at all",
        "await ferrymq.connect(5672)",
        "TypeError: a URL is a str such as 'amqp://localhost', or a list of them, not int",
    ),
    Mistake(
        "several servers, as for nats-py",
        "await ferrymq.connect(servers=['amqp://a', 'amqp://b'])",
        "TypeError: connect() has no argument 'servers': give a list of URLs: "
        "connect(['amqp://a', 'amqp://b'])",
    ),
    Mistake(
        "several servers, with one scheme",
        "await ferrymq.connect('amqp://a:5672,b:5672')",
        "ValueError: the host of the URL has a comma: where several URLs may be given, each starts "
        "with amqp://, amqps://, ws:// or wss://",
    ),
    Mistake(
        "a virtual host in the path, as for RabbitMQ",
        "blocking.connect('amqp://localhost/shop')",
        "ValueError: the URL has a path, '/shop': the address of a node is given to sender() or "
        "receiver(), and a virtual host by ?hostname=vhost:NAME",
        BLOCKING,
    ),
    Mistake(
        "a password that is not percent-encoded, which is not shown",
        "blocking.connect('amqp://alice:pa/ss@localhost')",
        "ValueError: the URL has a path: the address of a node is given to sender() or receiver(), "
        "and a virtual host by ?hostname=vhost:NAME; in a user name or password, write / ? # @ as "
        "%2F %3F %23 %40",
        BLOCKING,
    ),
    Mistake(
        "a port that is no number",
        "await ferrymq.connect('amqp://localhost:port')",
        "ValueError: the port of the URL is not a number from 0 to 65535",
    ),
    Mistake(
        "an option of the URL with a slip",
        "await ferrymq.connect('amqp://localhost?idle_timeout=5')",
        "ValueError: unknown option 'idle_timeout' in the URL; known are container_id, hostname, "
        "idle_time_out, max_frame_size, timeout: did you mean idle_time_out?",
    ),
    # ── What is there is not what was expected ─────────────────────────────────────────────────
    Mistake(
        "no broker there",
        "await ferrymq.connect('amqp://127.0.0.1:$NOBODY')",
        "TransportError: cannot connect to amqp://127.0.0.1:$NOBODY: nothing listens there: is the "
        "broker running, and is the port right? …",
    ),
    Mistake(
        "a host that does not exist",
        "blocking.connect('amqp://brokr.invalid')",
        "TransportError: cannot connect to amqp://brokr.invalid:5672: the host 'brokr.invalid' is "
        "not known …",
        BLOCKING,
    ),
    Mistake(
        "a port without TLS as one with it",
        "await ferrymq.connect('$URL'.replace('amqp:', 'amqps:'))",
        "TransportError: cannot connect to amqps://127.0.0.1:…: the peer speaks no TLS here: "
        "connect with amqp://, or to its port for TLS",
    ),
    Mistake(
        "a port for TLS as one without",
        "await ferrymq.connect('amqp://127.0.0.1:$TLS')",
        "ConnectionClosed: amqp://127.0.0.1:$TLS: the peer ended the transport without a close and "
        "without an answer: check the port, and whether it is one for TLS (amqps://) or not "
        "(amqp://)",
    ),
    Mistake(
        "a certificate of an unknown authority",
        "blocking.connect('amqps://localhost:$TLS')",
        "TransportError: cannot connect to amqps://localhost:$TLS: the certificate of the peer is "
        "not good: self-signed certificate; its authority: "
        "ssl=ssl.create_default_context(cafile=...)",
        BLOCKING,
    ),
    Mistake(
        "the port of a web page",
        "await ferrymq.connect('amqp://127.0.0.1:$WEB')",
        "TransportError: cannot connect to amqp://127.0.0.1:$WEB: the peer speaks HTTP here: "
        "connect "
        "to its port for AMQP, or with ws:// or wss:// if it takes AMQP over WebSocket",
    ),
    Mistake(
        "the port for AMQP as one of WebSocket",
        "await ferrymq.connect('$URL'.replace('amqp:', 'ws:'))",
        "TransportError: cannot connect to ws://127.0.0.1:…: the peer speaks no HTTP here: connect "
        "with amqp:// or amqps:// if this is its port for AMQP",
    ),
    Mistake(
        "a RabbitMQ without AMQP 1.0",
        "await ferrymq.connect('amqp://127.0.0.1:$RABBITMQ')",
        "TransportError: cannot connect to amqp://127.0.0.1:$RABBITMQ: the peer speaks AMQP 0-9-1 "
        "here, not AMQP 1.0: RabbitMQ has AMQP 1.0 from version 4 on, before by the plugin "
        "rabbitmq_amqp1_0",
    ),
    Mistake(
        "a server that never answers",
        "await ferrymq.connect('amqp://127.0.0.1:$SILENT', timeout=0.1)",
        "TimeoutError: broker amqp://127.0.0.1:$SILENT did not answer the protocol header within "
        "0.1 s: is this a port of AMQP, and without TLS?",
    ),
    # ── Login and rights ───────────────────────────────────────────────────────────────────────
    Mistake(
        "a wrong password",
        "await ferrymq.connect('$SECURED'.replace('//', '//alice:guess@'))",
        "AuthenticationError: amqp://alice@127.0.0.1:…: the server refused SASL SCRAM-SHA-512 of "
        "user 'alice': the credentials are wrong",
    ),
    Mistake(
        "no user name where one is required",
        "blocking.connect('$SECURED')",
        "AuthenticationError: amqp://127.0.0.1:…: the server offers SASL …, not ANONYMOUS: log in "
        "with a user name and password in the URL, or with token= or sasl=",
        BLOCKING,
    ),
    Mistake(
        "no SASL where it is required",
        "await ferrymq.connect('$SECURED', sasl=None)",
        "TransportError: cannot connect to amqp://127.0.0.1:…: the peer requires SASL: connect "
        "without sasl=None, and with a user name and password if it asks for them",
    ),
    Mistake(
        "a mechanism by its name",
        "await ferrymq.connect('$URL', sasl='PLAIN')",
        "TypeError: sasl takes None, 'auto' or mechanisms of ferrymq.engine, such as "
        "Plain(user, password), not 'PLAIN'",
    ),
    Mistake(
        "an address that no rule allows",
        "async with ferrymq.connect('$SECURED'.replace('//', '//alice:right@')) as connection:\n"
        "    await connection.receiver('orders')",
        "LinkDetached: 'orders': amqp:unauthorized-access: receive at 'orders' is not allowed to "
        "you (the user of the login is 'alice')",
    ),
    Mistake(
        "a queue that does not exist, and auto-create is off",
        "with blocking.connect('$CLOSED') as connection:\n    connection.sender('orders')",
        "LinkDetached: 'orders': amqp:not-found: there is no node 'orders', and auto-create is off",
        BLOCKING,
    ),
    # ── Arguments ──────────────────────────────────────────────────────────────────────────────
    Mistake(
        "an argument with a slip",
        "await ferrymq.connect('$URL', timout=5)",
        "TypeError: connect() has no argument 'timout': did you mean timeout=?",
    ),
    Mistake(
        "arguments of aio-pika",
        "await ferrymq.connect(host='localhost', login='alice')",
        "TypeError: connect() has no argument 'host': it is part of the URL: "
        "amqp://user:password@host:port",
    ),
    Mistake(
        "the heart-beat of aio-pika and Celery",
        "blocking.connect('$URL', heartbeat=30)",
        "TypeError: connect() has no argument 'heartbeat': give idle_time_out=",
        BLOCKING,
    ),
    Mistake(
        "TLS as a flag",
        "await ferrymq.connect('amqps://localhost', ssl=True)",
        "TypeError: ssl takes an ssl.SSLContext, not True; amqps:// in the URL means TLS",
    ),
    Mistake(
        "a context for TLS with a URL that has none",
        "await ferrymq.connect('$URL', ssl=ssl.create_default_context())",
        "ValueError: an SSL context is given, but the URL does not start with amqps:// or wss:// "
        "and upgrade_tls is not set",
    ),
    Mistake(
        "seconds for reconnect",
        "await ferrymq.connect('$URL', reconnect=5)",
        "TypeError: reconnect takes True, False or ReconnectPolicy, not 5",
    ),
    Mistake(
        "the prefetch of aio-pika and Celery",
        "await connection.receiver('orders', prefetch_count=10)",
        "TypeError: receiver() has no argument 'prefetch_count': give credit=",
    ),
    Mistake(
        "the waiting time of azure-servicebus",
        "connection.receiver('orders', max_wait_time=5)",
        "TypeError: receiver() has no argument 'max_wait_time': give timeout= to receive()",
        BLOCKING,
    ),
    Mistake(
        "the routing key of RabbitMQ",
        "await connection.sender('orders', routing_key='eu')",
        "TypeError: sender() has no argument 'routing_key': give it as the address",
    ),
    Mistake(
        "an address that is no text",
        "await connection.sender(5)",
        "TypeError: an address is a str, not int",
    ),
    Mistake(
        "a receiver from nowhere",
        "connection.receiver(None)",
        "ValueError: a receiver needs an address, or dynamic=True to get one from the peer, and "
        "not "
        "both",
        BLOCKING,
    ),
    Mistake(
        "negative credit",
        "await connection.receiver('orders', credit=-1)",
        "ValueError: credit -1 is negative",
    ),
    Mistake(
        "a negative time-out",
        "await (await connection.receiver('orders')).receive(timeout=-1)",
        "ValueError: timeout -1 is no time: give seconds from 0 on, or None",
    ),
    Mistake(
        "a time-out as text",
        "await receiver.receive(timeout='5')",
        "TypeError: timeout takes seconds or a timedelta, not str",
    ),
    Mistake(
        "no messages at all",
        "connection.receiver('orders').receive_many(0)",
        "ValueError: limit 0 is below 1",
        BLOCKING,
    ),
    Mistake(
        "start= on a queue",
        "await connection.receiver('orders', start='first')",
        "LinkDetached: 'orders': amqp:precondition-failed: the peer does not apply start= (the "
        "filter ferrymq:position), which is for streams",
    ),
    Mistake(
        "a start with a slip",
        "await connection.receiver('clicks', start='frist')",
        "ValueError: start 'frist' is none of 'first', 'last', 'next', an offset and a datetime: "
        "did you mean first?",
    ),
    Mistake(
        "a start without a time zone",
        "await connection.receiver('clicks', start=datetime.datetime(2026, 1, 1))",
        "ValueError: a datetime needs a time zone to become a timestamp",
    ),
    Mistake(
        "a mode that there is not",
        "connection.receiver('orders', mode='browse')",
        "ValueError: mode 'browse' is neither 'move' nor 'copy': to browse is 'copy'",
        BLOCKING,
    ),
    Mistake(
        "a bad selector",
        "await connection.receiver('orders', selector=\"colour = = 'red'\")",
        "LinkDetached: 'orders': amqp:invalid-field: selector, character 10, near \"= 'red'\": "
        "expected + or -, a value",
    ),
    Mistake(
        "a durable subscription without a name",
        "await connection.receiver('news', durable=True)",
        "ValueError: a durable terminus is found by container-id and link name: give the name",
    ),
    # ── await, async with, names of other libraries ────────────────────────────────────────────
    Mistake(
        "a sender without await",
        "await connection.sender('orders').send(Message('x'))",
        "AttributeError: connection.sender('orders') is not open, so it has no 'send'; await it: "
        "sender = await connection.sender('orders')",
    ),
    Mistake(
        "a connection without await",
        "ferrymq.connect('$URL').sender('orders')",
        "AttributeError: ferrymq.connect('$URL') is not open, so it has no 'sender'; await it: "
        "connection = await ferrymq.connect('$URL')",
    ),
    Mistake(
        "a forgotten await",
        "connection.receiver('orders')",
        "RuntimeWarning: connection.receiver('orders') was never awaited",
    ),
    Mistake(
        "a forgotten await of a call",
        "(await connection.sender('orders')).send(Message('x'))",
        "RuntimeWarning: coroutine 'Sender.send' was never awaited",
    ),
    Mistake(
        "with instead of async with",
        "with connection.sender('orders') as sender:\n    pass",
        "TypeError: use async with: async with connection.sender('orders') as sender:",
    ),
    Mistake(
        "for instead of async for",
        "for delivery in connection.receiver('orders'):\n    pass",
        "TypeError: use async for, not for: OpeningReceiver waits for messages",
    ),
    Mistake(
        "channels, as in aio-pika",
        "channel = await connection.channel()",
        "AttributeError: 'Connection' object has no attribute 'channel': links need none: use "
        "connection.sender(address) and connection.receiver(address)",
    ),
    Mistake(
        "publish, as in nats-py",
        "connection.publish('orders', b'x')",
        "AttributeError: 'Connection' object has no attribute 'publish': use "
        "connection.sender(address)",
        BLOCKING,
    ),
    Mistake(
        "a sender as a receiver",
        "await (await connection.sender('orders')).receive()",
        "AttributeError: 'Sender' object has no attribute 'receive': a sender sends: use "
        "connection.receiver(address)",
    ),
    Mistake(
        "a receiver as a sender",
        "connection.receiver('orders').send(Message('x'))",
        "AttributeError: 'Receiver' object has no attribute 'send': a receiver receives: use "
        "connection.sender(address)",
        BLOCKING,
    ),
    Mistake(
        "ack, as in aio-pika and nats-py",
        "await sender.send(Message('x'))\nawait (await receiver.receive(timeout=20)).ack()",
        "AttributeError: 'Delivery' object has no attribute 'ack': use accept()",
    ),
    Mistake(
        "the body of a delivery",
        "sender.send(Message('x'))\nreceiver.receive(timeout=20).body",
        "AttributeError: 'Delivery' object has no attribute 'body': it is a field of "
        "delivery.message",
        BLOCKING,
    ),
    # ── Messages ───────────────────────────────────────────────────────────────────────────────
    Mistake(
        "a number instead of a message",
        "await sender.send(5)",
        "TypeError: send takes a Message, bytes, str, dict or list, not int",
    ),
    Mistake(
        "a subject that is no text",
        "sender.send(Message('x', subject=5))",
        "EncodeError: properties.subject: int is not of the type of this field",
        BLOCKING,
        compiled="TypeError: str or None object expected; got int",
    ),
    Mistake(
        "a value in the body that has no type in AMQP",
        "await sender.send(Message({'items': [1, {'price': object()}]}))",
        "EncodeError: message.body['items'][1]['price']: object has no AMQP type: give bytes, str, "
        "bool, int, float, Decimal, UUID, None, a list or a dict of these",
    ),
    Mistake(
        "a set in the body",
        "sender.send(Message({'tags': {'a', 'b'}}))",
        "EncodeError: message.body['tags']: set has no AMQP type: give a list",
        BLOCKING,
    ),
    Mistake(
        "an integer that is too large",
        "await sender.send(Message([2**70]))",
        "EncodeError: message.body[0]: 1180591620717411303424 is out of range for long",
    ),
    Mistake(
        "an application property that is a list",
        "await sender.send(Message('x', application_properties={'tags': ['a']}))",
        "EncodeError: application-properties: the value of 'tags' is not simple: list …",
    ),
    Mistake(
        "a message-id that is none",
        "await sender.send(Message('x', message_id=1.5))",
        "EncodeError: properties.message-id: float is not a message-id",
    ),
    Mistake(
        "a priority out of range",
        "sender.send(Message('x', priority=300))",
        "EncodeError: header.priority: 300 is out of range for ubyte",
        BLOCKING,
    ),
    Mistake(
        "a message that is too large",
        "await sender.send(Message(bytes(5000)))",
        "LocalProtocolError: amqp:link:message-size-exceeded: '$QUEUE' takes messages of at most "
        "1000 bytes; this one has 5008",
    ),
    Mistake(
        "a delivery-tag that is too long",
        "await sender.send(Message('x'), delivery_tag=bytes(33))",
        "EncodeError: transfer.delivery-tag: 33 bytes; at most 32 are allowed",
    ),
    Mistake(
        "a delivery-tag as text",
        "await sender.send(Message('x'), delivery_tag='order-1')",
        "TypeError: a delivery-tag is bytes, not str",
    ),
    Mistake(
        "hold on a link that keeps nothing",
        "await sender.send(Message('x'), hold=True)",
        "ValueError: hold is for unsettled messages to a durable target",
    ),
    # ── Outcomes ───────────────────────────────────────────────────────────────────────────────
    Mistake(
        "no message comes",
        "receiver.receive(timeout=0.05)",
        "TimeoutError: no message came from '$QUEUE' within 0.05 s",
        BLOCKING,
    ),
    Mistake(
        "all credit is held by messages without an outcome",
        "some = await connection.receiver('some', credit=1)\n"
        "async with connection.sender('some') as to_some:\n"
        "    await to_some.send_many([Message('x'), Message('y')])\n"
        "first = await some.receive(timeout=20)\n"
        "second = await some.receive(timeout=0.05)",
        "TimeoutError: no message came from 'some' within 0.05 s: all 1 credits are held by "
        "deliveries without an outcome: settle them, or raise credit",
    ),
    Mistake(
        "all credit is held, in threads",
        "some = connection.receiver('few', credit=1)\n"
        "connection.sender('few').send(Message('x'))\n"
        "first = some.receive(timeout=20)\n"
        "second = some.receive(timeout=0.05)",
        "TimeoutError: no message came from 'few' within 0.05 s: all 1 credits are held by "
        "deliveries without an outcome: settle them, or raise credit",
        BLOCKING,
    ),
    Mistake(
        "a message settled twice",
        "await sender.send(Message('x'))\n"
        "delivery = await receiver.receive(timeout=20)\n"
        "await delivery.accept()\n"
        "await delivery.reject()",
        "LocalProtocolError: amqp:illegal-state: a delivery from '$QUEUE' has been given an "
        "outcome "
        "already (accepted); it has only one",
    ),
    Mistake(
        "a message settled after its connection was closed",
        "await sender.send(Message('x'))\n"
        "delivery = await receiver.receive(timeout=20)\n"
        "await connection.close()\n"
        "await delivery.accept()",
        "ConnectionClosed: $URL: the connection was closed",
    ),
    Mistake(
        "an exception as the reason of a rejection",
        "sender.send(Message('x'))\n" "receiver.receive(timeout=20).reject(ValueError('no price'))",
        "TypeError: reject takes a condition such as 'app:bad-order', or an Error, not ValueError: "
        "reject('app:bad-order', str(error))",
        BLOCKING,
    ),
    Mistake(
        "a transaction used after its commit",
        "async with connection.transaction() as txn:\n"
        "    await sender.send(Message('x'), transaction=txn)\n"
        "await sender.send(Message('y'), transaction=txn)",
        "LocalProtocolError: amqp:illegal-state: the transaction is committed: declare another "
        "with "
        "connection.transaction()",
    ),
    Mistake(
        "a transaction of another connection",
        "with blocking.connect('$URL') as other, other.transaction() as txn:\n"
        "    sender.send(Message('x'), transaction=txn)",
        "LocalProtocolError: amqp:not-allowed: '$QUEUE': the link is of another connection, to "
        "$URL, than the transaction",
        BLOCKING,
    ),
    # ── Use after the end ──────────────────────────────────────────────────────────────────────
    Mistake(
        "a connection used after close",
        "await connection.close()\nawait connection.sender('orders')",
        "ConnectionClosed: $URL: the connection was closed",
    ),
    Mistake(
        "a connection used after its block",
        "with blocking.connect('$URL') as other:\n    pass\nother.sender('orders')",
        "ConnectionClosed: $URL: the connection was closed",
        BLOCKING,
    ),
    Mistake(
        "a sender used after close",
        "await sender.close()\nawait sender.send(Message('x'))",
        "LinkDetached: '$QUEUE': the link was closed on this side",
    ),
    Mistake(
        "a receiver used after close",
        "receiver.close()\nreceiver.receive()",
        "LinkDetached: '$QUEUE': the link was closed on this side",
        BLOCKING,
    ),
    Mistake(
        "two links of one name",
        "await connection.sender('orders', name='mine')\n"
        "await connection.sender('orders', name='mine')",
        "LocalProtocolError: amqp:illegal-state: a link 'mine' is attached already",
    ),
    # ── Threads and event loops ────────────────────────────────────────────────────────────────
    Mistake(
        "another thread",
        "await asyncio.to_thread(sender.send_nowait, Message('x'))",
        "RuntimeError: <connection to $URL> belongs to the event loop it was made in, and this "
        "thread runs none: use asyncio.run_coroutine_threadsafe(..., loop) with that loop, or "
        "ferrymq.blocking, whose connections work in all threads",
    ),
    Mistake(
        "another event loop in another thread",
        "await asyncio.to_thread(lambda: asyncio.run(sender.send(Message('x'))))",
        "RuntimeError: <connection to $URL> belongs to the event loop it was made in, and this "
        "thread runs another one: use asyncio.run_coroutine_threadsafe(..., loop) with that loop, "
        "or ferrymq.blocking, whose connections work in all threads",
    ),
    Mistake(
        "a second asyncio.run",
        "async def connect():\n"
        "    return await ferrymq.connect('$URL')\n"
        "async def use(connection):\n"
        "    await connection.sender('orders')\n"
        "connection = asyncio.run(connect())\n"
        "asyncio.run(use(connection))",
        "RuntimeError: <connection to $URL> was made in an event loop that has ended: connect "
        "again "
        "in this one. asyncio.run makes a new loop for each call, so connect inside its coroutine",
        BLOCKING,
    ),
    Mistake(
        "the blocking client inside a running loop",
        "blocking.connect('$URL')",
        "RuntimeError: a call of ferrymq.blocking would stop the event loop that runs in this "
        "thread: use await ferrymq.connect(...) here, or asyncio.to_thread",
    ),
]
