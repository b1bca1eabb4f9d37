"""Limits of connections: for all clients, and for each address.

A connection counts from when it is accepted, before the client has sent anything, until its
transport has ended. Connections of users are counted in `connections/client_limits.py`, because the
user is known only after the login.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from ferrymq_broker.counters import Counters

# File descriptors reserved for the store, for monitoring, and for reading configuration again.
RESERVE: Final = 24


def descriptor_limit() -> int:
    """Return how many file descriptors this process may have; 0 if there is no known limit."""
    try:
        import resource
    except ImportError:  # pragma: no cover - there is none on Windows
        return 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors to the highest that is allowed. The lower default of most
    systems exists for programs that use `select` and cannot handle descriptors above 1024."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _descriptors_in_use() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        # Not Linux: an estimate of what a broker has before its first connection.
        return RESERVE


class ConnectionLimits:
    """The connections of one server. `total` and `per_address` are the limits; 0 is no limit.

    `shared` has two numbers of each worker of a broker, in two halves, those of this worker at
    `place`: how many connections it has, and how many it has passed to others less those that it
    has taken from others. The sum is what all have, and what is on its way between them. Relays
    have a place here, but the worker to which they relay counts their connections.
    """

    def __init__(
        self,
        total: int,
        per_address: int,
        counters: Counters,
        shared: memoryview[int] | list[int] | None = None,
        place: int = 0,
    ) -> None:
        self.total = total
        self.per_address = per_address
        self._counters = counters
        self._shared: memoryview[int] | list[int] = [0, 0] if shared is None else shared
        self._place = place
        self._place_passed = len(self._shared) // 2 + place
        self._relays: set[object] = set()
        self._host_of: dict[object, str] = {}
        self._of_host: dict[str, int] = {}
        # Descriptors that are used for other things than connections.
        self._taken = RESERVE
        # Called when a connection ends, for acceptors that have stopped accepting.
        self._waiting: list[Callable[[], object]] = []

    def begin(self) -> None:
        """Count the descriptors in use before the server listens, which are not for connections."""
        self._taken = _descriptors_in_use() + RESERVE

    def __len__(self) -> int:
        return len(self._host_of)

    def of(self, host: str) -> int:
        """Return the number of connections from this address."""
        return self._of_host.get(host, 0)

    def has_descriptors(self) -> bool:
        """Return whether one more connection leaves enough descriptors for other things. The first
        connection is always allowed."""
        limit = descriptor_limit()
        return limit == 0 or len(self._host_of) < max(1, limit - self._taken)

    def enter(self, who: object, host: str) -> bool:
        """Count the connection `who` from this address. Return False, and count a refusal, if it is
        over a limit."""
        total = self.total
        if total and sum(self._shared) >= total:
            self._counters.connections_refused_total += 1
            return False
        if not self._enter(who, host):
            return False
        if total and sum(self._shared) > total:
            # Another worker has taken the last place at the same time.
            self.leave(who)
            self._counters.connections_refused_total += 1
            return False
        return True

    def adopt(self, who: object, host: str) -> bool:
        """Count the connection `who`, which another worker has passed on. Return False if this
        address has too many here, or there is no descriptor for it."""
        has_place = self.has_descriptors() and self._enter(who, host)
        self._shared[self._place_passed] -= 1
        return has_place

    def lose(self) -> None:
        """Stop counting a connection that was lost on its way from another worker."""
        self._shared[self._place_passed] -= 1

    def pass_on(self, who: object, relayed: bool) -> None:
        """Count the connection `who` as one on its way to another worker. It stays here if it is
        `relayed`."""
        self._shared[self._place_passed] += 1
        if relayed:
            self._relays.add(who)
            self._publish()
        else:
            self.leave(who)

    def _enter(self, who: object, host: str) -> bool:
        count = self._of_host.get(host, 0)
        if self.per_address and host and count >= self.per_address:
            self._counters.connections_refused_address += 1
            return False
        self._host_of[who] = host
        self._of_host[host] = count + 1
        self._publish()
        return True

    def _publish(self) -> None:
        self._shared[self._place] = len(self._host_of) - len(self._relays)

    def hand_over(self, who: object, successor: object) -> None:
        """Count `successor` from now on for the connection `who`, if that was counted."""
        host = self._host_of.pop(who, None)
        if host is not None:
            self._host_of[successor] = host

    def leave(self, who: object) -> None:
        """Stop counting a connection that has ended, if it was counted."""
        host = self._host_of.pop(who, None)
        if who in self._relays:
            # Inside a WebSocket it is not counted itself: the WebSocket around it is.
            self._relays.discard(who)
            self._publish()
        if host is None:
            return
        self._publish()
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
        """Call `call` when a connection ends."""
        self._waiting.append(call)
