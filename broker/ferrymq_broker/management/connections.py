"""Connections, sessions and links: reading their attributes, closing connections, and detaching
links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.client_handler import ClientHandler
from ferrymq_broker.connections.shown_links import ShownLink, ShownSession, UnsettledCounts
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.entity import EntityType, IndexedType, Show, deleted
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.management.traces import ARGUMENTS, TRACE, ConnectionTraces
from ferrymq_broker.values.rights import MANAGE
from ferrymq_codec.scalars import Timestamp
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.nodes.link_terms import Party

T = TypeVar("T")

_SIMPLE: Final = (str, int, float, bytes, UUID)
_SHOWN: Final = 200
# Attributes of connections that only some protocols have.
_OF_PROTOCOLS: Final = ("sessions", "links", "channels", "consumers")


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
        "since",
        "mechanism",
        "tls-version",
        "product",
        "version",
        "sessions",
        "links",
        "channels",
        "consumers",
        "unsettled",
        "messages-received",
        "messages-sent",
        "received-rate",
        "sent-rate",
        "blocked",
        "throttled",
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
        client = entry.client
        identity = client.identity
        attributes: dict[str, object] = dict.fromkeys(_OF_PROTOCOLS)
        attributes.update(entry.describe())
        properties = _plain(attributes.get("properties"))
        told = properties or {}
        attributes.update(entry.traffic().describe())
        attributes["peer"] = client.peer
        attributes["user"] = client.user
        attributes["virtual-host"] = self.space.name
        attributes["since"] = Timestamp(int(client.since))
        attributes["mechanism"] = None if identity is None else identity.mechanism or None
        attributes["tls-version"] = client.transport.tls_version or None
        attributes["product"] = told.get("product")
        attributes["version"] = told.get("version")
        attributes["unsettled"] = int(entry.unsettled())
        throttle = client.throttle
        attributes["blocked"] = entry.output.blocked
        attributes["throttled"] = throttle is not None and throttle.is_throttled()
        attributes["properties"] = properties
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
        return deleted(f"closed: {reason}")


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


class SessionEntities(_OfConnections[ShownSession]):
    """The sessions, as CONNECTION/CHANNEL, with the broker's channel; channels of AMQP 0-9-1 are
    shown as sessions."""

    short = "session"
    attributes: tuple[str, ...] = (
        "name",
        "connection",
        "channel",
        "remote-channel",
        "links",
        "unsettled",
        "incoming-window",
        "remote-incoming-window",
        "handle-max",
        "prefetch",
        "total-prefetch",
        "confirms",
        "transactional",
    )

    def __init__(self, connections: ConnectionEntities) -> None:
        self._connections = connections

    def entries_of(self, connection: str) -> dict[str, ShownSession]:
        """Return the sessions by connection and channel."""
        return {
            session.identity(): session
            for handler in self._connections.entries_of(connection).values()
            for session in sessions_of(handler)
        }

    def describe(self, entry: ShownSession) -> dict[str, object]:
        """Return the attributes of a session; None for those that its protocol does not have."""
        return {**dict.fromkeys(self.attributes), "name": entry.identity(), **entry.describe()}


class LinkEntities(_OfConnections[ShownLink]):
    """The links, as CONNECTION/CHANNEL/ROLE/NAME; ROLE is the client's, sender or receiver.
    Consumers of AMQP 0-9-1 are shown as links."""

    short = "link"
    attributes: tuple[str, ...] = (
        "name",
        "connection",
        "session",
        "role",
        "address",
        "source",
        "target",
        "user",
        "peer",
        "credit",
        "prefetch",
        "delivery-count",
        "unsettled",
        "messages",
        "rate",
        "snd-settle-mode",
        "rcv-settle-mode",
        "max-message-size",
        "paired",
        "properties",
    )

    def __init__(self, connections: ConnectionEntities) -> None:
        self._connections = connections

    def operations(self) -> dict[str, Operation]:
        """Return READ and DELETE."""
        return {"READ": Operation(self.read), "DELETE": Operation(self.delete, ("reason",))}

    def entries_of(self, connection: str) -> dict[str, ShownLink]:
        """Return the links by connection, channel, role and name."""
        found: dict[str, ShownLink] = {}
        for handler in self._connections.entries_of(connection).values():
            links = links_of(handler)
            links.sort(key=lambda link: (int(link.channel), link.identity()))
            for link in links:
                found[link.identity()] = link
        return found

    def shower_of(self, entries: dict[str, ShownLink]) -> Show:
        """Return a function that shows these links by identity."""
        counts = UnsettledCounts()

        def show(identity: str) -> dict[str, object] | None:
            entry = entries.get(identity)
            return None if entry is None else describe_link(entry, counts)

        return show

    def delete(self, call: Call) -> Result:
        """Handle DELETE: detach a link with ``amqp:link:detach-forced``, after the answer."""
        call.expect_only("reason")
        identity = call.required_name()
        reason = call.text("reason", "detached by management")
        link = self.entries_of(identity.partition("/")[0]).get(identity)
        if link is None:
            raise self.missing(identity)
        broker = self._connections.broker
        broker.soon(_Detaching(broker, link, reason).run)
        return deleted(f"detached: {reason}")


class _Detaching:
    """A link to be detached in a pass of its own."""

    def __init__(self, broker: Broker, link: ShownLink, reason: str) -> None:
        self._broker = broker
        self._link = link
        self._reason = reason

    def run(self) -> None:
        self._link.end(self._reason)
        self._broker.finish_pass()


def sessions_of(handler: ClientHandler) -> list[ShownSession]:
    """Return the sessions of a connection by channel."""
    return handler.shown_sessions()


def links_of(handler: ClientHandler) -> list[ShownLink]:
    """Return the links of a connection."""
    return handler.shown_links()


def describe_link(link: ShownLink, counts: UnsettledCounts) -> dict[str, object]:
    """Return the attributes of a link, with those of its client; None for those that its protocol
    does not have."""
    attributes: dict[str, object] = dict.fromkeys(LinkEntities.attributes)
    attributes.update(link.describe(counts))
    attributes["user"] = link.client.user
    attributes["peer"] = link.client.peer
    attributes["properties"] = _plain(attributes.get("properties"))
    return attributes


def _plain(properties: object) -> dict[str, object] | None:
    """Return the properties with text in place of maps and lists, because a client may nest these
    so deeply that they fit into no answer."""
    if not isinstance(properties, dict):
        return None
    return {
        key: value if value is None or isinstance(value, _SIMPLE) else repr(value)[:_SHOWN]
        for key, value in properties.items()
    }
