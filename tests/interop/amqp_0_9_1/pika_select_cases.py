"""Cases for pika's connections by callbacks: each with `SelectConnection` and `AsyncioConnection`.

A case is a coroutine of calls with callbacks, each awaited.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from tests.interop.amqp_0_9_1.pika_client import parameters
from tests.interop.amqp_0_9_1.place import PATIENCE, Place
from tests.interop.features.trial import expect


class Callbacks:
    """A connection with methods to await: `call` awaits the callback of a method of the channel."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop, in_thread: bool) -> None:
        self._connection = connection
        self._loop = loop
        self._in_thread = in_thread
        self.channel: Any = None
        self.ended: asyncio.Future[Any] = loop.create_future()

    def _run(self, work: Callable[[], object]) -> None:
        if self._in_thread:
            self._connection.ioloop.add_callback_threadsafe(work)
        else:
            work()

    async def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method of the channel, and return what its callback gets."""
        answer: asyncio.Future[Any] = self._loop.create_future()

        def done(frame: Any) -> None:
            self._loop.call_soon_threadsafe(answer.set_result, frame)

        self._run(lambda: getattr(self.channel, name)(*args, callback=done, **options))
        return await asyncio.wait_for(answer, PATIENCE)

    def do(self, name: str, *args: Any, **options: Any) -> None:
        """Call a method of the channel that has no callback."""
        self._run(lambda: getattr(self.channel, name)(*args, **options))

    def queue(self) -> tuple[asyncio.Queue[Any], Callable[..., None]]:
        """Return a queue, and a callback that puts its arguments there."""
        came: asyncio.Queue[Any] = asyncio.Queue()
        return came, lambda *args: self._loop.call_soon_threadsafe(came.put_nowait, args)


async def _with(at: Place, case: Callable[[Callbacks], Awaitable[None]]) -> None:
    """Run a case with both kinds of connection."""
    for kind in (pika.SelectConnection, AsyncioConnection):
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Any] = loop.create_future()
        in_thread = kind is pika.SelectConnection
        connection: Any = kind(parameters(at))
        callbacks = Callbacks(connection, loop, in_thread)

        def tell(future: asyncio.Future[Any], value: Any, loop: Any = loop) -> None:
            loop.call_soon_threadsafe(lambda: future.done() or future.set_result(value))

        connection.add_on_open_callback(
            lambda c, opened=opened, tell=tell: c.channel(
                on_open_callback=lambda ch: tell(opened, ch)
            )
        )
        connection.add_on_open_error_callback(lambda _, error, o=opened, t=tell: t(o, error))
        connection.add_on_close_callback(
            lambda c, reason, e=callbacks.ended, t=tell, i=in_thread: (
                t(e, reason),
                c.ioloop.stop() if i else None,
            )
        )
        thread = None
        if in_thread:
            thread = threading.Thread(target=connection.ioloop.start, daemon=True)
            thread.start()
        result = await asyncio.wait_for(opened, PATIENCE)
        if isinstance(result, Exception):
            raise result
        callbacks.channel = result
        await case(callbacks)
        callbacks._run(connection.close)
        await asyncio.wait_for(callbacks.ended, PATIENCE)
        if thread is not None:
            await asyncio.to_thread(thread.join, PATIENCE)


async def consume(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        await c.call("queue_declare", at.name(), exclusive=True)
        await c.call("basic_qos", prefetch_count=10)
        came, on_message = c.queue()
        ok = await c.call("basic_consume", at.name(), on_message, consumer_tag="mine")
        expect(ok.method.consumer_tag, "mine")
        for number in range(30):
            c.do("basic_publish", "", at.name(), b"%d" % number)
        for number in range(30):
            _, method, _, body = await asyncio.wait_for(came.get(), PATIENCE)
            expect(body, b"%d" % number)
            c.do("basic_ack", method.delivery_tag)
        await c.call("basic_cancel", "mine")
        ok = await c.call("queue_declare", at.name(), passive=True)
        expect((ok.method.message_count, ok.method.consumer_count), (0, 0))

    await _with(at, case)


async def confirms(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        await c.call("queue_declare", at.name(), exclusive=True)
        came, on_confirm = c.queue()
        await c.call("confirm_delivery", on_confirm)
        for _ in range(20):
            c.do("basic_publish", "", at.name(), b"one", pika.BasicProperties(delivery_mode=2))
        last = 0
        while last < 20:
            (frame,) = await asyncio.wait_for(came.get(), PATIENCE)
            expect(type(frame.method).__name__, "Ack")
            last = max(last, frame.method.delivery_tag)

    await _with(at, case)


async def topic(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        await c.call("exchange_declare", at.name(), "topic", auto_delete=True)
        await c.call("queue_declare", at.name(), exclusive=True)
        await c.call("queue_bind", at.name(), at.name(), "a.#")
        came, on_message = c.queue()
        await c.call("basic_consume", at.name(), on_message, auto_ack=True)
        for key in ("a.b", "b.b", "a"):
            c.do("basic_publish", at.name(), key, key.encode())
        for key in (b"a.b", b"a"):
            expect((await asyncio.wait_for(came.get(), PATIENCE))[3], key)

    await _with(at, case)


async def mandatory(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        came, on_return = c.queue()
        c.do("add_on_return_callback", on_return)
        c.do("basic_publish", "", "missing", b"one", mandatory=True)
        _, method, _, body = await asyncio.wait_for(came.get(), PATIENCE)
        expect((method.reply_code, body), (312, b"one"))

    await _with(at, case)


async def cancel_notify(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        await c.call("queue_declare", at.name(), exclusive=True)
        _, on_message = c.queue()
        gone, on_cancel = c.queue()
        c.do("add_on_cancel_callback", on_cancel)
        await c.call("basic_consume", at.name(), on_message)
        await c.call("queue_delete", at.name())
        await asyncio.wait_for(gone.get(), PATIENCE)

    await _with(at, case)


async def tx_commit(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        await c.call("queue_declare", at.name(), exclusive=True)
        await c.call("tx_select")
        c.do("basic_publish", "", at.name(), b"one")
        await c.call("tx_commit")
        ok = await c.call("queue_declare", at.name(), passive=True)
        expect(ok.method.message_count, 1)

    await _with(at, case)


async def tx_rollback(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        await c.call("queue_declare", at.name(), exclusive=True)
        await c.call("tx_select")
        c.do("basic_publish", "", at.name(), b"one")
        await c.call("tx_rollback")
        ok = await c.call("queue_declare", at.name(), passive=True)
        expect(ok.method.message_count, 0)

    await _with(at, case)


async def not_found(at: Place) -> None:
    async def case(c: Callbacks) -> None:
        came, on_close = c.queue()
        c.do("add_on_close_callback", on_close)
        c.do("queue_declare", "missing", passive=True)
        _, reason = await asyncio.wait_for(came.get(), PATIENCE)
        expect(reason.reply_code, 404)

    await _with(at, case)
