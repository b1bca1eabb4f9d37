"""Waiting: for a time, for what calls back (the shared journal), and for calls in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from ferrymq_broker.replication.shared_journal import Done
from ferrymq_broker.store.executor import Executor

T = TypeVar("T")
Cancel: TypeAlias = Callable[[], None]
# Calls a function after some seconds; returns a function that cancels that.
Later: TypeAlias = Callable[[float, Callable[[], None]], Cancel]


def ask(call: Callable[[Done[T]], None]) -> asyncio.Future[T]:
    """Make a call of the shared journal. The future has its result, or raises its error."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T | Exception) -> None:
        if future.done():
            # Nobody waits any more.
            return
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    call(done)
    return future


def in_thread(executor: Executor, call: Callable[[], T]) -> asyncio.Future[T]:
    """Make a long call in the executor's thread for commits. The future has its result, or raises
    its error. If the future is cancelled, the call goes on."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    results: list[T] = []

    def done(error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(results[0])

    executor.commit(lambda: results.append(call()), done)
    return future


def forget(future: asyncio.Future[T]) -> None:
    """Cancel a future whose result nobody needs."""
    if not future.cancel() and not future.cancelled():
        # An error that nobody looks at would be logged.
        future.exception()
