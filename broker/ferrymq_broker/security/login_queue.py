"""A queue for slow work of logins, in a thread of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

# The most waiting logins. At 20 ms each that is less than the time a client has for its login.
MOST: Final = 256
# The most of them from one address.
MOST_OF_ONE: Final = 64

T = TypeVar("T")


class LoginQueueFullError(Exception):
    """An exception: too many logins are waiting already."""


class LoginQueue:
    """A queue that does one thing at a time: logins together use only one processor, and the memory
    of one slow hash. At most `most` logins wait, and `most_of_one` from the same origin."""

    def __init__(self, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._origins: Counter[str] = Counter()
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "ferrymq-logins")

    @asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it in the context. An empty origin has no limit of its own.

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
        """Run `work` in the thread, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Stop the thread, and drop waiting work."""
        self._thread.shutdown(wait=False, cancel_futures=True)
