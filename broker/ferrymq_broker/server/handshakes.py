"""TLS handshakes, a few at a time.

One takes about a millisecond of the event loop, and costs a client next to nothing to ask for. Were
they made as they come, whoever asks for a thousand at once would keep everybody else waiting for a
second. So they have a share of each round of the loop, and those who want one wait in line.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

# Seconds of a round of the event loop.
SHARE: Final = 0.004

_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, Handshakes] = WeakKeyDictionary()


class Handshakes:
    """Steps of handshakes, in the order they were asked for. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._waiting: deque[Callable[[], object]] = deque()
        # Whether a round is to come.
        self._awake = False

    @classmethod
    def of_this_loop(cls) -> Handshakes:
        """The one line of all that have TLS on the running event loop."""
        loop = asyncio.get_running_loop()
        line = _lines.get(loop)
        if line is None:
            line = _lines[loop] = cls()
        return line

    def ask(self, step: Callable[[], object]) -> None:
        """Have a step made soon: never before this returns."""
        self._waiting.append(step)
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Our share of this round."""
        until = self._clock() + SHARE
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._clock() >= until:
                    break
        finally:
            # Whatever became of one, the others have their turn.
            self._awake = bool(self._waiting)
            if self._awake:
                asyncio.get_running_loop().call_soon(self._work)
