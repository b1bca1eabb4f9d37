"""A relay for TCP connections that can behave like a bad network."""

from __future__ import annotations

import asyncio
import socket
from collections import deque


class TcpProxy:
    """Relays connections from a port of its own to another one on 127.0.0.1.

    While bytes are held, they wait in the buffers of the kernel, as they would wait at the sender
    behind a network that drops all packets; they arrive after the release. `delay` is in seconds,
    for each direction.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.delay = 0.0
        self.holds_requests = False
        self.holds_answers = False
        self._refuses = False
        # The bytes of requests after which the next connection is cut.
        self._cut_after: int | None = None
        self._released = asyncio.Event()
        self._released.set()
        self._relays: set[_Relay] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Relay(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End all connections and listen no more."""
        for task in self._tasks:
            task.cancel()
        self.reset()
        if self._server is not None:
            self._server.close()

    # -- the network ---------------------------------------------------------------------------

    def hold(self, *, requests: bool = True, answers: bool = True) -> None:
        """Hold what comes from the clients, what comes from the target, or both. New connections
        are held in any case."""
        self.holds_requests, self.holds_answers = requests, answers
        self._released.clear()
        for relay in self._relays:
            relay.follow_proxy()

    def release(self, *, reset: bool = False) -> None:
        """Hold nothing any more; with `reset`, all connections end, and what was held is lost."""
        self.holds_requests = self.holds_answers = False
        if reset:
            self.reset()
        self._released.set()
        for relay in self._relays:
            relay.follow_proxy()

    def refuse(self, on: bool) -> None:
        """End all connections, and each new one at once, until told otherwise."""
        self._refuses = on
        if on:
            self.reset()

    def reset(self) -> None:
        """End all connections."""
        for relay in list(self._relays):
            relay.end()

    def cut_within(self, size: int) -> None:
        """Let so many bytes of the next request through, and end the connection."""
        self._cut_after = size

    # -- for the relays ------------------------------------------------------------------------

    def add(self, relay: _Relay) -> None:
        """Connect a new relay to the target."""
        if self._refuses:
            relay.end()
            return
        self._relays.add(relay)
        task = asyncio.get_running_loop().create_task(self._connect(relay))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, relay: _Relay) -> None:
        await self._released.wait()
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: relay.target, "127.0.0.1", self.target)
        except OSError:
            relay.end()

    def discard(self, relay: _Relay) -> None:
        """Forget a relay that has ended."""
        self._relays.discard(relay)

    def allowed(self, data: bytes) -> bytes | None:
        """Return what may pass of a request before the connection is cut; None for everything."""
        if self._cut_after is None:
            return None
        if len(data) < self._cut_after:
            self._cut_after -= len(data)
            return None
        allowed, self._cut_after = data[: self._cut_after], None
        return allowed


class _Side(asyncio.Protocol):
    """One end of a relay; what it receives leaves at `peer`."""

    def __init__(self, relay: _Relay, is_client: bool) -> None:
        self.relay = relay
        self.is_client = is_client
        self.transport: asyncio.Transport | None = None
        self.peer: _Side | None = None
        self._late: deque[tuple[float, bytes]] = deque()
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        made = transport.get_extra_info("socket")
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.relay.on_made(self)

    def data_received(self, data: bytes) -> None:
        proxy = self.relay.proxy
        if self.is_client and (allowed := proxy.allowed(data)) is not None:
            self._write(allowed)
            self.relay.end(flush=True)
        elif proxy.delay or self._late:
            loop = asyncio.get_running_loop()
            due = loop.time() + proxy.delay
            if self._late:
                due = max(due, self._late[-1][0])
            self._late.append((due, data))
            loop.call_at(due, self._write_late)
        else:
            self._write(data)

    def _write_late(self) -> None:
        if self._late:
            self._write(self._late.popleft()[1])

    def _write(self, data: bytes) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.relay.end(flush=error is None)

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.set_full(True)

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.set_full(False)

    def set_full(self, on: bool) -> None:
        """Read no more while the other end does not take what it gets."""
        self._is_full = on
        self.follow_proxy()

    def follow_proxy(self) -> None:
        """Read or do not read, as the proxy says."""
        transport, proxy = self.transport, self.relay.proxy
        if transport is None or transport.is_closing():
            return
        held = proxy.holds_requests if self.is_client else proxy.holds_answers
        if held or self._is_full or not self.relay.is_whole:
            transport.pause_reading()
        else:
            transport.resume_reading()


class _Relay(_Side):
    """A connection through the proxy: its client's end, which knows the `target`'s."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        super().__init__(self, is_client=True)
        self.target = _Side(self, is_client=False)
        self.peer, self.target.peer = self.target, self

    @property
    def is_whole(self) -> bool:
        """Whether both ends are connected."""
        return self.transport is not None and self.target.transport is not None

    def on_made(self, side: _Side) -> None:
        """Handle that an end is connected."""
        if side is self:
            self.proxy.add(self)
        elif self.transport is None or self.transport.is_closing():
            self.end()
        self.follow_proxy()
        self.target.follow_proxy()

    def follow_proxy(self) -> None:
        super().follow_proxy()
        if self.target.transport is not None and not self.target.transport.is_closing():
            _Side.follow_proxy(self.target)

    def end(self, *, flush: bool = False) -> None:
        """End the connection at both ends; with `flush`, after what was written before."""
        self.proxy.discard(self)
        for side in (self, self.target):
            if side.transport is None:
                continue
            if flush:
                side.transport.close()
            else:
                side.transport.abort()
