"""Limits of what one connection may make the broker keep in memory, and of the connections of one
user.

A refusal affects as little as possible. A link is refused with ``amqp:resource-limit-exceeded``,
and the other links go on. A consumer that holds too many messages gets no more until it settles
some. A producer that does not settle gets no credit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq.errors import AmqpError, RemoteProtocolError
from ferrymq_broker.connections.memory_cost import cost_of_attach, cost_of_filters
from ferrymq_broker.errors import BrokerError

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.link import Link
    from ferrymq.engine.session import Session
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.slices import Slices

EXCEEDED: Final = "amqp:resource-limit-exceeded"
# Each session may have at least so many messages sent and unsettled, however many sessions there
# are.
LEAST_SHARE: Final = 16
# How many deliveries are visited in the time of one unit of `Slices`.
_WALK: Final = 64


@final
class ClientLimits:
    """The limits of each connection of one broker; the defaults allow almost anything.

    `attach_size` is in bytes, for one link; `attach_total` is for all links of a connection.
    `unsettled` is in messages, for one link; `unsettled_total` is for all links of a connection.
    """

    __slots__ = (
        "links",
        "attach_size",
        "attach_total",
        "unsettled_map",
        "dynamic_nodes",
        "unsettled",
        "unsettled_total",
    )

    def __init__(
        self,
        links: i64 = 1 << 31,
        attach_size: i64 = 1 << 31,
        attach_total: i64 = 1 << 40,
        unsettled_map: i64 = 1 << 31,
        dynamic_nodes: i64 = 1 << 31,
        unsettled: i64 = 1 << 31,
        unsettled_total: i64 = 1 << 31,
    ) -> None:
        self.links: i64 = links
        self.attach_size: i64 = attach_size
        self.attach_total: i64 = attach_total
        self.unsettled_map: i64 = unsettled_map
        self.dynamic_nodes: i64 = dynamic_nodes
        self.unsettled: i64 = unsettled
        self.unsettled_total: i64 = unsettled_total


@final
class Allowance:
    """The part of the limits that one connection uses.

    `share` is how many unsettled messages a session may hold, as its part of the connection's
    limit. `spare` is how many messages the connection may get before they are counted again.
    `sent_share` is how many unsettled messages a session may have sent.
    """

    __slots__ = ("limits", "share", "sent_share", "spare", "_spent", "_sizes", "_size", "_made")

    def __init__(self, limits: ClientLimits) -> None:
        self.limits: ClientLimits = limits
        self.share: i64 = limits.unsettled_total
        self.sent_share: i64 = limits.unsettled_total
        self.spare: i64 = 0
        # Whether the last count found that nothing is left.
        self._spent = False
        # The sizes of the attaches of the connection's links.
        self._sizes: dict[Link, int] = {}
        self._size: i64 = 0
        # Nodes that were created for the connection; some may have been deleted.
        self._made: list[Node] = []

    def divide(self, sessions: i64) -> None:
        """Divide the limits of the connection by the present number of sessions."""
        share = self.limits.unsettled_total // (sessions if sessions > 0 else 1)
        self.share = share if share > 1 else 1
        self.sent_share = share if share > LEAST_SHARE else LEAST_SHARE
        self.review()

    def review(self) -> None:
        """Count again when the next message is sent, because the client may have settled some."""
        self._spent = False

    def is_spent(self, connection: Connection) -> bool:
        """Return whether the sessions together hold as many messages as the connection may.

        They are counted only when the rest of the last count is used up, so that a message costs
        almost nothing however many sessions there are.
        """
        if self.spare > 0:
            return False
        if not self._spent:
            held: i64 = 0
            for session in connection.channels.by_remote.values():
                held += session.outgoing.unsettled.count
            self.spare = self.limits.unsettled_total - held
            self._spent = self.spare <= 0
        return self._spent

    def take(self) -> None:
        """Count a message that the connection gets, against the rest of the last count
        (`is_spent`)."""
        self.spare -= 1

    def enter(self, link: Link) -> None:
        """Count a link that the client attaches. Raises `BrokerError` if the connection has too
        many links, or if the attach is too large."""
        limits = self.limits
        if len(self._sizes) >= limits.links:
            raise BrokerError(
                EXCEEDED,
                f"the connection has {limits.links} links already, which is the limit; "
                "detach some first",
            )
        attach = link.remote_attach
        size = link.attach_size
        if attach is not None and attach.unsettled is not None:
            listed = len(attach.unsettled)
            if listed > limits.unsettled_map:
                raise BrokerError(
                    EXCEEDED,
                    f"the unsettled map has {listed} deliveries; "
                    f"at most {limits.unsettled_map} are allowed",
                )
            # The unsettled map is freed when the link is attached.
            size = _size_without_map(link)
        if attach is not None:
            size += cost_of_attach(attach)
        if size > limits.attach_size:
            raise BrokerError(
                EXCEEDED,
                f"the attach has {size} bytes; at most {limits.attach_size} are allowed",
            )
        if attach is not None:
            # A client may have a few attaches with large filters, but not many.
            size += cost_of_filters(attach)
        if self._size + size > limits.attach_total:
            raise BrokerError(
                EXCEEDED,
                f"the attaches of all links of the connection have {self._size + size} bytes; "
                f"at most {limits.attach_total} are allowed",
            )
        self._sizes[link] = int(size)
        self._size += size

    def leave(self, link: Link) -> None:
        """Stop counting a link that is gone, if it was counted."""
        self._size -= self._sizes.pop(link, 0)

    def expect_node(self) -> None:
        """Raise `BrokerError` if the connection may not have another dynamic node."""
        limit = self.limits.dynamic_nodes
        if len(self._made) >= limit:
            self._made = [node for node in self._made if not node.deleted]
            if len(self._made) >= limit:
                raise BrokerError(
                    EXCEEDED,
                    f"the connection has {limit} dynamic nodes already, which is the limit; "
                    "delete some first",
                )

    def made(self, node: Node) -> None:
        """Count a dynamic node that was created for the connection."""
        self._made.append(node)


def _size_without_map(link: Link) -> i64:
    attach = link.remote_attach
    if attach is None or attach.unsettled is None:
        return link.attach_size
    unsettled = attach.unsettled
    attach.unsettled = None
    writer = BytesWriter()
    attach.encode(writer)
    attach.unsettled = unsettled
    return len(writer)


def forget_attach(link: Link, refused: bool) -> None:
    """Free the parts of an attach that are no longer needed, after the link was attached or
    `refused`.

    Otherwise the attach would take memory as long as the link exists.
    """
    attach = link.remote_attach
    if attach is not None:
        attach.unsettled = None
        attach.offered_capabilities = None
        attach.desired_capabilities = None
        if refused:
            attach.source = None
            attach.target = None
            attach.properties = None


def forget_begin(session: Session) -> None:
    """Free the parts of a client's begin except its numbers."""
    begin = session.remote_begin
    if begin is not None:
        begin.properties = None
        begin.offered_capabilities = None
        begin.desired_capabilities = None


