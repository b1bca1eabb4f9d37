"""A proxy between clients and a broker, which prints the frames of both directions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time
from collections.abc import Callable, Iterable

from ferrymq.errors import TransportError
from ferrymq.tracing.rendering import safe
from ferrymq.tracing.trace import Trace
from ferrymq.url import Url
from ferrymq_broker.cli.error_messages import reason_of
from ferrymq_broker.cli.trace.dumps import BACK, OUT
from ferrymq_broker.cli.trace.upstream import PIECE, reach
from ferrymq_broker.config.url import ListenAddress


class Proxy:
    """A proxy that accepts connections without TLS at `listen`, and connects them with `to`, with
    `tls` if given.

    `run` ends after `count` lines, or never. Raises `OSError` if it cannot listen, and ValueError
    for a scheme that it does not support.
    """

    def __init__(
        self,
        listen: ListenAddress,
        to: Url,
        tls: ssl.SSLContext | None,
        count: int | None,
        full: bool,
        as_json: bool,
    ) -> None:
        if listen.scheme != "amqp":
            raise ValueError(f"{listen.url}: a trace listens without TLS; use amqp://HOST:PORT")
        if to.username is not None:
            raise ValueError(
                f"{to}: a trace does not log in, its clients do: remove the user from the URL"
            )
        self._listen = listen
        self._to = to
        self._full = full
        self._as_json = as_json
        self._left = count
        self._done = asyncio.Event()
        self._connections = 0
        self._write: Callable[[str], None] = print
        self._tls = tls

    async def run(self, write: Callable[[str], None]) -> None:
        """Run the proxy, and `write` lines until there have been enough."""
        self._write = write
        tasks: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self._connection(reader, writer)
            finally:
                tasks.discard(task)

        server = await asyncio.start_server(
            serve, self._listen.host, self._listen.port, limit=PIECE
        )
        host, port = server.sockets[0].getsockname()[:2]
        at = ListenAddress(host, port).url
        sys.stderr.write(f"ferrymq: {at} is passed on to {self._to}\n")
        sys.stderr.flush()
        async with server:
            await self._done.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(
        self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        self._connections += 1
        label = str(self._connections)
        told = Trace(label, self._full, self._as_json)
        try:
            broker, to_broker = await reach(self._to, self._tls)
        except (OSError, TransportError) as error:
            reason = f"the broker cannot be reached: {reason_of(error)}"
            self._say([self._failure(label, reason)])
            to_client.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(told, OUT, client, to_broker))
                both.create_task(self._pass_on(told, BACK, broker, to_client))
        finally:
            self._say(told.finish(time.time()))
            self._say([self._failure(label, "closed", "event")])
            to_client.close()
            to_broker.close()

    async def _pass_on(
        self, told: Trace, arrow: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        # The end of the stream shows that one side is gone, whatever the error.
        with contextlib.suppress(OSError):
            while data := await source.read(PIECE):
                self._say(told.feed(arrow, data, time.time()))
                sink.write(data)
                await sink.drain()
        with contextlib.suppress(OSError, RuntimeError):
            if sink.can_write_eof():
                sink.write_eof()
            else:
                # TLS cannot close only one direction.
                sink.close()

    def _failure(self, label: str, reason: str, kind: str = "error") -> str:
        if self._as_json:
            return json.dumps({"connection": label, kind: reason})
        return f"{label} {'! ' if kind == 'error' else ''}{safe(reason)}"

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            if self._left == 0:
                continue
            self._write(line)
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    self._done.set()
