"""The sockets that clients connect to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.server.acceptor import Acceptor, bind
from ferrymq_broker.server.protocol import AmqpProtocol, UpgradableProtocol

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

# Connections the kernel completes before we accept them.
BACKLOG: Final = 1024


class Running(Protocol):
    """A listener that listens."""

    @property
    def addresses(self) -> Sequence[ListenAddress]:
        """What is really listened on."""
        ...

    def close(self) -> None:
        """Take no more connections; those there are stay."""
        ...

    async def wait_closed(self) -> None:
        """Until it is closed, and all its connections gone."""
        ...


class Listeners:
    """All listeners of one server. `addresses` holds what is really listened on."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._running: list[Running] = []
        self.addresses: list[ListenAddress] = []

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Listen on all of them. Raises `OSError` if an address cannot be had."""
        for listener in listeners:
            if listener.address.is_websocket:
                running = await self._start_websocket(listener)
            else:
                running = await start_amqp(self._server, listener)
            self._running.append(running)
            self.addresses += running.addresses

    async def _start_websocket(self, listener: Listener) -> Running:
        # An HTTP server takes a while to import: who does not want it does not wait.
        from ferrymq_broker.server.websocket import start_websocket

        return await start_websocket(self._server, listener)

    def close(self) -> None:
        """Take no more connections; those there are stay."""
        for running in self._running:
            running.close()

    async def wait_closed(self) -> None:
        """Until they are closed, and all their connections gone."""
        for running in self._running:
            await running.wait_closed()


class AmqpListener:
    """A listener for AMQP over TCP, with or without TLS."""

    def __init__(self, server: Acceptor, address: ListenAddress) -> None:
        self._server = server
        self.addresses = server.addresses(address)

    def close(self) -> None:
        """Take no more connections; those there are stay."""
        self._server.close()

    async def wait_closed(self) -> None:
        """Until it is closed, and all its connections gone."""
        await self._server.wait_closed()


async def start_amqp(server: BrokerServer, listener: Listener) -> AmqpListener:
    """Listen for AMQP over TCP. Raises `OSError` if the address cannot be had."""
    address = listener.address
    loopback = address.is_loopback
    make: Callable[[], asyncio.BaseProtocol]
    if address.is_secure:
        make = partial(AmqpProtocol, server, loopback, server.tls.files_for(listener.tls))
    elif listener.upgrade_tls != "off":
        files = server.tls.files_for(listener.tls)
        make = partial(UpgradableProtocol, server, loopback, files, listener.upgrade_tls)
    else:
        make = partial(AmqpProtocol, server, loopback)
    sockets = await bind(address.host, address.port, BACKLOG)
    return AmqpListener(Acceptor(sockets, make, server.connection_limits), address)
