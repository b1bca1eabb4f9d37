"""Admission: making the handlers of new connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ferrymq import __version__
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_broker.broker import Broker
from ferrymq_broker.config.model import Config
from ferrymq_broker.connections.authentication import Authenticator, ClientTransport
from ferrymq_broker.connections.capabilities import OFFERED
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.connected_client import ConnectedClient
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.connections.login import AUTHENTICATED
from ferrymq_broker.security.authenticator_factory import make_authenticators
from ferrymq_broker.server.new_connection import HandlerFactory, NewConnection

if TYPE_CHECKING:
    from ferrymq_broker.security.authenticators import Authenticators
    from ferrymq_broker.security.tokens import TokenVerifier


class Admission:
    """The factory of handlers for one server's connections, by its configuration.

    `changed` is called with the names of users who have changed since they logged in. `verifier`
    checks tokens. `properties` are further ones for the broker's open. Raises `ConfigError` if a
    file that the configuration names cannot be used.
    """

    def __init__(
        self,
        config: Config,
        broker: Broker,
        changed: Callable[[set[str]], object],
        verifier: TokenVerifier | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        self._config = config
        self._broker = broker
        self._changed = changed
        self._verifier = verifier
        self._product: dict[str, object] = {
            "product": "ferrymq",
            "version": __version__,
            # Replaced after the login.
            AUTHENTICATED: False,
            **(properties or {}),
        }
        self.authenticators: Authenticators = self.make_authenticators(config)

    def make_authenticators(self, config: Config) -> Authenticators:
        """Return the authenticators of a configuration. Raises `ConfigError` if a file that it
        names cannot be used."""
        return make_authenticators(config.security, self._changed, verifier=self._verifier)

    def take(self, config: Config, authenticators: Authenticators | None = None) -> None:
        """Use another configuration for new connections, and other authenticators if they are
        given. Logins that are under way end with the earlier ones."""
        self._config = config
        if authenticators is not None:
            self.authenticators.retire()
            self.authenticators = authenticators

    def authenticator_for(self, transport: ClientTransport) -> Authenticator:
        """Return the authenticator for this client."""
        return self.authenticators

    def new_handler(
        self,
        transport: ClientTransport,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
        now: float,
        authenticator: Authenticator,
    ) -> ConnectionHandler:
        """Return a handler for a new connection."""
        config = self._config
        limits = config.limits
        settings = ConnectionSettings(
            container_id=config.container_id,
            initiator=False,
            max_frame_size=limits.max_frame_size,
            channel_max=limits.channel_max,
            handle_max=limits.handle_max,
            incoming_window=limits.incoming_window,
            idle_time_out=limits.idle_time_out or None,
            handshake_timeout=limits.handshake_timeout,
            close_timeout=limits.close_timeout,
            offered_capabilities=list(OFFERED),
            properties=self._product,
            sasl_mechanisms=authenticator.mechanisms(transport),
            sasl_required=authenticator.is_required(transport),
            # The handler refuses links above the limit. A client that does not answer the refusals
            # can have at most so many links again.
            max_links=2 * limits.links,
            max_unfinished=limits.unfinished_bytes(),
            unfinished=self._broker.unfinished,
            keeps_partial=False,
        )
        return ConnectionHandler(
            self._broker,
            settings,
            authenticator,
            transport,
            write,
            hang_up,
            now,
            limits.max_message_size,
            limits.credit,
        )

    def other_handler(
        self,
        make: HandlerFactory,
        client: ConnectedClient,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
        now: float,
        authenticator: Authenticator,
    ) -> ClientHandler:
        """Return the handler of another protocol for a client that has sent nothing but the first
        bytes."""
        limits = self._config.limits
        return make(NewConnection(self._broker, client, authenticator, limits, write, hang_up, now))
