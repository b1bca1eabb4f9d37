"""Redirects: the address that a peer gives when it closes a connection or a link (AMQP 1.0 §2.8.16,
§2.8.18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ferrymq.partitioning import URLS
from ferrymq.url import default_port, parse_url

if TYPE_CHECKING:
    from ferrymq.errors import PeerError
    from ferrymq.url import Url

REDIRECT: Final = "amqp:connection:redirect"
LINK_REDIRECT: Final = "amqp:link:redirect"

MOST_REDIRECTS: Final = 5
"""Redirects in a row that are followed."""

# A host is part of texts and of names for the resolver.
_LONGEST_HOST: Final = 255
_NOT_IN_HOSTS: Final = frozenset("/?#@,[]\\")


def redirected(url: Url, error: PeerError) -> Url | None:
    """Return where a peer redirects to, with the scheme, the login and the path of its own URL;
    None if the error is no redirect, or has no usable address.

    Without a port it is the default port of the scheme.
    """
    if error.error is None or error.error.condition != REDIRECT:
        return None
    return _place(url, error.error.info or {})


def link_redirected(url: Url, error: PeerError, address: str) -> tuple[list[Url], str] | None:
    """Return where the peer at `url` redirects a link to `address` to: the URLs of one broker, as
    `redirected` makes them, and the address there. None if the error is no redirect, or has no
    usable place."""
    if error.error is None or error.error.condition != LINK_REDIRECT:
        return None
    info = error.error.info or {}
    there = info.get("address")
    if isinstance(there, str) and there:
        address = there
    listed = info.get(URLS)
    places = places_of(url, listed) if isinstance(listed, list) else []
    name = info.get("hostname")
    if name != info.get("network-host") and _is_host(name):
        # A virtual host, or another name for all of them.
        places = [replace(place, hostname=str(name)) for place in places]
    if not places:
        place = _place(url, info)
        places = [] if place is None else [place]
    return (places, address) if places else None


def places_of(url: Url, listed: Sequence[object]) -> list[Url]:
    """Return those URLs of another broker that a client of `url` can use: with TLS only if it has
    TLS now, and the reverse. They get the login of `url`."""
    places = []
    for text in listed:
        try:
            one = parse_url(str(text))
        except ValueError:
            continue
        if one.secure == url.secure:
            places.append(replace(url, host=one.host, port=one.port, hostname=None))
    return places


def _place(url: Url, info: Mapping[str, object]) -> Url | None:
    """Return the place that the fields of a redirect name."""
    host, port, hostname = info.get("network-host"), info.get("port"), info.get("hostname")
    if port is None:
        port = default_port(url.scheme)
    if not _is_host(host) or not isinstance(port, int) or not 0 < port < 65536:
        return None
    return replace(
        url,
        host=str(host),
        port=int(port),
        hostname=str(hostname) if _is_host(hostname) else None,
    )


def _is_host(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= _LONGEST_HOST
        and value.isprintable()
        and " " not in value
        and not _NOT_IN_HOSTS & set(value)
    )
