"""Listener URLs: ``amqp://HOST:PORT``."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from ferrymq_types.transport import PORT


class ListenAddress(NamedTuple):
    """A host name or address, and a TCP port; port 0 means any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp://{host}:{self.port}"


def parse_listen_url(url: str) -> ListenAddress:
    """Take a listener URL apart. Raises ValueError, saying what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme == "amqps":
        raise ValueError(f"{url}: this version listens without TLS; use amqp://")
    if parts.scheme != "amqp":
        raise ValueError(f"{url}: a listener is written amqp://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"{parts.hostname}: users belong to [security], not to a listener")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{url}: nothing may follow the port")
    if not parts.hostname:
        raise ValueError(f"{url}: a host is missing; 127.0.0.1 listens for this machine only")
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"{url}: a port is a number from 0 to 65535") from None
    return ListenAddress(parts.hostname, PORT if port is None else port)
