"""The acceptor of connections, which keeps to the limits.

The server of an event loop accepts every connection. When file descriptors run out, one event loop
closes clients' connections at once, another tries to accept in vain and logs each attempt; and the
store gets no descriptors either. Here a connection over a limit costs only one system call to
accept it and one to close it. While descriptors are short, nothing is accepted: new connections
wait in the kernel until another connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from ferrymq_broker import audit
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.event_log import log
from ferrymq_broker.server.connection_limits import ConnectionLimits
from ferrymq_broker.server.peer_address import place_of

# Connections accepted in a row, before existing connections are served.
BATCH: Final = 64
# Seconds before accepting is tried again when the system has refused, and between warnings.
RETRY: Final = 1.0
QUIET: Final = 60.0


async def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # A name with IPv4 and IPv6 addresses gets a socket for each.
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            try:
                listening.bind(where)
            except OSError as error:
                reason = error.strerror or str(error)
                raise OSError(
                    error.errno, f"cannot listen on {where[0]}:{port}: {reason}"
                ) from None
            listening.listen(backlog)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


class Acceptor:
    """An acceptor of connections on `sockets`, which makes a protocol for each with `factory`.

    The protocol has a place in `connection_limits`. The code that handles the end of the connection
    calls `connection_limits.leave`.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        connection_limits: ConnectionLimits,
    ) -> None:
        self.sockets = sockets
        self._factory = factory
        self._connection_limits = connection_limits
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        self._closed = False
        self._retry: asyncio.TimerHandle | None = None
        self._warned = -QUIET
        # Tasks that connect accepted sockets with their protocols.
        self._pending: set[asyncio.Task[None]] = set()
        self._resume()

    def addresses(self, asked: ListenAddress) -> list[ListenAddress]:
        """Return the actual addresses of the sockets, of which `asked` is in the configuration."""
        names = [listening.getsockname() for listening in self.sockets]
        if len({name[1] for name in names}) == 1:
            return [asked._replace(port=names[0][1])]
        # A host with several addresses and port 0 has a different port for each of them.
        return [asked._replace(host=name[0], port=name[1]) for name in names]

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        if self._closed:
            return
        self._closed = True
        self._stop()
        if self._retry is not None:
            self._retry.cancel()
        for listening in self.sockets:
            listening.close()

    async def wait_closed(self) -> None:
        """Wait until no accepted connection waits for its protocol."""
        while self._pending:
            await asyncio.wait(self._pending)

    # -- inside --------------------------------------------------------------------------

    def _resume(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self._closed and not self._accepting:
            self._accepting = True
            for listening in self.sockets:
                self._loop.add_reader(listening, self._accept, listening)

    def _stop(self) -> None:
        if self._accepting:
            self._accepting = False
            for listening in self.sockets:
                self._loop.remove_reader(listening)

    def _accept(self, listening: socket.socket) -> None:
        connection_limits = self._connection_limits
        for _ in range(BATCH):
            if not connection_limits.has_descriptors():
                self._stop()
                self._warn("all file descriptors for connections are in use")
                connection_limits.wait(self._resume)
                return
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._stop()
                self._warn(str(error))
                self._retry = self._loop.call_later(RETRY, self._resume)
                return
            self._hand_over(accepted, place_of(peer))

    def _warn(self, reason: str) -> None:
        now = self._loop.time()
        if now - self._warned >= QUIET:
            self._warned = now
            log.warning("accepting no connections for now", reason=reason)

    def _hand_over(self, accepted: socket.socket, host: str) -> None:
        protocol = self._factory()
        if not self._connection_limits.enter(protocol, host):
            audit.connection_refused(host, "too many connections")
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(protocol, accepted))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _connect(self, protocol: asyncio.BaseProtocol, accepted: socket.socket) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except BaseException as error:
            self._connection_limits.leave(protocol)
            with contextlib.suppress(OSError):
                accepted.close()
            if not isinstance(error, OSError):
                raise
            return
        if self._closed:
            # `close` was called before the transport existed.
            transport.abort()
