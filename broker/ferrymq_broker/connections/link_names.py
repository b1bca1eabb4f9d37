"""Which connection holds the name of a link (AMQP 1.0 §2.6.1).

A name stands for one link in each direction between two containers, whatever connections they have.
The engine enforces that within a connection; this registry enforces it across connections.
Containers of different users are different, whatever container-id they use: no user can take over
another user's link by guessing a name. Links of different virtual hosts have different names.

Anonymous clients cannot be told apart. If there are access rules or tokens, such a client takes
over the link of another connection only if it has the right that this link needed; otherwise both
connections keep their links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_broker.connections.connected_client import ConnectedClient, LinkKey


class LinkHolder:
    """The interface to the links of one connection of `client`, for the registries of the broker
    and for the parts that decide on rights."""

    __slots__ = ("client",)

    def __init__(self, client: ConnectedClient) -> None:
        self.client: ConnectedClient = client

    def link_stolen(self, link: Link) -> None:
        """End a link whose name the same container has attached on another connection."""

    def withdraw_credit(self) -> i64:
        """Take back the credit of all producers, and return how many there are."""
        return 0

    def reauthorize(self) -> int:
        """Detach the links that the client may not have any more, and return how many there
        were."""
        return 0


@final
class LinkNames:
    """The attached links of all connections by name. For each link it has the connection, the
    address of the link and the right that the link needed there."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[LinkKey, tuple[LinkHolder, Link, str, int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def take(self, holder: LinkHolder, link: Link, address: str = "", right: i64 = 0) -> None:
        """Give the name to a link; a link with this name on another connection is ended.

        `right` is the right that the link needs at `address`. Without that right, an anonymous
        client takes no name from another connection.
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
