"""Finding the link because of which the peer has ended a session.

The end of a session has an error and names no link. Some brokers end the session, with all its
links, where another one would refuse a link, a message or an outcome (`Peer.ends_sessions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

from ferrymq.errors import LinkDetached, SessionEnded
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.aio.link import Link
    from ferrymq.peers import Peer

_OF_ATTACHES: Final = ("amqp:not-found", "amqp:not-implemented")
# Conditions under which a session may end although each of its links is in order.
_OF_THE_PEER: Final = frozenset(
    {
        "amqp:connection:forced",
        "amqp:internal-error",
        "amqp:resource-deleted",
        "amqp:resource-limit-exceeded",
        "amqp:resource-locked",
        "amqp:session:window-violation",
        "amqp:session:errant-link",
    }
)

T = TypeVar("T")


def find_guilty(links: list[Link[Any]], error: Error, peer: Peer) -> Link[Any] | None:
    """Return the link because of which the peer ended their session with an error; None if that is
    not sure. `links` are in the order of their attaches."""
    text = error.description or ""
    if any(part in text for part in peer.refuses_transfers):
        senders = [link for link in links if link.sends]
        return _only([link for link in senders if link.in_flight]) or _only(senders)
    if any(part in text for part in peer.refuses_outcomes):
        return _only([link for link in links if not link.sends])
    # The peer answers attaches in their order.
    attaching = next((link for link in links if link.attaching), None)
    busy = [link for link in links if link.in_flight and link is not attaching]
    if attaching is not None:
        # A link that was attached before is likely to be in order, unlike messages that other links
        # send again at the same time.
        certain = attaching.new or error.condition in _OF_ATTACHES
        if certain or not busy or _is_named(attaching, text):
            return attaching
    else:
        named = _only([link for link in links if _is_named(link, text)])
        if named is not None:
            return named
    return None if error.condition in _OF_THE_PEER else _only(busy)


def refusal(link: Link[Any], ended: SessionEnded) -> LinkDetached:
    """Return the error that ends the guilty link."""
    error = ended.error
    connection = link.session.connection
    hint = connection.peer.lack(None if error is None else error.description)
    if link.attaching:
        place, hint = link.place, hint or connection.login_hint(error)
    else:
        place = f"{link.place}: the peer ended the session"
    refused = LinkDetached(place, error, True, hint)
    refused.__cause__ = ended
    return refused


def _is_named(link: Link[Any], text: str) -> bool:
    """Return whether the text has the address of a link in quotes, or a part of it, as the name of
    a queue is a part of an address of RabbitMQ."""
    address = link.address
    if not address:
        return False
    parts = {address, *(unquote(part) for part in address.split("/") if part)}
    return any(f"{quote}{part}{quote}" in text for part in parts for quote in "'\"")


def _only(links: list[T]) -> T | None:
    return links[0] if len(links) == 1 else None
