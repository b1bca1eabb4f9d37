"""The sockets that clients connect to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.url import ListenAddress
from ferrymq_broker.server.protocol import AmqpProtocol

if TYPE_CHECKING:
    from ferrymq_broker.server.server import BrokerServer

# Connections the kernel completes before we accept them.
BACKLOG: Final = 1024


class Listeners:
    """All listeners of one server. `addresses` holds what is really listened on."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._sockets: list[asyncio.Server] = []
        self.addresses: list[ListenAddress] = []

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Listen on all of them. Raises `OSError` if an address cannot be had."""
        for listener in listeners:
            await self._listen(listener.address)

    async def _listen(self, address: ListenAddress) -> None:
        server = await asyncio.get_running_loop().create_server(
            partial(AmqpProtocol, self._server, address.is_loopback),
            address.host,
            address.port,
            backlog=BACKLOG,
        )
        self._sockets.append(server)
        names = [sock.getsockname() for sock in server.sockets]
        if len({name[1] for name in names}) == 1:
            self.addresses.append(ListenAddress(address.host, names[0][1]))
        else:
            # A host with several addresses got a free port for each of them.
            self.addresses += [ListenAddress(name[0], name[1]) for name in names]

    def close(self) -> None:
        """Take no more connections; those there are stay."""
        for server in self._sockets:
            server.close()

    async def wait_closed(self) -> None:
        """Until they are closed, and all their connections gone."""
        for server in self._sockets:
            await server.wait_closed()
