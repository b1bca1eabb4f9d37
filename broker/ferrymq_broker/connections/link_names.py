"""Which connection holds the name of a link (AMQP 1.0 §2.6.1).

A name stands for one link in each direction between two containers, whatever connections they
have. The engine enforces that within a connection; this registry enforces it across connections.
Containers of different users are different, whatever container-id they use: nobody takes over
another user's link by guessing a name. Links of different virtual hosts have different names.

Clients that have not said who they are cannot be told apart. Where there are rules or tokens, such
a client takes over the link of another connection only if it has the right which that link has
taken; otherwise both connections keep their links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.connected_client import ConnectedClient, LinkKey


class LinkHolder:
    """The links of one connection, those of `client`, to the registries of the broker and to what
    decides on its rights."""

    __slots__ = ("client",)

    def __init__(self, client: ConnectedClient) -> None:
        self.client = client

    def link_stolen(self, link: Link) -> None:
        """End a link whose name the same container has attached on another connection."""

    def withdraw_credit(self) -> i64:
        """Take back the credit of all producers, and return how many there are."""
        return 0

    def reauthorize(self) -> int:
        """Detach the links that the client may not have any more, and return how many."""
        return 0


@final
class LinkNames:
    """The attached links of all connections by name: the connection that has each link, the address
    that the link is for and the right that the link has taken there."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[LinkKey, tuple[LinkHolder, Link, str, int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def take(self, holder: LinkHolder, link: Link, address: str = "", right: i64 = 0) -> None:
        """Give the name to a link; the link that had it on another connection is ended.

        `right` is what the link takes at `address`. Without one, a client that has not said who it
        is takes no name from another connection.
        """
        client = holder.client
        key = client.link_key(link)
        held = self._holders.get(key)
        self._holders[key] = (holder, link, address, int(right))
        if held is None or held[0] is holder:
            return
        if not client.is_nameless() or client.access.permits(held[3], held[2]):
            held[0].link_stolen(held[1])

    def release(self, holder: LinkHolder, link: Link) -> None:
        """Free the name of a link that is detached, refused or gone with its connection."""
        key = holder.client.link_key(link)
        held = self._holders.get(key)
        if held is not None and held[1] is link:
            del self._holders[key]
