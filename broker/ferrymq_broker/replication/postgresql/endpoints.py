"""The URL of the database, and the servers that it names."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from typing import Final, NamedTuple

import psycopg
from psycopg import pq

from ferrymq_broker.replication.errors import JournalUnavailable, ReplicationError

# Options of connections, in seconds and milliseconds; those in the URL count more. The kernel
# notices a server that vanished, also while nothing is sent.
_DEFAULTS: Final = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    # A server that only reads is a standby of PostgreSQL, or was the primary.
    "target_session_attrs": "read-write",
    # A look for Kerberos' tickets may block.
    "gssencmode": "disable",
    "client_encoding": "UTF8",
}
# Options that are given for each server by itself.
_PER_SERVER: Final = ("host", "hostaddr", "port", "connect_timeout", "load_balance_hosts")
# Seconds for one server to accept a connection.
_CONNECT_SECONDS: Final = 2.0
_BLOCKING_SECONDS: Final = "10"


class Endpoint(NamedTuple):
    """A server: host and port as the URL has them, "" for libpq's default, and the address for the
    connection, "" if the host needs no look-up."""

    host: str
    address: str
    port: str

    def __str__(self) -> str:
        return f"{self.host or 'the default host'}:{self.port or 'the default port'}"


class DatabaseUrl:
    """A URL, or a connection string, of PostgreSQL. `application` is the name that the server shows
    for its connections.

    Raises `ReplicationError` if the text is neither.
    """

    def __init__(self, url: str, application: str) -> None:
        options = _parse(url)
        self.password: str = options.get("password", "")
        seconds = options.get("connect_timeout", "")
        self.connect_seconds: float = float(seconds) if seconds.isdigit() else _CONNECT_SECONDS
        self._hosts = (options.get("host") or os.environ.get("PGHOST", "")).split(",")
        self._addresses = options.get("hostaddr", "").split(",")
        self._ports = (options.get("port") or os.environ.get("PGPORT", "")).split(",")
        self._options = {**_DEFAULTS, "application_name": application, **options}
        self._all_servers = psycopg.conninfo.make_conninfo(
            "", **{"connect_timeout": _BLOCKING_SECONDS, **self._options}
        )
        for name in _PER_SERVER:
            self._options.pop(name, None)
        # Otherwise a part of a password with special characters would be shown as a host, a port
        # or the name of a database.
        if (
            any("@" in host for host in self._hosts)
            or not all(port.isdigit() for port in self._ports if port)
            or "@" in options.get("dbname", "")
        ):
            raise ReplicationError(_UNREADABLE)

    async def resolve(self) -> list[Endpoint]:
        """Return the servers in the order of the URL, one for each address.

        libpq would look names up itself, and block the event loop. Raises `JournalUnavailable` if
        no name is known.
        """
        found: list[Endpoint] = []
        reason = ""
        for at, host in enumerate(self._hosts):
            port = self._ports[at] if at < len(self._ports) else self._ports[-1]
            address = self._addresses[at] if at < len(self._addresses) else ""
            if address or not host or host.startswith(("/", "@")) or _is_address(host):
                found.append(Endpoint(host, address, port))
                continue
            try:
                known = await asyncio.get_running_loop().getaddrinfo(
                    host, None, type=socket.SOCK_STREAM
                )
            except OSError as error:
                reason = f"the name {host} of the database is not known: {error.strerror}"
                continue
            addresses = dict.fromkeys(str(one[4][0]) for one in known)
            found += [Endpoint(host, one, port) for one in addresses]
        if not found:
            raise JournalUnavailable(reason)
        return found

    def all_servers(self) -> str:
        """Return the connection string for a connection that may block, with all servers. It
        contains the password."""
        return self._all_servers

    def connection_string(self, endpoint: Endpoint) -> bytes:
        """Return the connection string for one server. It contains the password."""
        chosen = {"host": endpoint.host, "hostaddr": endpoint.address, "port": endpoint.port}
        options = {**self._options, **{name: value for name, value in chosen.items() if value}}
        return psycopg.conninfo.make_conninfo("", **options).encode()

    def without_password(self, message: str) -> str:
        """Return the first line of a message, which does not show the password."""
        line = next(iter(message.strip().splitlines()), "")
        return line.replace(self.password, "***") if self.password else line


# The message of libpq would show parts of the URL, which may be parts of a password.
_UNREADABLE: Final = (
    "the URL of the database is not one of PostgreSQL, such as"
    " postgresql://USER@HOST:PORT/DATABASE; special characters of a password are written as %XX"
)


def _parse(url: str) -> dict[str, str]:
    try:
        found = pq.Conninfo.parse(url.encode())
    except psycopg.OperationalError:
        raise ReplicationError(_UNREADABLE) from None
    return {one.keyword.decode(): one.val.decode() for one in found if one.val}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
