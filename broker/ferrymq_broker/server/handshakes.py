"""TLS handshakes, a few at a time.

A handshake takes about a millisecond of the event loop, and costs a client almost nothing to start.
Without a limit, a client that starts a thousand handshakes at once would make all other clients
wait for a second. So handshakes get only a share of each round of the event loop, and wait in a
queue.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

# The share of a round of the event loop, in seconds.
SHARE: Final = 0.004

_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, Handshakes] = WeakKeyDictionary()


class Handshakes:
    """A queue of handshake steps. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        # Whether the event loop has been asked to call `_work`.
        self._awake = False

    @classmethod
    def of_this_loop(cls) -> Handshakes:
        """Return the queue of the running event loop, which all TLS connections share."""
        loop = asyncio.get_running_loop()
        queue = _queues.get(loop)
        if queue is None:
            queue = _queues[loop] = cls()
        return queue

    def ask(self, step: Callable[[], object]) -> None:
        """Add a step, which is called later, never before this returns."""
        self._waiting.append(step)
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Do steps for the share of this round."""
        until = self._clock() + SHARE
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._clock() >= until:
                    break
        finally:
            # Go on with the other steps even if one raised.
            self._awake = bool(self._waiting)
            if self._awake:
                asyncio.get_running_loop().call_soon(self._work)
