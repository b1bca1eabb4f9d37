"""A limit of failed logins, so that passwords cannot be guessed.

Failures are counted by address, and by user. Failures of an attacker do not lock a user out: at
addresses from which the user has logged in before, the user's failures are counted separately. On
loopback listeners failures are counted only by user, because otherwise one program would lock out
all others.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.event_log import log

# Seconds for which logins are refused at first. The time doubles with each failure, up to the
# longest.
FIRST: Final = 1.0
LONGEST: Final = 60.0
# The most entries in each table: addresses and users with refused logins, those with failures only,
# and users with known addresses.
MOST: Final = 10_000
# The most known addresses of one user.
HOMES: Final = 100
_MINUTE: Final = 60.0
# The number of characters of a name that are compared.
_NAME: Final = 256

_Key = tuple[str, str]


class _Failures:
    """A leaky bucket of failures. When it is full, logins are refused."""

    __slots__ = ("at", "level", "times", "until")

    def __init__(self, now: float) -> None:
        self.level = 0.0
        self.at = now
        self.times = 0
        self.until = now


class Throttle:
    """A limit of failed logins. After `failures` in a minute, from one address or for one user,
    further logins are refused unchecked: for a second at first, then for longer, up to a minute.

    With 0 `failures` there is no limit. `now` is a clock in seconds.

    A client that fails with new names all the time makes the throttle forget such names, but no
    name whose logins are refused. A user who logs in from new addresses all the time makes it
    forget only that user's addresses.
    """

    def __init__(self, failures: int, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._now = now
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        # Entries with refused logins, which are not in `_failures`.
        self._held: OrderedDict[_Key, _Failures] = OrderedDict()
        # The known addresses of each user.
        self._at_home: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def holds_off(self, transport: ClientTransport, username: str | None) -> bool:
        """Return whether a login of this client has to be refused unchecked."""
        if not self._held:
            return False
        now = self._now()
        for key in self._keys(transport, username):
            entry = self._held.get(key)
            if entry is not None and now < entry.until:
                return True
        return False

    def failed(self, transport: ClientTransport, username: str | None) -> None:
        """Count a failed login."""
        if not self._limit:
            return
        now = self._now()
        for key in self._keys(transport, username):
            entry = self._held.pop(key, None) or self._failures.pop(key, None) or _Failures(now)
            self._leak(entry, now)
            entry.level += 1.0
            if entry.level > self._limit - 1:
                seconds = min(LONGEST, FIRST * 2.0 ** min(entry.times, 32))
                entry.times += 1
                entry.until = now + seconds
                log.warning("logins held off", peer=transport.peer, key=key[0], seconds=seconds)
            table = self._held if entry.times else self._failures
            table[key] = entry
            _forget_the_oldest(table, MOST)

    def succeeded(self, transport: ClientTransport, username: str) -> None:
        """Record a login: forget the user's failures at this address, but not those of the
        address."""
        if not self._limit or not transport.host:
            return
        name = username[:_NAME]
        homes = self._at_home.pop(name, None)
        if homes is None:
            homes = OrderedDict()
        self._at_home[name] = homes
        homes.pop(transport.host, None)
        homes[transport.host] = None
        _forget_the_oldest(homes, HOMES)
        _forget_the_oldest(self._at_home, MOST)
        together = _together(transport.host, username)
        self._failures.pop(together, None)
        self._held.pop(together, None)

    def _leak(self, entry: _Failures, now: float) -> None:
        """Reduce the level by the time that has passed, except the time of refusal."""
        since = max(entry.at, min(entry.until, now))
        entry.level = max(0.0, entry.level - (now - since) * self._limit / _MINUTE)
        entry.at = now
        if entry.level == 0.0:
            entry.times = 0

    def _keys(self, transport: ClientTransport, username: str | None) -> list[_Key]:
        keys: list[_Key] = []
        if transport.host and not transport.loopback:
            keys.append(("address", network_of(transport.host)))
        if username:
            name = username[:_NAME]
            at_home = transport.host in self._at_home.get(name, ())
            keys.append(_together(transport.host, name) if at_home else ("user", name))
        return keys


def _together(host: str, username: str) -> _Key:
    return "user at home", f"{host} {username[:_NAME]}"


def network_of(host: str) -> str:
    """Return the network that belongs to one client: an IPv4 address, or an IPv6 /64 network."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _forget_the_oldest(entries: OrderedDict[Any, Any], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
