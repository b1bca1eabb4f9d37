"""Who is at the other end of a socket, by what asyncio calls its ``peername``."""

from __future__ import annotations

from ferrymq_broker.security.throttle import network_of


def name_of(peername: object) -> str:
    """For the log: address and port, or what there is instead of them."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return str(peername)


def host_of(peername: object) -> str:
    """The IP address of a client, empty for one that has none."""
    return str(peername[0]) if isinstance(peername, tuple) and peername else ""


def place_of(peername: object) -> str:
    """Whose place it takes: an IPv6 client has as many addresses as it likes in its network."""
    return network_of(host_of(peername))
