"""A connection that another worker has passed to this one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrymq_broker.connections.authentication import Authenticator, ClientTransport, Login
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.event_log import log
from ferrymq_broker.server.protocol import AmqpProtocol
from ferrymq_broker.server.workers.passed_connection import AMQP, PassedConnection

if TYPE_CHECKING:
    from ferrymq.engine.scram import ScramKeys
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.server.server import BrokerServer


class AdoptedProtocol(AmqpProtocol):
    """A connection whose client has logged in at another worker.

    The handler begins with the bytes that the client has sent there. What it writes first is what
    the client has got already, so that is thrown away.
    """

    def __init__(self, server: BrokerServer, passed: PassedConnection) -> None:
        super().__init__(server, passed.loopback)
        self._login = passed
        self._known = passed.sent
        # It is where it belongs.
        self._end_record()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the connection as if it were new, and what the client has sent."""
        super().connection_made(transport)
        self.driver.receive(self._login.received)

    def _client_transport(self, transport: asyncio.BaseTransport) -> ClientTransport:
        return self._login.transport()

    def _new_handler(self, client: ClientTransport) -> ClientHandler:
        return self._server.new_handler(
            client, self._writer(), self._hang_up, self._began, self._authenticator(client)
        )

    def _authenticator(self, client: ClientTransport) -> Authenticator:
        real = self._server.admission.authenticator_for(client)
        # After a login with SASL the client begins anew with AMQP.
        again = not self._login.received.startswith(AMQP)
        return _LoggedIn(self._login.identity(), real, real.mechanisms(client) if again else [])

    def _writer(self) -> Callable[[bytes], None]:
        return self._write

    def _pieces_writer(self) -> Callable[[list[bytes | memoryview]], None]:
        return self._write_pieces

    def _write_pieces(self, pieces: list[bytes | memoryview]) -> None:
        if self._known:
            self._write(b"".join(pieces))
        else:
            self.driver.write_pieces(pieces)

    def _write(self, data: bytes) -> None:
        known = self._known
        if known:
            size = min(len(known), len(data))
            if data[:size] != known[:size]:
                log.error("a connection was passed by a different version", peer=self._login.peer)
                self.abort()
                return
            self._known = known[size:]
            data = data[size:]
            if not data:
                return
        self.driver.write(data)


class _LoggedIn(Authenticator):
    """An authenticator that takes the client for who it is, once. `real` decides on everything that
    comes later, such as a new secret."""

    def __init__(self, identity: UserIdentity, real: Authenticator, mechanisms: list[str]) -> None:
        self._identity: UserIdentity | None = identity
        self._silent = identity
        self._real = real
        self._mechanisms = mechanisms

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        """Return the SASL mechanisms that the client has been offered in this protocol."""
        return self._mechanisms

    def is_required(self, transport: ClientTransport) -> bool:
        """Return whether the client must log in again in this protocol."""
        return bool(self._mechanisms)

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """See `Authenticator.scram_keys`."""
        return self._real.scram_keys(mechanism, username)

    def authenticate(self, login: Login) -> None:
        """Accept the login that has been decided on; decide on later ones."""
        identity, self._identity = self._identity, None
        if identity is None:
            self._real.authenticate(login)
        else:
            login.repeated = True
            login.decide(identity)

    def is_held_off(self, transport: ClientTransport, username: str | None) -> bool:
        """See `Authenticator.is_held_off`."""
        return self._real.is_held_off(transport, username)

    def login_failed(self, transport: ClientTransport, username: str | None) -> None:
        """See `Authenticator.login_failed`."""
        self._real.login_failed(transport, username)

    def silent(self, transport: ClientTransport) -> UserIdentity:
        """Return who the client is."""
        return self._silent