def count_walk(slices: Slices, link: Link) -> None:
    """Count the work of a detach: the engine visits the unsettled deliveries of the session."""
    session = link.session
    deliveries = session.outgoing.unsettled.count + session.incoming.unsettled.count
    slices.spend(deliveries // _WALK)


def is_over_limit(error: AmqpError) -> bool:
    """Return whether the engine has ended something because a limit was exceeded."""
    return isinstance(error, RemoteProtocolError) and error.condition == EXCEEDED


@final
class ConnectionsPerUser:
    """The open connections of each user, at most `limit`, 0 for any number; anonymous clients do
    not count."""

    __slots__ = ("limit", "_user_of", "_counts")

    def __init__(self) -> None:
        self.limit: i64 = 0
        self._user_of: dict[ConnectedClient, str] = {}
        self._counts: dict[str, int] = {}

    def of(self, user: str) -> int:
        """Return the number of connections of the user."""
        return self._counts.get(user, 0)

    def enter(self, client: ConnectedClient) -> bool:
        """Count a connection that has opened; return false if its user has too many."""
        user = client.user
        if user is None or client in self._user_of:
            return True
        count = self._counts.get(user, 0)
        if self.limit > 0 and count >= self.limit:
            return False
        self._user_of[client] = user
        self._counts[user] = count + 1
        return True

    def leave(self, client: ConnectedClient) -> None:
        """Stop counting a connection that is over, if it was counted."""
        user = self._user_of.pop(client, None)
        if user is None:
            return
        count = self._counts[user] - 1
        if count > 0:
            self._counts[user] = count
        else:
            del self._counts[user]
