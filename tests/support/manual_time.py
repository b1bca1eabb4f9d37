"""A clock and timers that a test moves, in an event loop that is real."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from ferrymq_broker.clock import Clock

# Turns of the event loop in which everything that is due happens.
_TURNS = 20


class ManualTime(Clock):
    """A clock for leases, `boottime`, with timers. Other clocks go on as always."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._cancelled: set[int] = set()

    def boottime(self) -> float:
        return self.seconds

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call a function after some seconds, and return a function that cancels it."""
        if seconds <= 0.0:
            return asyncio.get_running_loop().call_soon(call).cancel
        number = next(self._numbers)
        heapq.heappush(self._timers, (self.seconds + seconds, number, call))
        return lambda: self._cancelled.add(number)

    def _run_due(self) -> None:
        while self._timers and self._timers[0][0] <= self.seconds:
            _, number, call = heapq.heappop(self._timers)
            if number not in self._cancelled:
                call()

    async def turn(self) -> None:
        """Let everything happen that is due now, threads excepted."""
        for _ in range(_TURNS):
            self._run_due()
            await asyncio.sleep(0)

    async def advance(self, seconds: float, step: float = 0.05) -> None:
        """Let the time pass."""
        end = self.seconds + seconds
        while self.seconds < end - 1e-9:
            self.seconds = min(end, self.seconds + step)
            await self.turn()

    async def until(self, condition: Callable[[], object], seconds: float = 0.0) -> None:
        """Wait until a condition holds, while at most so many seconds of this clock pass."""
        async with asyncio.timeout(20):
            while not condition():
                if seconds > 0:
                    seconds -= 0.05
                    await self.advance(0.05)
                    # Threads that open and close stores have to come to their turn.
                    await asyncio.sleep(0.001)
                else:
                    self._run_due()
                    await asyncio.sleep(0)
