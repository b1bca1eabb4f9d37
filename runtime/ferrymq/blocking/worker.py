"""Workers for code that blocks: the handler is a plain function, called in threads."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from ferrymq import aio
from ferrymq.aio.worker import pause_before_next
from ferrymq.blocking.connection import Connection, connect
from ferrymq.blocking.links import Delivery, Receiver
from ferrymq.durations import Duration
from ferrymq.errors import AmqpError
from ferrymq.options import ReceiverArguments
from ferrymq.reconnect import ReconnectPolicy
from ferrymq.retries import RetryDelay, backoff, failures_of
from ferrymq.signals import on_end

# Seconds between two looks whether the worker was told to stop.
_LOOK_UP: Final = 0.1


class Worker:
    """Worker that handles the messages of a queue or subscription with a function.

        def handle(delivery: ferrymq.blocking.Delivery) -> None:
            print(delivery.message.body)

        ferrymq.blocking.Worker("amqp://localhost", "orders", handle).run()

    The arguments are those of `ferrymq.Worker`. The function is called in up to `concurrency`
    threads at once. A thread cannot be cancelled: when a message has taken longer than `timeout`,
    or the worker has stopped waiting for it, it is tried again, and the function goes on beside.
    """

    def __init__(
        self,
        connection: Connection | str | Sequence[str],
        address: str,
        handler: Callable[[Delivery], None],
        *,
        concurrency: int = 10,
        retries: int = 5,
        retry_delay: RetryDelay = backoff,
        timeout: Duration | None = None,
        grace: Duration = 30.0,
        receiver: ReceiverArguments | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(handler):
            raise TypeError("the handler is a coroutine function: use ferrymq.Worker for it")
        self._given = connection
        self._handler = handler
        self._connection: Connection | None = None
        self._face: Receiver | None = None
        self._threads = _Threads()
        self._behind = aio.Worker(
            "",
            address,
            self._handle,
            concurrency=concurrency,
            retries=retries,
            retry_delay=retry_delay,
            timeout=timeout,
            grace=grace,
            receiver=receiver,
        )

    def __repr__(self) -> str:
        return f"<blocking {repr(self._behind)[1:]}"

    @property
    def connection(self) -> Connection:
        """The connection, for handlers. Raises RuntimeError if the worker does not run."""
        if self._connection is None:
            raise RuntimeError("the worker does not run")
        return self._connection

    @staticmethod
    def attempt(delivery: Delivery) -> int:
        """Return the number of this attempt to handle the message, from 1 on."""
        return failures_of(delivery.message) + 1

    def run(self) -> None:
        """Handle messages until `stop` is called; see `ferrymq.Worker.run`."""
        if self._connection is not None:
            raise RuntimeError("the worker runs already")
        with ExitStack() as stack:
            stack.enter_context(on_end(self.stop))
            given = self._given
            if isinstance(given, Connection):
                self._connection = given
            else:
                connected = self._connect(given)
                if connected is None:
                    return
                self._connection = stack.enter_context(connected)
            connection = self._connection
            stack.callback(self._end)
            connection._portal.run(lambda: self._behind._run(connection._behind))

    def stop(self) -> None:
        """Tell the worker to stop; `run` returns when the handlers have ended. Any thread may call
        this, and a handler of a signal."""
        connection = self._connection
        if connection is None:
            self._behind.stop()
        else:
            connection._portal.soon(self._behind.stop)

    def _connect(self, url: str | Sequence[str]) -> Connection | None:
        """Connect, and wait for a broker that is not up yet. Returns None if the worker is told to
        stop meanwhile."""
        pauses = ReconnectPolicy().pauses()
        while True:
            try:
                return connect(url, reconnect=True)
            except (AmqpError, TimeoutError) as error:
                until = time.monotonic() + pause_before_next(url, error, pauses)
            while (left := until - time.monotonic()) > 0:
                if self._behind._stops:
                    self._behind._stops = 0
                    return None
                time.sleep(min(left, _LOOK_UP))

    def _end(self) -> None:
        self._connection = self._face = None
        self._threads.close()

    async def _handle(self, delivery: aio.Delivery) -> None:
        portal = self.connection._portal
        face = self._face
        if face is None or face._behind is not delivery.receiver:
            face = self._face = Receiver(portal, delivery.receiver)
        received = Delivery(face, delivery)
        # The thread has the context of this task, with its span.
        context = contextvars.copy_context()
        try:
            await self._threads.run(lambda: context.run(self._handler, received))
        finally:
            # The worker asks whether the handler has given an outcome.
            portal.batch.make()


class _Threads:
    """Threads that call functions. There are as many as have been needed at once; they do not keep
    the process alive."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Threads that wait for a call.
        self._idle = 0
        self._open = False

    async def run(self, function: Callable[[], object]) -> None:
        """Call a function in a thread and wait for its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def call() -> None:
            error: Exception | None = None
            try:
                function()
            except Exception as raised:
                error = raised
            except BaseException as raised:
                # SystemExit in a handler ends no event loop.
                error = RuntimeError(f"the handler raised {type(raised).__name__}")
                error.__cause__ = raised
            try:
                loop.call_soon_threadsafe(_finish, future, error)
            except RuntimeError:
                # The loop is closed: nobody waits for the function any longer.
                pass

        with self._lock:
            self._open = True
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._serve, name="ferrymq-worker", daemon=True).start()
        self._calls.put(call)
        await future

    def close(self) -> None:
        """End the threads that wait for a call, and those that are about to."""
        with self._lock:
            self._open = False
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._calls.put(None)

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            call()
            with self._lock:
                if not self._open:
                    return
                self._idle += 1


def _finish(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    else:
        future.set_exception(error)
