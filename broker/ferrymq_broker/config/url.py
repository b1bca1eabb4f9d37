"""URLs of listeners, ``amqps://HOST:PORT``, and of the one for monitoring, ``http://HOST:PORT``."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from ferrymq_types.transport import PORT, SECURE_PORT

# The schemes of listeners, and their default ports. Those of AMQP are registered. The ports 80 and
# 443 of WebSocket are no defaults, because a port below 1024 needs privileges.
PORTS: Final[dict[str, int]] = {
    "amqp": PORT,
    "amqps": SECURE_PORT,
    "ws": 5673,
    "wss": 5674,
    "any": PORT,
}


class ListenAddress(NamedTuple):
    """A host name or address, a TCP port (0: any free port), and the scheme of the URL."""

    host: str
    port: int
    scheme: str = "amqp"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_secure(self) -> bool:
        """Whether every connection begins with TLS."""
        return self.scheme in ("amqps", "wss")

    @property
    def is_websocket(self) -> bool:
        """Whether the listener carries AMQP over WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def is_any(self) -> bool:
        """Whether the first bytes of a connection say which protocol it has."""
        return self.scheme == "any"

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_listen_url(url: str) -> ListenAddress:
    """Parse the URL of a listener. Raises ValueError, whose text names the mistake."""
    parts = _split(url)
    if "@" in url:
        # The error text quotes only the host, because a password may stand anywhere before the @.
        raise ValueError(
            f"{parts.hostname}: users are set in [security], not in the URL of a listener"
        )
    if parts.scheme not in PORTS:
        raise ValueError(
            f"{url}: a listener is written amqp://HOST:PORT, or with amqps, ws, wss or any"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{url}: nothing may follow the port")
    if not parts.hostname:
        raise ValueError(f"{url}: a host is missing; 127.0.0.1 listens for this machine only")
    port = _port(parts)
    return ListenAddress(
        parts.hostname, PORTS[parts.scheme] if port is None else port, parts.scheme
    )


def parse_client_url(url: str) -> ListenAddress:
    """Parse a URL that clients of AMQP over TCP connect to. Raises ValueError."""
    parts = _split(url)
    if "@" in url:
        raise ValueError(f"{parts.hostname}: the URL for clients takes no user")
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise ValueError("the URL for clients is written amqp://HOST:PORT or amqps://HOST:PORT")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{url}: nothing may follow the port")
    port = _port(parts)
    return ListenAddress(
        parts.hostname, PORTS[parts.scheme] if port is None else port, parts.scheme
    )


def check_client_url(url: str) -> str:
    """Check a URL that clients of AMQP over TCP connect to. Raises ValueError."""
    parse_client_url(url)
    return url


def check_http_url(url: str) -> str:
    """Check the URL of the monitoring listener. Raises ValueError."""
    parts = _split(url)
    if "@" in url:
        raise ValueError(f"{parts.hostname}: the URL of the monitoring listener takes no user")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"{url}: the monitoring listener is written http://HOST:PORT or https://HOST:PORT"
        )
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"{url}: nothing may follow the port")
    if _port(parts) is None:
        raise ValueError(f"{url}: a port is missing")
    return url


def http_address(url: str) -> ListenAddress:
    """Return the address of the monitoring listener with this URL, which is valid."""
    parts = urlsplit(url)
    return ListenAddress(parts.hostname or "", parts.port or 0)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # The text of the original error may contain a password.
        raise ValueError("this is not a URL; a host is a name or an address") from None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise ValueError(f"{parts.hostname}: a port is a number from 0 to 65535") from None
