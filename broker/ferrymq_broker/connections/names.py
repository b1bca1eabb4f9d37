"""Who holds the name of a link (AMQP 1.0 §2.6.1).

A name stands for one link in each direction between two containers, whatever connections they
have. The engine sees to that within a connection; this registry sees to it across connections.
Containers of different users are different, whatever they call themselves: nobody takes over
another user's link by guessing a name. Virtual hosts have nothing in common, their names neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq.engine.link import Link

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler

# Virtual host, user, container-id, name of the link, whether the broker is its sender.
Key = tuple[str, str | None, str, str, bool]


@final
class LinkNames:
    """The attached links of all connections by name, with the handler that has each."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[Key, tuple[ConnectionHandler, Link]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def take(self, handler: ConnectionHandler, link: Link) -> None:
        """The link has its name from now on; who had it on another connection loses its link."""
        key = key_of(handler, link)
        held = self._holders.get(key)
        self._holders[key] = (handler, link)
        if held is not None and held[0] is not handler:
            held[0].lose_to_thief(held[1])

    def release(self, handler: ConnectionHandler, link: Link) -> None:
        """The link is detached, or gone with its connection."""
        key = key_of(handler, link)
        held = self._holders.get(key)
        if held is not None and held[1] is link:
            del self._holders[key]


def key_of(handler: ConnectionHandler, link: Link) -> Key:
    """What the link is known by in the whole broker."""
    return (handler.space.name, handler.user, handler.container_id, link.name, link.is_sender)
