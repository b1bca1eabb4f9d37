"""Cases for aio-pika: a coroutine for each feature."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.abc import AbstractChannel, AbstractQueue
from aio_pika.exceptions import (
    AMQPConnectionError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    InvalidFrameError,
    PublishError,
    QueueEmpty,
)
from aiormq.exceptions import ChannelAccessRefused, ChannelLockedResource

from tests.interop.amqp_0_9_1.place import PATIENCE, WATCH, Place
from tests.interop.features.trial import expect, fails


@asynccontextmanager
async def channel(at: Place, host: str = "%2F", **options: Any) -> AsyncIterator[AbstractChannel]:
    """Open a channel on a connection of its own, by default with publisher confirms."""
    connection = await aio_pika.connect(at.url(host), timeout=PATIENCE)
    async with connection:
        yield await connection.channel(**options)


async def declared(ch: AbstractChannel, name: str, **arguments: Any) -> AbstractQueue:
    """Declare a queue that ends with the connection; `x_max_length=3` is an argument."""
    table = {key.replace("_", "-"): value for key, value in arguments.items()}
    return await ch.declare_queue(name, exclusive=True, arguments=table)


async def put(ch: AbstractChannel, queue: str, *bodies: str, **properties: Any) -> None:
    """Publish messages to a queue, and wait until they are confirmed."""
    for body in bodies:
        await ch.default_exchange.publish(Message(body.encode(), **properties), queue)


async def got(queue: AbstractQueue) -> Any:
    """Get a message, which comes soon."""
    async with asyncio.timeout(PATIENCE):
        while (message := await queue.get(fail=False)) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return message


async def bodies(queue: AbstractQueue, count: int) -> list[str]:
    """Consume so many messages, acknowledge them, and return their bodies."""
    taken: list[str] = []
    async with queue.iterator(timeout=PATIENCE) as messages:
        async for message in messages:
            taken.append(message.body.decode())
            await message.ack()
            if len(taken) == count:
                break
    return taken


async def until(done: Callable[[], bool]) -> None:
    """Wait until something is done."""
    async with asyncio.timeout(PATIENCE):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def queue_declare(at: Place) -> None:
    async with channel(at) as ch:
        queue = await ch.declare_queue(at.name(), durable=True)
        await put(ch, at.name(), "one", "two")
        again = await ch.declare_queue(at.name(), durable=True)
        expect(again.declaration_result.message_count, 2)
        expect((await queue.purge()).message_count, 2)
        await queue.delete()


async def server_named(at: Place) -> None:
    async with channel(at) as ch:
        queue = await ch.declare_queue(exclusive=True)
        assert queue.name.startswith("amq"), queue.name
        await put(ch, queue.name, "one")
        expect(await bodies(queue, 1), ["one"])


async def passive(at: Place) -> None:
    async with channel(at) as ch:
        await fails(ch.declare_queue(at.name(), passive=True), ChannelNotFoundEntity)


async def exclusive(at: Place) -> None:
    async with channel(at) as ch, channel(at) as other:
        await declared(ch, at.name())
        await fails(other.declare_queue(at.name(), passive=True), ChannelLockedResource)


async def topic(at: Place) -> None:
    async with channel(at) as ch:
        exchange = await ch.declare_exchange(at.name(), ExchangeType.TOPIC, auto_delete=True)
        queue = await declared(ch, at.name())
        await queue.bind(exchange, "a.*")
        for key in ("a.b", "b.b", "a.c"):
            await exchange.publish(Message(key.encode()), key, mandatory=False)
        expect(await bodies(queue, 2), ["a.b", "a.c"])
        expect(await queue.get(fail=False), None)


async def headers(at: Place) -> None:
    async with channel(at) as ch:
        exchange = await ch.declare_exchange(at.name(), ExchangeType.HEADERS, auto_delete=True)
        queue = await declared(ch, at.name())
        await queue.bind(exchange, "", arguments={"x-match": "any", "kind": "tea", "size": 3})
        for number, table in enumerate(({"kind": "tea"}, {"kind": "no"}, {"size": 3})):
            message = Message(b"%d" % number, headers=table)
            await exchange.publish(message, "", mandatory=False)
        expect(await bodies(queue, 2), ["0", "2"])


async def exchange_bindings(at: Place) -> None:
    async with channel(at) as ch:
        first = await ch.declare_exchange(at.name("first"), ExchangeType.FANOUT, auto_delete=True)
        second = await ch.declare_exchange(at.name("second"), ExchangeType.FANOUT, auto_delete=True)
        await second.bind(first)
        queue = await declared(ch, at.name())
        await queue.bind(second)
        await first.publish(Message(b"one"), "")
        expect(await bodies(queue, 1), ["one"])


async def properties(at: Place) -> None:
    given: dict[str, Any] = {
        "content_type": "application/json",
        "content_encoding": "utf-8",
        "delivery_mode": DeliveryMode.PERSISTENT,
        "priority": 5,
        "correlation_id": "c-1",
        "reply_to": "replies",
        "message_id": "m-1",
        "type": "order",
        "user_id": at.user,
        "app_id": "shop",
    }
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        await put(ch, at.name(), "one", expiration=60, **given)
        message = await got(queue)
        expect({name: getattr(message, name) for name in given}, given)
        expect(message.expiration, 60)
        await message.ack()


async def header_types(at: Place) -> None:
    given = {
        "double": 0.5,
        "int": 7,
        "long": -(2**40),
        "text": "žluťoučký",
        "none": None,
        "list": [1, "two", [True]],
        "table": {"inner": {}},
    }
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        await put(ch, at.name(), "one", headers=given)
        message = await got(queue)
        expect(dict(message.headers), given)
        await message.ack()


async def large(at: Place) -> None:
    body = bytes(range(256)) * 4096
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        await ch.default_exchange.publish(Message(body), at.name())
        message = await got(queue)
        assert message.body == body, "another body came"
        await message.ack()


async def mandatory(at: Place) -> None:
    async with channel(at, on_return_raises=True) as ch:
        work = ch.default_exchange.publish(Message(b"one"), "missing")
        await fails(work, PublishError)


async def confirms(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        sent = [
            ch.default_exchange.publish(Message(b"%d" % number), at.name()) for number in range(200)
        ]
        await asyncio.gather(*sent)
        expect(sorted(map(int, await bodies(queue, 200))), list(range(200)))


async def confirm_nack(at: Place) -> None:
    async with channel(at) as ch:
        await declared(ch, at.name(), x_max_length=1, x_overflow="reject-publish")
        await put(ch, at.name(), "one")
        await fails(put(ch, at.name(), "two"), DeliveryError)


async def get(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        await fails(queue.get(), QueueEmpty)
        await put(ch, at.name(), "one")
        message = await got(queue)
        expect((message.body, message.redelivered), (b"one", False))
        await message.ack()


async def consume(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        await put(ch, at.name(), *(str(number) for number in range(100)))
        expect(await bodies(queue, 100), [str(number) for number in range(100)])


async def no_ack(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        came: list[bytes] = []
        await queue.consume(_into(came), no_ack=True)
        await put(ch, at.name(), "one", "two")
        await until(lambda: len(came) == 2)


def _into(came: list[bytes], settle: str = "") -> Callable[[Any], Awaitable[None]]:
    async def on_message(message: Any) -> None:
        came.append(message.body)
        if settle:
            await getattr(message, settle)()

    return on_message


async def prefetch(at: Place) -> None:
    async with channel(at) as ch:
        await ch.set_qos(prefetch_count=2)
        queue = await declared(ch, at.name())
        came: list[Any] = []

        async def on_message(message: Any) -> None:
            came.append(message)

        await queue.consume(on_message)
        await put(ch, at.name(), "1", "2", "3", "4")
        await until(lambda: len(came) == 2)
        await asyncio.sleep(WATCH)
        expect(len(came), 2)
        await came[1].ack(multiple=True)
        await until(lambda: len(came) == 4)


async def requeue(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        await put(ch, at.name(), "one")
        await (await got(queue)).nack(requeue=True)
        message = await got(queue)
        expect(message.redelivered, True)
        await message.reject(requeue=True)
        await (await got(queue)).reject(requeue=False)
        expect(await queue.get(fail=False), None)


async def cancel(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name())
        came: list[bytes] = []
        tag = await queue.consume(_into(came, "ack"))
        await put(ch, at.name(), "one")
        await until(lambda: len(came) == 1)
        await queue.cancel(tag)
        await put(ch, at.name(), "two")
        expect((await got(queue)).body, b"two")


async def dead_letter(at: Place) -> None:
    async with channel(at) as ch:
        dead = await declared(ch, at.name("dead"))
        queue = await declared(
            ch,
            at.name(),
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=at.name("dead"),
        )
        await put(ch, at.name(), "one")
        await (await got(queue)).reject()
        message = await got(dead)
        death = message.headers["x-death"][0]
        expect((death["count"], death["reason"], death["queue"]), (1, "rejected", at.name()))
        await message.ack()


async def message_ttl(at: Place) -> None:
    async with channel(at) as ch:
        dead = await declared(ch, at.name("dead"))
        await declared(
            ch,
            at.name(),
            x_dead_letter_exchange="",
            x_dead_letter_routing_key=at.name("dead"),
        )
        await put(ch, at.name(), "one", expiration=0.05)
        message = await got(dead)
        expect(message.headers["x-death"][0]["reason"], "expired")
        await message.ack()


async def priority(at: Place) -> None:
    async with channel(at) as ch:
        queue = await declared(ch, at.name(), x_max_priority=10)
        for number in (1, 9, 5):
            await put(ch, at.name(), str(number), priority=number)
        expect(await bodies(queue, 3), ["9", "5", "1"])


async def stream(at: Place) -> None:
    async with channel(at) as ch:
        arguments = {"x-queue-type": "stream"}
        queue = await ch.declare_queue(at.name(), durable=True, arguments=arguments)
        await put(ch, at.name(), "0", "1", "2")
        await ch.set_qos(prefetch_count=10)
        came: list[bytes] = []
        tag = await queue.consume(_into(came, "ack"), arguments={"x-stream-offset": 1})
        await until(lambda: came == [b"1", b"2"])
        await queue.cancel(tag)
        (
            await ch.queue_delete(at.name())
            if hasattr(ch, "queue_delete")
            else await queue.delete(if_unused=False, if_empty=False)
        )


async def tx_commit(at: Place) -> None:
    async with channel(at) as plain, channel(at, publisher_confirms=False) as ch:
        queue = await declared(plain, at.name())
        async with ch.transaction():
            await put(ch, at.name(), "one", "two")
            expect(await queue.get(fail=False), None)
        expect(await bodies(queue, 2), ["one", "two"])


async def tx_rollback(at: Place) -> None:
    async with channel(at) as plain, channel(at, publisher_confirms=False) as ch:
        queue = await declared(plain, at.name())
        transaction = ch.transaction()
        await transaction.select()
        await put(ch, at.name(), "one")
        await transaction.rollback()
        expect(await queue.get(fail=False), None)


async def rpc(at: Place) -> None:
    from aio_pika.patterns import RPC

    async with channel(at) as server, channel(at) as client:
        answers = await RPC.create(server)
        asks = await RPC.create(client)

        async def double(*, number: int) -> int:
            return 2 * number

        await answers.register(at.name(), double, auto_delete=True)
        expect(await asks.call(at.name(), {"number": 21}), 42)
        await asks.close()
        await answers.close()


async def direct_reply_to(at: Place) -> None:
    async with channel(at) as server, channel(at) as client:
        queue = await declared(server, at.name())
        inbox = await client.get_queue("amq.rabbitmq.reply-to")
        came: list[bytes] = []
        await inbox.consume(_into(came), no_ack=True)
        await put(client, at.name(), "one", reply_to="amq.rabbitmq.reply-to")
        request = await got(queue)
        await put(server, request.reply_to, "answer")
        await until(lambda: came == [b"answer"])
        await request.ack()


async def not_found(at: Place) -> None:
    async with channel(at) as ch:
        await fails((await ch.get_queue("missing", ensure=False)).get(), ChannelNotFoundEntity)


async def precondition(at: Place) -> None:
    async with channel(at) as ch:
        await declared(ch, at.name(), x_message_ttl=1000)
        await fails(declared(ch, at.name(), x_message_ttl=2000), ChannelPreconditionFailed)


async def access_refused(at: Place) -> None:
    connection = await aio_pika.connect(at.url(user=at.guest))
    async with connection:
        ch = await connection.channel()
        await fails(ch.declare_queue(at.name()), ChannelAccessRefused)


async def wrong_password(at: Place) -> None:
    await fails(aio_pika.connect(at.url(password="wrong")), AMQPConnectionError)


async def wrong_host(at: Place) -> None:
    await fails(aio_pika.connect(at.url("missing")), AMQPConnectionError, InvalidFrameError)


async def tls(at: Place) -> None:
    context = ssl.create_default_context(cafile=at.authority)
    url = at.url().replace("amqp:", "amqps:").replace(f":{at.port}", f":{at.tls_port}")
    connection = await aio_pika.connect(url.replace(at.host, "localhost"), ssl_context=context)
    async with connection:
        ch = await connection.channel()
        queue = await declared(ch, at.name())
        await put(ch, at.name(), "one")
        expect(await bodies(queue, 1), ["one"])


async def virtual_host(at: Place) -> None:
    async with channel(at, at.other_host) as ch:
        queue = await declared(ch, at.name())
        await put(ch, at.name(), "one")
        expect(await bodies(queue, 1), ["one"])


async def channels(at: Place) -> None:
    connection = await aio_pika.connect(at.url())
    async with connection:
        opened = await asyncio.gather(*(connection.channel() for _ in range(20)))
        queue = await declared(opened[0], at.name())
        await asyncio.gather(*(put(ch, at.name(), "one") for ch in opened))
        expect(await bodies(queue, 20), ["one"] * 20)
