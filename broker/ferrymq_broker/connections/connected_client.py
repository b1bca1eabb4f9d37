"""The client of one connection: its identity, and its rights in its virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.nodes.link_terms import Party

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.connections.authentication import ClientTransport
    from ferrymq_broker.connections.throttle import ClientThrottle

LinkKey = tuple[str, str | None, str, str, bool]
"""The identity of a link in the whole broker: its virtual host, user, container-id and name, and
whether the broker is its sender."""


@final
class ConnectedClient:
    """The container at the other end of a connection.

    `id` is the number of the connection, unique in the broker. `space` is the virtual host of the
    connection: the default one before the client's open. `identity` is None before the client is
    authenticated; `user` is the name in it, None for an anonymous client. `access` permits nothing
    before the client's open. `throttle` has the rate limits of the connection, None without any.
    `since` is when the connection was accepted, in milliseconds since the
    Unix epoch.
    """

    __slots__ = (
        "id",
        "transport",
        "peer",
        "since",
        "space",
        "container_id",
        "identity",
        "user",
        "access",
        "throttle",
    )

    def __init__(
        self, id: i64, transport: ClientTransport, space: AddressSpace, since: i64
    ) -> None:
        self.id: i64 = id
        self.since: i64 = since
        self.transport: ClientTransport = transport
        self.peer: str = transport.peer
        self.space: AddressSpace = space
        self.container_id: str = ""
        self.identity: UserIdentity | None = None
        self.user: str | None = None
        self.access: ConnectionAccess = ConnectionAccess(UserIdentity(None), [])
        self.throttle: ClientThrottle | None = None

    # -- setting the identity ------------------------------------------------------------

    def log_in(self, identity: UserIdentity) -> None:
        """Set the authenticated identity of the client."""
        self.identity = identity
        self.user = identity.user

    def name(self, container_id: str) -> None:
        """Set the container-id, from the client's open."""
        self.container_id = container_id

    def enter(self, space: AddressSpace, access: ConnectionAccess) -> None:
        """Set the virtual host of the connection, and the client's rights there."""
        self.space = space
        self.access = access

    # -- keys of links ---------------------------------------------------------------------

    def is_nameless(self) -> bool:
        """Return whether only its rights distinguish this client from others."""
        return self.user is None and not self.access.open

    def link_key(self, link: Link) -> LinkKey:
        """Return the key of a link of the client in the whole broker."""
        return (self.space.name, self.user, self.container_id, link.name, link.is_sender)

    def tags_key(self, link: Link, address: str) -> LinkKey:
        """Return the key of the tags that a link has sent to `address`.

        The address is empty for the anonymous terminus. The tags of an anonymous client can be used
        by clients that may send to the same address, or only by the same connection.
        """
        key = self.link_key(link)
        if not self.is_nameless():
            return key
        place = address or f"#{self.id}"
        return (key[0], None, f"{self.container_id}\0{place}", link.name, link.is_sender)

    def party(self, session: i64) -> Party:
        """Return the client as nodes see it, for a link in the session of this number."""
        return Party(self.id, session, self.container_id, self.user, self.peer, self.access)
