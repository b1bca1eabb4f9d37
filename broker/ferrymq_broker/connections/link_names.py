"""Who holds the name of a link (AMQP 1.0 §2.6.1).

A name stands for one link in each direction between two containers, whatever connections they
have. The engine sees to that within a connection; this registry sees to it across connections.
Containers of different users are different, whatever they call themselves: nobody takes over
another user's link by guessing a name. Virtual hosts have nothing in common, their names neither.

Clients that have not said who they are cannot be told apart. Where there are rules or tokens, one
of them takes over the link of another connection only if it has the right that link has taken; else
each of them keeps its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.link import Link

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler

# Virtual host, user, container-id, name of the link, whether the broker is its sender.
Key = tuple[str, str | None, str, str, bool]


@final
class LinkNames:
    """The attached links of all connections by name: the handler that has each, the address it is
    for and the right it has taken there."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[Key, tuple[ConnectionHandler, Link, str, int]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def take(
        self, handler: ConnectionHandler, link: Link, address: str = "", right: i64 = 0
    ) -> None:
        """The link has its name from now on; who had it on another connection loses its link.

        `right` is what it takes at `address` to have such a link; without one, nobody takes it from
        another connection who has not said who he is.
        """
        key = key_of(handler, link)
        held = self._holders.get(key)
        self._holders[key] = (handler, link, address, int(right))
        if held is None or held[0] is handler:
            return
        if not is_nameless(handler) or handler.access.permits(held[3], held[2]):
            held[0].link_stolen(held[1])

    def release(self, handler: ConnectionHandler, link: Link) -> None:
        """The link is detached, or gone with its connection."""
        key = key_of(handler, link)
        held = self._holders.get(key)
        if held is not None and held[1] is link:
            del self._holders[key]


def key_of(handler: ConnectionHandler, link: Link) -> Key:
    """What the link is known by in the whole broker."""
    return (handler.space.name, handler.user, handler.container_id, link.name, link.is_sender)


def tags_key_of(handler: ConnectionHandler, link: Link, address: str) -> Key:
    """What the deliveries are known by that a link has brought to `address`, which is empty for the
    anonymous terminus. What is remembered of those who have no name is good for those that may send
    to the same address, or for the same connection."""
    key = key_of(handler, link)
    if not is_nameless(handler):
        return key
    place = address or f"#{handler.id}"
    return (key[0], None, f"{handler.container_id}\0{place}", link.name, link.is_sender)


def is_nameless(handler: ConnectionHandler) -> bool:
    """Whether rights are all that tells this client from others."""
    return handler.user is None and not handler.access.open
