"""Waiting: a signal for all who wait, and errors that are raised more than once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

from ferrymq.aio.unseen import SentFuture
from ferrymq.durations import Duration, seconds
from ferrymq.errors import AmqpError, DeliveryError
from ferrymq.options import check_timeout

E = TypeVar("E", bound=AmqpError)

running_loop: Final = asyncio._get_running_loop
"""Return the event loop that runs in this thread; None if there is none."""


class Signal:
    """Signal that wakes every waiter. Waiters then check their condition again."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Return at the next `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def wake(self) -> None:
        """Wake all waiters."""
        waiters = self._waiters
        if waiters:
            self._waiters = []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)


class Deadline:
    """Block that has a number of seconds, None for any. When they are over, it raises
    `TimeoutError` with the text that `what` returns: it is called with "within N s"."""

    __slots__ = ("what", "_seconds", "_timeout")

    def __init__(self, length: float | None, what: Callable[[str], str]) -> None:
        self.what: Callable[[str], str] = what
        self._seconds = length
        self._timeout = asyncio.timeout(length)

    async def __aenter__(self) -> Deadline:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise TimeoutError(self.what(f"within {self._seconds:g} s")) from None


def deadline(
    timeout: Duration | None, what: Callable[[str], str] = lambda within: f"not done {within}"
) -> Deadline:
    """Bound a block by a duration, None for any; see `Deadline`. Raises ValueError for a negative
    one, TypeError for a value that is none."""
    check_timeout(timeout)
    return Deadline(seconds(timeout), what)


def fresh(error: E) -> E:
    """Return a copy to raise: one exception raised in many places would collect all their
    tracebacks."""
    # copy.copy is not usable: it calls the class with the message alone.
    twin = error.__class__.__new__(error.__class__, *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin


async def all_of(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await calls that run at the same time, and raise the first error. They all run to their ends,
    also if the caller is cancelled."""
    results = await asyncio.shield(asyncio.gather(*calls, return_exceptions=True))
    for result in results:
        if result is not None:
            raise result


async def all_accepted(futures: Sequence[asyncio.Future[None]]) -> None:
    """Wait for the outcomes of messages.

    Raises an `ExceptionGroup` of `DeliveryError`, each with a note that tells which message, when
    some were not accepted.
    """
    errors: dict[int, DeliveryError] = {}
    for index, future in enumerate(futures):
        try:
            await future
        except DeliveryError as error:
            errors[index] = error
    check_accepted(errors, len(futures))


def check_accepted(errors: dict[int, DeliveryError], count: int) -> None:
    """Raise an `ExceptionGroup` of the errors of some of `count` messages, which are given by their
    numbers, if there are any."""
    if errors:
        for index, error in errors.items():
            error.add_note(f"message {index} of {count}, counted from 0")
        raise ExceptionGroup(f"{len(errors)} of {count} were not accepted", list(errors.values()))


def give_up(futures: Iterable[asyncio.Future[None]]) -> None:
    """Cancel futures for which no call waits any longer, so that asyncio does not report the errors
    of failed ones."""
    for future in futures:
        if not future.cancel() and not future.cancelled():
            future.exception()


def resolve(future: asyncio.Future[None] | None, error: AmqpError | None = None) -> None:
    """Complete a future, unless it is done.

    An `error` says why a link, a session or the connection has ended, which is reported in other
    ways too: asyncio does not report such a future if its result is never read. One of
    `send_nowait` is counted, because its message is lost.
    """
    if future is not None and not future.done():
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(fresh(error))
            if not isinstance(future, SentFuture):
                future.exception()


def wrong_loop(owner: str, loop: asyncio.AbstractEventLoop) -> RuntimeError:
    """Return the error of a call to `owner`, an object of `loop`, from elsewhere."""
    if loop.is_closed():
        return RuntimeError(
            f"{owner} was made in an event loop that has ended: connect again in this one. "
            "asyncio.run makes a new loop for each call, so connect inside its coroutine"
        )
    here = "none" if asyncio._get_running_loop() is None else "another one"
    return RuntimeError(
        f"{owner} belongs to the event loop it was made in, and this thread runs {here}: use "
        "asyncio.run_coroutine_threadsafe(..., loop) with that loop, or ferrymq.blocking, whose "
        "connections work in all threads"
    )
