"""Names and addresses of clients, from asyncio's ``peername``."""

from __future__ import annotations

from ferrymq_broker.security.throttle import network_of


def name_of(peername: object) -> str:
    """Return address and port for the log, or the text of another kind of peername."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return f"{peername[0]}:{peername[1]}"
    return str(peername)


def host_of(peername: object) -> str:
    """Return the IP address of a client; empty if it has none."""
    return str(peername[0]) if isinstance(peername, tuple) and peername else ""


def place_of(peername: object) -> str:
    """Return the address that counts for limits: for IPv6 the network, because an IPv6 client can
    use any address in its network."""
    return network_of(host_of(peername))
