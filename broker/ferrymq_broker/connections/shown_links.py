"""Sessions and links as management shows them, whatever the protocol of their connection.

A channel of AMQP 0-9-1 is shown as a session, and its consumers as links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq.engine.session import Session
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.nodes.node import Node


class UnsettledCounts:
    """The unsettled deliveries of links that do not count them, by session: each session is gone
    through once."""

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        self._sessions: dict[Session, dict[Link, int]] = {}

    def of(self, link: Link) -> int:
        """Return the number of deliveries of a link that are not settled."""
        session = link.session
        counts = self._sessions.get(session)
        if counts is None:
            counts = {}
            for outgoing in session.outgoing.unsettled.values():
                counts[outgoing.link] = counts.get(outgoing.link, 0) + 1
            for incoming in session.incoming.unsettled.values():
                counts[incoming.link] = counts.get(incoming.link, 0) + 1
            self._sessions[session] = counts
        return counts.get(link, 0)


class ShownSession:
    """A session of `client`; `channel` is the broker's number of it."""

    __slots__ = ("client", "channel")

    def __init__(self, client: ConnectedClient, channel: i64) -> None:
        self.client: ConnectedClient = client
        self.channel: i64 = channel

    def identity(self) -> str:
        """Return ``CONNECTION/CHANNEL``."""
        return f"{self.client.id}/{self.channel}"

    def describe(self) -> dict[str, object]:
        """Return the attributes by their public names."""
        return {}


class ShownLink:
    """A link of `client`, or what another protocol has in its place.

    `channel` is the number of its session, `name` the name that the client gave it. `receives` is
    whether the client receives on it.
    """

    __slots__ = ("client", "channel", "receives", "name")

    def __init__(self, client: ConnectedClient, channel: i64, receives: bool, name: str) -> None:
        self.client: ConnectedClient = client
        self.channel: i64 = channel
        self.receives: bool = receives
        self.name: str = name

    def identity(self) -> str:
        """Return ``CONNECTION/CHANNEL/ROLE/NAME``; the role is the client's."""
        role = "receiver" if self.receives else "sender"
        return f"{self.client.id}/{self.channel}/{role}/{self.name}"

    def describe(self, counts: UnsettledCounts) -> dict[str, object]:
        """Return the attributes by their public names."""
        return {}

    def uses(self, node: Node) -> bool:
        """Return whether the link consumes from a node, or publishes to it."""
        return False

    def end(self, reason: str) -> None:
        """End the link from the broker's side, in a pass of its own; messages that it holds
        return."""
