"""Loops that attach a receiver, take its messages and close it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine
from opcode import opmap
from types import TracebackType
from typing import Any, Final

from ferrymq.aio.delivery import Delivery
from ferrymq.aio.opening import Iterated, Opening
from ferrymq.aio.receiver import Receiver

# With these instructions CPython drops the iterator of a loop that `break` or `return` leaves. No
# exception can come from them.
_POPS: Final = [opmap[name] for name in ("POP_TOP", "POP_ITER") if name in opmap]


class OpeningReceiver(Iterated, Opening[Receiver]):
    """Receiver that is not attached yet; ``async for`` attaches, iterates and closes it.

    If the loop is left early, the receiver is closed when the iterator is finalised, which in a
    coroutine is at once; use ``async with`` to say so explicitly. A message that was in the hands
    of the loop's body then, without an outcome, is given back: as failed if an exception has left
    the body, else as released.
    """

    __slots__ = ()

    def __aiter__(self) -> AsyncGenerator[Delivery, None]:
        return _Loop(self)


class _Left:
    """How a loop was left. `failed` says whether by an exception that ends no program."""

    failed = False


class _Loop(AsyncGenerator[Delivery, None]):
    """Iterator that one loop uses. Python drops it when the loop is left, while the frame of the
    loop still shows how."""

    def __init__(self, opening: OpeningReceiver) -> None:
        self._closed = False
        self._left = _Left()
        self._deliveries = _deliveries(opening, self._left)

    def __del__(self) -> None:
        if not self._closed:
            self._left.failed = not _leaves_by_statement(sys._getframe(1))

    def __aiter__(self) -> AsyncGenerator[Delivery, None]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Delivery]:
        return self._deliveries.__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, Delivery]:
        """Return the next delivery."""
        return self._deliveries.asend(value)

    def athrow(
        self,
        kind: Any,
        error: Any = None,
        traceback: TracebackType | None = None,
    ) -> Coroutine[Any, Any, Delivery]:
        """Raise an exception where the iterator waits."""
        return self._deliveries.athrow(kind, error, traceback)

    def aclose(self) -> Coroutine[Any, Any, None]:
        """Give back the message in hand and close the receiver."""
        if not self._closed:
            self._closed = True
            # A block that closes the iterator, such as contextlib.aclosing, handles the exception.
            self._left.failed = isinstance(sys.exception(), Exception)
        return self._deliveries.aclose()


async def _deliveries(opening: OpeningReceiver, how: _Left) -> AsyncGenerator[Delivery, None]:
    task = asyncio.current_task()
    receiver = await opening.open()
    try:
        async for delivery in receiver:
            try:
                yield delivery
            except GeneratorExit as left:
                failed = how.failed and not _is_cancelled(task)
                delivery.give_back(Exception("left") if failed else left)
                raise
    finally:
        await receiver.close()


def _is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    if task is None:
        return False
    return task.cancelled() if task.done() else task.cancelling() > 0


def _leaves_by_statement(frame: Any) -> bool:
    """Return whether a frame that drops the iterator of its loop does so for a `break` or
    `return`, and not for an exception."""
    return frame is not None and frame.f_code.co_code[frame.f_lasti] in _POPS
