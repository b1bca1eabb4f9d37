"""Holds off whoever fails to log in too often, so that passwords cannot be tried out.

Failures are counted by address, and by user. A user whose name somebody else tries is not locked
out: from addresses from which he has logged in before, his failures are counted apart. On loopback
listeners addresses are not counted, for one program would hold off all the others; users are.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.event_log import log

# In seconds: how long somebody is held off at first; it doubles each time, up to the longest.
FIRST: Final = 1.0
LONGEST: Final = 60.0
# Addresses and users that failures are remembered of: those that were held off, and the others; and
# users of whom it is known from where they have logged in.
MOST: Final = 10_000
# Places that one user has logged in from.
HOMES: Final = 100
_MINUTE: Final = 60.0
# Characters of a name that count.
_NAME: Final = 256

_Key = tuple[str, str]


class _Failures:
    """A leaky bucket: a full one holds off, and an empty one is as good as none."""

    __slots__ = ("at", "level", "times", "until")

    def __init__(self, now: float) -> None:
        self.level = 0.0
        self.at = now
        self.times = 0
        self.until = now


class Throttle:
    """After `failures` in a minute of one address, or for one user, further logins are refused
    without a look at them: for a second at first, then for longer and longer, up to a minute.

    With 0 `failures` nobody is ever held off. `now` is a clock
    in seconds.

    Whoever fails with ever new names makes the throttle forget such names, and none that has been
    held off. Whoever logs in from ever new places makes it forget his own.
    """

    def __init__(self, failures: int, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._now = now
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()
        # Those of `_failures` that have been held off are here instead.
        self._held: OrderedDict[_Key, _Failures] = OrderedDict()
        # The places of each user.
        self._at_home: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def holds_off(self, transport: ClientTransport, username: str | None) -> bool:
        """Whether a login of this client is not to be looked at."""
        if not self._held:
            return False
        now = self._now()
        for key in self._keys(transport, username):
            entry = self._held.get(key)
            if entry is not None and now < entry.until:
                return True
        return False

    def failed(self, transport: ClientTransport, username: str | None) -> None:
        """A login that was looked at was wrong."""
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
        """Somebody has logged in: his own failures are forgotten, those of his address are not."""
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
        """Time heals; while somebody is held off it does not."""
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
    """What one client has: an address, or with IPv6 a whole network of them."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def _forget_the_oldest(entries: OrderedDict[Any, Any], most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
