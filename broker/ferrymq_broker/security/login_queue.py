"""Slow work of logins, one after the other, in a thread of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

# Who waits: at 20 ms for each that is less than the time that a client has to come in.
MOST: Final = 256
# Of those, how many of one address.
MOST_OF_ONE: Final = 64

T = TypeVar("T")


class LoginQueueFullError(Exception):
    """So many wait already that nobody else may."""


class LoginQueue:
    """Does one thing at a time: however many log in, they take one processor, and the memory of
    one slow hash. At most `most` wait, and `most_of_one` of the same origin."""

    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._origins: Counter[str] = Counter()
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "ferrymq-logins")

    @asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[None]:
        """Wait for one's turn, and have it. An empty origin may have all the room there is.

        Raises `LoginQueueFullError`.
        """
        if self._waiting >= self._most or (origin and self._origins[origin] >= self._most_of_one):
            raise LoginQueueFullError
        self._waiting += 1
        self._origins[origin] += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1
            self._origins[origin] -= 1
            if not self._origins[origin]:
                del self._origins[origin]

    async def do(self, work: Callable[[], T]) -> T:
        """What `work` returns, from the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Nothing more is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)
