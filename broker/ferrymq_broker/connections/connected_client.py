"""The client of one connection: who it has proved to be, and what it may do in its virtual host."""

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

LinkKey = tuple[str, str | None, str, str, bool]
"""The identity of a link in the whole broker: its virtual host, user, container-id and name, and
whether the broker is its sender."""


@final
class ConnectedClient:
    """The container at the other end of a connection.

    `id` is the number of the connection, unique in the broker. `space` is the virtual host of the
    connection: the default one before the client's open. `identity` is None before the client has
    proved who it is; `user` is the name in it, None for an anonymous client. `access` permits
    nothing before the client's open.
    """

    __slots__ = ("id", "transport", "peer", "space", "container_id", "identity", "user", "access")

    def __init__(self, id: i64, transport: ClientTransport, space: AddressSpace) -> None:
        self.id: i64 = id
        self.transport = transport
        self.peer = transport.peer
        self.space = space
        self.container_id = ""
        self.identity: UserIdentity | None = None
        self.user: str | None = None
        self.access = ConnectionAccess(UserIdentity(None), [])

    # -- what becomes known --------------------------------------------------------------

    def log_in(self, identity: UserIdentity) -> None:
        """Take note of who the client has proved to be."""
        self.identity = identity
        self.user = identity.user

    def name(self, container_id: str) -> None:
        """Take note of the container-id of the client's open."""
        self.container_id = container_id

    def enter(self, space: AddressSpace, access: ConnectionAccess) -> None:
        """Take note of the virtual host that the connection is for, and of what the client may do
        there."""
        self.space = space
        self.access = access

    # -- what links are known by ---------------------------------------------------------

    def is_nameless(self) -> bool:
        """Return whether rights are all that tells this client from others."""
        return self.user is None and not self.access.open

    def link_key(self, link: Link) -> LinkKey:
        """Return what a link of the client is known by in the whole broker."""
        return (self.space.name, self.user, self.container_id, link.name, link.is_sender)

    def tags_key(self, link: Link, address: str) -> LinkKey:
        """Return what the deliveries are known by that a link has brought to `address`.

        The address is empty for the anonymous terminus. What is remembered of clients that have no
        name is good for those that may send to the same address, or for the same connection.
        """
        key = self.link_key(link)
        if not self.is_nameless():
            return key
        place = address or f"#{self.id}"
        return (key[0], None, f"{self.container_id}\0{place}", link.name, link.is_sender)

    def party(self, session: i64) -> Party:
        """Return the client as nodes know it, for a link in the session of this number."""
        return Party(self.id, session, self.container_id, self.user, self.peer, self.access)
