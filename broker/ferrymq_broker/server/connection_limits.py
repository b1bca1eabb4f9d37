"""How many connections there are, of all clients and of each address; who gets no more.

A connection has its place from the moment it is accepted, before it has said a word, until its
transport is gone, however that comes about. Users are counted elsewhere
(`connections/client_limits.py`): who somebody is turns out later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from ferrymq_broker.counters import Counters

# File descriptors that are kept for the store, for monitoring, for configuration read again.
RESERVE: Final = 24


def descriptor_limit() -> int:
    """How many file descriptors this process may have now; 0 if nobody says."""
    try:
        import resource
    except ImportError:  # pragma: no cover - there is none on Windows
        return 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Let this process have as many file descriptors as it is allowed to ask for: the lower limit
    that most systems begin with is for programs that cannot count beyond 1024."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _descriptors_in_use() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        # Not Linux: what a broker has before its first connection.
        return RESERVE


class ConnectionLimits:
    """The connections of one server. `total` and `per_address` are the limits, 0 for none."""

    def __init__(self, total: int, per_address: int, counters: Counters) -> None:
        self.total = total
        self.per_address = per_address
        self._counters = counters
        self._host_of: dict[object, str] = {}
        self._of_host: dict[str, int] = {}
        # What is taken when there is no connection yet.
        self._taken = RESERVE
        # Those that have stopped accepting, and want to hear of a place.
        self._waiting: list[Callable[[], object]] = []

    def begin(self) -> None:
        """The server is about to listen: what it has open now it needs for other things."""
        self._taken = _descriptors_in_use() + RESERVE

    def __len__(self) -> int:
        return len(self._host_of)

    def of(self, host: str) -> int:
        """The connections from this address."""
        return self._of_host.get(host, 0)

    def has_descriptors(self) -> bool:
        """Whether one more connection leaves enough descriptors for everything else. The first
        always does."""
        limit = descriptor_limit()
        return limit == 0 or len(self._host_of) < max(1, limit - self._taken)

    def enter(self, who: object, host: str) -> bool:
        """Give `who`, which comes from this address, a place; False if there is none, which is
        counted."""
        if self.total and len(self._host_of) >= self.total:
            self._counters.connections_refused_total += 1
            return False
        count = self._of_host.get(host, 0)
        if self.per_address and host and count >= self.per_address:
            self._counters.connections_refused_address += 1
            return False
        self._host_of[who] = host
        self._of_host[host] = count + 1
        return True

    def leave(self, who: object) -> None:
        """It is gone, if it was ever there."""
        host = self._host_of.pop(who, None)
        if host is None:
            return
        count = self._of_host[host] - 1
        if count:
            self._of_host[host] = count
        else:
            del self._of_host[host]
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def wait(self, call: Callable[[], object]) -> None:
        """Have `call` called when a connection has gone."""
        self._waiting.append(call)
