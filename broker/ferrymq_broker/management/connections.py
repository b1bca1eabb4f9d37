"""Connections, sessions and links: reading their attributes, and closing connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from ferrymq.engine.link import Link
from ferrymq.engine.session import Session
from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.entity import EntityType, IndexedType, Show, deleted
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.management.traces import ARGUMENTS, TRACE, ConnectionTraces
from ferrymq_broker.values.rights import MANAGE
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

T = TypeVar("T")

_SIMPLE: Final = (str, int, float, bytes, UUID)
_SHOWN: Final = 200


class _OfConnections(IndexedType[T]):
    """Entities of connections. Their identities begin with the number of the connection.

    A client may read its own connection, and close it; other connections need the right to manage.
    """

    def authorise(self, operation: str, call: Call) -> None:
        """Allow a party its own connection; others need the right to manage."""
        if not _is_own(call.meant(), call.party):
            super().authorise(operation, call)

    def visible(self, party: Party) -> list[str]:
        """Return the identities of the party's own connection, or with the right to manage all."""
        if party.access.permits(MANAGE, ADDRESS):
            return self.identities()
        return list(self.entries_of(str(party.connection)))

    def entries(self) -> dict[str, T]:
        """Return the entities of all connections of the virtual host, oldest connection first."""
        return self.entries_of("")

    def entries_of(self, connection: str) -> dict[str, T]:
        """Return the entities of one connection, by its number, or of all if the number is empty. A
        request for one connection need not go through all."""
        return {}

    def shower(self, identities: list[str]) -> Show:
        """Return the function that shows each of these entities."""
        numbers = {identity.partition("/")[0] for identity in identities}
        return self.shower_of(self.entries_of(numbers.pop() if len(numbers) == 1 else ""))


def _is_own(identity: str, party: Party) -> bool:
    return identity.partition("/")[0] == str(party.connection)


class ConnectionEntities(_OfConnections[ClientHandler]):
    """The connections of the virtual host, by their numbers."""

    short = "connection"
    attributes: tuple[str, ...] = (
        "name",
        "peer",
        "container-id",
        "user",
        "virtual-host",
        "protocol",
        "hostname",
        "sessions",
        "links",
        "channels",
        "blocked",
        "max-frame-size",
        "channel-max",
        "idle-time-out",
        "properties",
    )

    def __init__(
        self, broker: Broker, space: AddressSpace, traces: ConnectionTraces | None = None
    ) -> None:
        self.broker = broker
        self.space = space
        self._traces = traces

    def operations(self) -> dict[str, Operation]:
        """Return READ, DELETE, and TRACE if connections can be traced."""
        operations = {
            "READ": Operation(self.read),
            "DELETE": Operation(self.delete, ("reason",)),
        }
        if self._traces is not None:
            operations[TRACE] = Operation(self.trace, ARGUMENTS)
        return operations

    def authorise(self, operation: str, call: Call) -> None:
        """Allow a party its own connection, but not to trace it: its requests would be traced
        too."""
        if operation == TRACE:
            EntityType.authorise(self, operation, call)
        else:
            super().authorise(operation, call)

    def trace(self, call: Call) -> Steps[Result]:
        """Handle TRACE: return the frames that passed since the last request with this `trace`; a
        request without one begins a trace."""
        identity = call.required_name()
        handler = self.entries_of(identity).get(identity)
        if handler is None:
            raise self.missing(identity)
        assert self._traces is not None
        return self._traces.trace(call, int(handler.client.id))

    def entries_of(self, connection: str) -> dict[str, ClientHandler]:
        """Return all connections of the virtual host, oldest first, or one of them."""
        if connection:
            for handler in self.broker.handlers:
                if str(handler.client.id) == connection and handler.client.space is self.space:
                    return {connection: handler}
            return {}
        return {
            str(handler.client.id): handler
            for handler in self.broker.handlers
            if handler.client.space is self.space
        }

    def describe(self, entry: ClientHandler) -> dict[str, object]:
        """Return the attributes of a connection."""
        attributes: dict[str, object] = {"sessions": None, "links": None, "channels": None}
        attributes.update(entry.describe())
        attributes["peer"] = entry.client.peer
        attributes["user"] = entry.client.user
        attributes["virtual-host"] = self.space.name
        attributes["blocked"] = entry.output.blocked
        attributes["properties"] = _plain(attributes.get("properties"))
        return attributes

    def delete(self, call: Call) -> Result:
        """Handle DELETE: close a connection with ``amqp:connection:forced``, after the answer."""
        call.expect_only("reason")
        identity = call.required_name()
        reason = call.text("reason", "closed by management")
        handler = self.entries_of(identity).get(identity)
        if handler is None:
            raise self.missing(identity)
        self.broker.soon(_Closing(self.broker, handler, reason).run)
        return deleted()


