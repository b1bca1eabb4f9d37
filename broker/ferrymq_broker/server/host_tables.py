"""Entries of the broker's own tables for what clients of other brokers expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ferrymq_broker.management.dialect import ManagementDialect
from ferrymq_broker.server.http_handlers import HttpHandlerFactory, HttpHandlers, HttpHost
from ferrymq_broker.server.new_connection import HandlerFactory

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.config.url import ListenAddress
    from ferrymq_broker.connections.authentication import ClientTransport
    from ferrymq_broker.management.live import LiveKeepers
    from ferrymq_broker.management.manager import Manager
    from ferrymq_broker.security.request_tokens import RequestTokens


@dataclass(frozen=True, slots=True)
class HostTables:
    """Entries that a package adds to the tables of the broker.

    `dialects` are for the management node. `position_words` are constants that mean the start or
    the end of a stream if a selector compares an offset with them. `signature_types` are names of
    shared access signatures for ``$cbs``. `websocket_paths` are paths of requests without a slash
    at the end, in lower case; `websocket_subprotocols` are accepted beside ``amqp``.
    `max_frame_size` is the largest frame in bytes that opens offer if the configuration does not
    say; 0: the usual one. `http_handlers` make handlers of HTTP requests, by the beginning of the
    path; ``""`` is for all paths. `http_logins` are those of these beginnings whose requests come
    with a name and a password, `http_files` those with the same answers for every virtual host.
    `protocols` make the handlers of connections that do not begin with
    AMQP 1.0, by their first eight bytes.
    """

    dialects: tuple[ManagementDialect, ...] = ()
    position_words: Mapping[object, int] = field(default_factory=dict)
    signature_types: tuple[str, ...] = ()
    websocket_paths: tuple[str, ...] = ()
    websocket_subprotocols: tuple[str, ...] = ()
    http_handlers: Mapping[str, HttpHandlerFactory] = field(default_factory=dict)
    http_logins: tuple[str, ...] = ()
    http_files: tuple[str, ...] = ()
    max_frame_size: int = 0
    protocols: Mapping[bytes, HandlerFactory] = field(default_factory=dict)

    def joined(self, more: HostTables) -> HostTables:
        """Return these entries and `more`."""
        return HostTables(
            dialects=self.dialects + more.dialects,
            position_words={**self.position_words, **more.position_words},
            signature_types=self.signature_types + more.signature_types,
            websocket_paths=self.websocket_paths + more.websocket_paths,
            websocket_subprotocols=self.websocket_subprotocols + more.websocket_subprotocols,
            http_handlers={**self.http_handlers, **more.http_handlers},
            http_logins=self.http_logins + more.http_logins,
            http_files=self.http_files + more.http_files,
            max_frame_size=max(self.max_frame_size, more.max_frame_size),
            protocols={**self.protocols, **more.protocols},
        )

    def add_words(self, broker: Broker) -> None:
        """Add the position words to every virtual host. Must be called before recovery, because
        stored filters have these words."""
        for space in broker.spaces.values():
            space.position_words.update(self.position_words)

    def mount(
        self,
        broker: Broker,
        handlers: HttpHandlers,
        tokens: Callable[[AddressSpace], RequestTokens | None],
        needs_login: Callable[[ClientTransport], bool],
        users: Callable[[], Mapping[str, frozenset[str]]],
        addresses: Callable[[], Sequence[ListenAddress]],
        managers: Mapping[str, Manager],
        keepers: LiveKeepers,
    ) -> None:
        """Mount the HTTP handlers in every virtual host, whose requests `tokens` judges.
        The others are those of `HttpHost`."""
        for space in broker.spaces.values():
            for prefix, make in self.http_handlers.items():
                host = HttpHost(
                    space,
                    broker,
                    tokens(space),
                    needs_login,
                    users,
                    addresses,
                    managers,
                    keepers,
                )
                handlers.mount(
                    space.name,
                    prefix,
                    make(host),
                    prefix in self.http_logins,
                    prefix in self.http_files,
                )
