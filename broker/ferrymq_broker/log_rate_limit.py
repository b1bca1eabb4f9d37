"""Rate limits of log entries that clients cause."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# The number of clients whose entries are counted. Above it, the clients that were idle longest are
# forgotten.
_MOST: Final = 4096


class _Account:
    __slots__ = ("allowance", "at", "left_out")

    def __init__(self, allowance: float, at: float) -> None:
        self.allowance = allowance
        self.at = at
        self.left_out = 0


class LogRateLimiter:
    """A rate limit: `burst` entries of each client at once, and then `rate` entries a second.

    `clock` returns seconds.
    """

    def __init__(
        self, burst: int, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = float(burst)
        self._rate = rate
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def let(self, client: str, before: int = 0) -> int | None:
        """Count an entry of this client. `before` entries were left out for other reasons.

        Return how many entries were left out before this one; None if this one has to be left out.
        """
        now = self._clock()
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = _Account(self._burst, now)
            if len(self._accounts) > _MOST:
                self._accounts.popitem(last=False)
        else:
            self._accounts.move_to_end(client)
            earned = (now - account.at) * self._rate
            account.allowance = min(self._burst, account.allowance + earned)
            account.at = now
        if account.allowance < 1.0:
            account.left_out += 1 + before
            return None
        account.allowance -= 1.0
        left_out, account.left_out = account.left_out, 0
        return left_out + before

    def end(self, client: str) -> int:
        """Forget a client, and return how many of its entries were left out since the last one."""
        account = self._accounts.pop(client, None)
        return 0 if account is None else account.left_out


def host_of(peer: str) -> str:
    """Return the address of a client without its port."""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdigit() else peer