class _Closing:
    """A connection to be closed in a pass of its own."""

    def __init__(self, broker: Broker, handler: ClientHandler, reason: str) -> None:
        self._broker = broker
        self._handler = handler
        self._reason = reason

    def run(self) -> None:
        handler = self._handler
        if handler in self._broker.handlers:
            error = Error(condition="amqp:connection:forced", description=self._reason)
            handler.close(error, self._broker.clock.now)


class SessionEntities(_OfConnections[tuple[ClientHandler, Session]]):
    """The sessions, as CONNECTION/CHANNEL, with the broker's channel."""

    short = "session"
    attributes: tuple[str, ...] = (
        "name",
        "connection",
        "channel",
        "remote-channel",
        "links",
        "incoming-window",
        "remote-incoming-window",
        "handle-max",
    )

    def __init__(self, connections: ConnectionEntities) -> None:
        self._connections = connections

    def entries_of(self, connection: str) -> dict[str, tuple[ClientHandler, Session]]:
        """Return the sessions by connection and channel."""
        return {
            f"{handler.client.id}/{session.channel}": (handler, session)
            for handler in self._connections.entries_of(connection).values()
            for session in sessions_of(handler)
        }

    def describe(self, entry: tuple[ClientHandler, Session]) -> dict[str, object]:
        """Return the attributes of a session."""
        handler, session = entry
        remote = session.remote_begin
        return {
            "connection": str(handler.client.id),
            "channel": int(session.channel),
            "remote-channel": int(session.remote_channel),
            "links": len(session.links),
            "incoming-window": int(session.incoming.window),
            "remote-incoming-window": int(session.outgoing.remote_window),
            "handle-max": None if remote is None else remote.handle_max,
        }


class LinkEntities(_OfConnections[tuple[ClientHandler, Link]]):
    """The links, as CONNECTION/CHANNEL/ROLE/NAME; ROLE is the client's, sender or receiver."""

    short = "link"
    attributes: tuple[str, ...] = (
        "name",
        "connection",
        "session",
        "role",
        "address",
        "source",
        "target",
        "credit",
        "delivery-count",
        "snd-settle-mode",
        "rcv-settle-mode",
        "max-message-size",
        "paired",
        "properties",
    )

    def __init__(self, connections: ConnectionEntities) -> None:
        self._connections = connections

    def entries_of(self, connection: str) -> dict[str, tuple[ClientHandler, Link]]:
        """Return the links by connection, channel, role and name."""
        found: dict[str, tuple[ClientHandler, Link]] = {}
        for handler in self._connections.entries_of(connection).values():
            for session in sessions_of(handler):
                named = {_link_identity(handler, link): link for link in session.links.values()}
                for identity in sorted(named):
                    found[identity] = (handler, named[identity])
        return found

    def describe(self, entry: tuple[ClientHandler, Link]) -> dict[str, object]:
        """Return the attributes of a link."""
        return _link_attributes(*entry)


def sessions_of(handler: ClientHandler) -> list[Session]:
    """Return the sessions of a connection by channel; none if its protocol has no sessions."""
    if not isinstance(handler, ConnectionHandler):
        return []
    return [session for _, session in sorted(handler.connection.channels.by_local.items())]


def _link_identity(handler: ClientHandler, link: Link) -> str:
    role = "receiver" if link.is_sender else "sender"
    return f"{handler.client.id}/{link.session.channel}/{role}/{link.name}"


def _link_attributes(handler: ClientHandler, link: Link) -> dict[str, object]:
    source = link.source.address if isinstance(link.source, Source) else None
    target = link.target.address if isinstance(link.target, Target) else None
    attach = link.remote_attach
    return {
        "name": link.name,
        "connection": str(handler.client.id),
        "session": f"{handler.client.id}/{link.session.channel}",
        "role": "receiver" if link.is_sender else "sender",
        "address": source if link.is_sender else target,
        "source": source,
        "target": target,
        "credit": int(link.credit),
        "delivery-count": int(link.delivery_count),
        "snd-settle-mode": link.snd_settle_mode.name.lower(),
        "rcv-settle-mode": link.rcv_settle_mode.name.lower(),
        "max-message-size": int(link.remote_max_message_size),
        "paired": link.paired,
        "properties": None if attach is None else _plain(attach.properties),
    }


def _plain(properties: object) -> dict[str, object] | None:
    """Return the properties with text in place of maps and lists, because a client may nest these
    so deeply that they fit into no answer."""
    if not isinstance(properties, dict):
        return None
    return {
        key: value if value is None or isinstance(value, _SIMPLE) else repr(value)[:_SHOWN]
        for key, value in properties.items()
    }
