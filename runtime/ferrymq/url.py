"""URLs of containers: ``amqp://user:password@host:port?option=value``.

`amqp` is plain TCP and `amqps` is TLS; their default ports are 5672 and 5671 (AMQP 1.0 §2.1, §5.2).
`ws` and `wss` are WebSocket without and with TLS, on 80 and 443; only these may have a path. User
name and password may contain percent-encoded characters. Options set arguments of `connect`.

Several URLs of one broker are a list, or a text with commas between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ferrymq.arguments import nearest
from ferrymq_types.transport import PORT, SECURE_PORT

_PORTS: Final = {"amqp": PORT, "amqps": SECURE_PORT, "ws": 80, "wss": 443}
_WEB: Final = ("ws", "wss")
# A comma that is followed by another URL: a password or a path may contain other commas.
_BETWEEN: Final = re.compile(rf"\s*,\s*(?=(?:{'|'.join(_PORTS)})://)", re.IGNORECASE)
OPTIONS: Final = ("container_id", "hostname", "idle_time_out", "max_frame_size", "timeout")
"""The options a URL may set, named like the arguments of `connect`."""


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL. The password is never part of the repr."""

    scheme: str
    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    options: dict[str, str] = field(default_factory=dict)
    path: str = ""
    hostname: str | None = None
    """The host name of the container that a redirect gave, in place of `host`, for the open, SASL
    and TLS (AMQP 1.0 §2.8.16)."""

    @property
    def place(self) -> tuple[str, str, int, str]:
        """Scheme, host, port and path: equal for two URLs of one place."""
        return self.scheme, self.host, self.port, self.path

    @property
    def server_name(self) -> str:
        """The name that the server's certificate has to bear."""
        # TLS has no names with a colon, such as vhost:NAME.
        return self.host if self.hostname is None or ":" in self.hostname else self.hostname

    @property
    def secure(self) -> bool:
        """Whether the transport is TLS."""
        return self.scheme in ("amqps", "wss")

    @property
    def over_web(self) -> bool:
        """Whether the transport is WebSocket."""
        return self.scheme in _WEB

    @property
    def web(self) -> str:
        """The URL of the WebSocket, without user and options."""
        return f"{self.scheme}://{self._host_and_port()}{self.path or '/'}"

    def __str__(self) -> str:
        """Return the URL without the password and the options, for logs."""
        user = "" if self.username is None else f"{self.username}@"
        return f"{self.scheme}://{user}{self._host_and_port()}{self.path}"

    def _host_and_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def default_port(scheme: str) -> int:
    """Return the port of a URL that names none."""
    return _PORTS[scheme]


def split_urls(text: str) -> list[str]:
    """Split a text with commas between URLs. Text without another URL after a comma is one URL."""
    return _BETWEEN.split(text.strip())


def parse_urls(given: str | Sequence[str]) -> list[Url]:
    """Parse the URLs of one broker: a list, or a text with commas between them. A URL that is
    repeated counts once.

    Raises ValueError for an empty list, and as `parse_url`.
    """
    if isinstance(given, str):
        given = split_urls(given)
    elif not isinstance(given, Sequence):
        raise TypeError(
            "a URL is a str such as 'amqp://localhost', or a list of them, not "
            f"{type(given).__name__}"
        )
    urls: list[Url] = []
    for text in given:
        url = parse_url(text)
        if url not in urls:
            urls.append(url)
    if not urls:
        raise ValueError("the list of URLs is empty")
    return urls


def shown_urls(urls: Sequence[Url]) -> str:
    """Return the URLs without passwords and options, for messages."""
    return ", ".join(map(str, urls))


def parse_url(text: str) -> Url:
    """Parse a URL.

    Raises ValueError, which never quotes the password, for another scheme, a missing host, a port
    out of range, a path without WebSocket, a fragment and an unknown or repeated option.
    """
    if not isinstance(text, str):
        raise TypeError(f"a URL is a str such as 'amqp://localhost', not {type(text).__name__}")
    try:
        parts = urlsplit(text)
    except ValueError:
        # The original error may quote the password.
        raise ValueError("this is no URL; a host is a name or an address") from None
    # If a password contains "/", "?" or "#", it is parsed as another part of the URL, which must
    # then not be quoted.
    quotable = "@" not in text
    if parts.scheme not in _PORTS:
        if "://" not in text:
            found = "and this one has none of them"
            if quotable and "/" not in text:
                found = f"{found}: did you mean amqp://{text}?"
        else:
            found = f"not {parts.scheme}:"
        raise ValueError(f"a URL starts with amqp://, amqps://, ws:// or wss://, {found}")
    if not parts.hostname:
        raise ValueError("the URL names no host")
    if "," in parts.netloc.rpartition("@")[2]:
        raise ValueError(
            "the host of the URL has a comma: where several URLs may be given, each starts with "
            "amqp://, amqps://, ws:// or wss://"
        )
    of_web = parts.scheme in _WEB and "@" not in parts.path
    if parts.path not in ("", "/") and not of_web:
        path = f", {parts.path!r}" if quotable else ""
        secret = (
            "" if quotable else "; in a user name or password, write / ? # @ as %2F %3F %23 %40"
        )
        raise ValueError(
            f"the URL has a path{path}: the address of a node is given to sender() or receiver(), "
            f"and a virtual host by ?hostname=vhost:NAME{secret}"
        )
    if parts.fragment:
        raise ValueError("the URL has a fragment (#), which means nothing here")
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port of the URL is not a number from 0 to 65535") from None
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            shown = f" {name!r}" if quotable or "@" not in name else ""
            near = nearest(name, OPTIONS) if shown else ""
            raise ValueError(
                f"unknown option{shown} in the URL; known are {', '.join(OPTIONS)}{near}"
            )
        if name in options:
            raise ValueError(f"option {name!r} is in the URL twice")
        options[name] = value
    return Url(
        scheme=parts.scheme,
        host=unquote(parts.hostname),
        port=_PORTS[parts.scheme] if port is None else port,
        username=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        options=options,
        path=parts.path if of_web and parts.path != "/" else "",
    )
