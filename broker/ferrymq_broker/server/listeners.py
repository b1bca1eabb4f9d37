"""The sockets that clients connect to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.server.acceptor import Acceptor
from ferrymq_broker.server.protocol import UpgradableProtocol

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

# Connections that the kernel completes before the server accepts them.
BACKLOG: Final = 1024


class Running(Protocol):
    """A listener that has started."""

    @property
    def addresses(self) -> Sequence[ListenAddress]:
        """The actual addresses."""
        ...

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        ...

    async def wait_closed(self) -> None:
        """Wait until the listener is closed and its connections have ended."""
        ...


class Listeners:
    """All listeners of one server. `addresses` has their actual addresses."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._running: list[Running] = []
        self.addresses: list[ListenAddress] = []

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Start all listeners. Raises `OSError` if one cannot listen on its address."""
        for listener in listeners:
            if listener.address.is_websocket:
                running = await self._start_websocket(listener)
            elif listener.address.is_any:
                running = await self._start_any(listener)
            else:
                running = await start_amqp(self._server, listener)
            self._running.append(running)
            self.addresses += running.addresses

    async def _start_websocket(self, listener: Listener) -> Running:
        # Imported only when needed, because importing an HTTP server takes a while.
        from ferrymq_broker.server.websocket import start_websocket

        return await start_websocket(self._server, listener)

    async def _start_any(self, listener: Listener) -> Running:
        from ferrymq_broker.server.any_listener import start_any

        return await start_any(self._server, listener)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        for running in self._running:
            running.close()

    async def wait_closed(self) -> None:
        """Wait until all listeners are closed and their connections have ended."""
        for running in self._running:
            await running.wait_closed()


class AmqpListener:
    """A listener for AMQP over TCP, with or without TLS."""

    def __init__(self, server: Acceptor, address: ListenAddress) -> None:
        self._server = server
        self.addresses: list[ListenAddress] = server.addresses(address)

    def close(self) -> None:
        """Accept no more connections; existing ones stay."""
        self._server.close()

    async def wait_closed(self) -> None:
        """Wait until the listener is closed and its connections have ended."""
        await self._server.wait_closed()


async def start_amqp(server: BrokerServer, listener: Listener) -> AmqpListener:
    """Listen for AMQP over TCP. Raises `OSError` if it cannot listen on the address."""
    address = listener.address
    loopback = address.is_loopback
    make: Callable[[], asyncio.BaseProtocol]
    if address.is_secure:
        make = partial(server.new_protocol, loopback, server.tls.files_for(listener.tls))
    elif listener.upgrade_tls != "off":
        files = server.tls.files_for(listener.tls)
        make = partial(UpgradableProtocol, server, loopback, files, listener.upgrade_tls)
    else:
        make = partial(server.new_protocol, loopback)
    sockets = await server.listen(listener, BACKLOG)
    return AmqpListener(Acceptor(sockets, make, server.connection_limits), address)
