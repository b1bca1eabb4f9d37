"""Cancelling a coroutine at any of its awaits.

A coroutine suspends at a number of steps that is the same in every run. `Stepped` cancels the task
that awaits it at one of them, and remembers which functions of the client were suspended there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from enum import Enum
from pathlib import Path
from typing import Any, Final

import ferrymq.aio

AIO: Final = str(Path(ferrymq.aio.__file__).parent)


class Moment(Enum):
    """When a step is cancelled.

    `EARLY`: at once, so that the answer finds nobody. `LATE`: when what it waits for has happened,
    and before it is told. `AGAIN`: at once, and so is every later step of the clean-up.
    """

    EARLY = "early"
    LATE = "late"
    AGAIN = "again"


class Stepped:
    """Awaits a coroutine and cancels it at a step, counted from 1. `steps` is how many it has made,
    `suspended` the functions of the client (file and name) that were suspended at the last of them,
    and `visited` at any."""

    def __init__(self, work: Coroutine[Any, Any, None], step: int, moment: Moment) -> None:
        self.steps = 0
        self.suspended: set[tuple[str, str]] = set()
        self.visited: set[tuple[str, str]] = set()
        self._work = work
        self._step = step
        self._moment = moment

    @property
    def struck(self) -> bool:
        """Whether it came to the step at which it was cancelled."""
        return self.steps >= self._step

    def __await__(self) -> Generator[Any, None, None]:
        error: BaseException | None = None
        while True:
            try:
                waited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration:
                return
            self.steps += 1
            self.suspended = suspended(self._work)
            self.visited |= self.suspended
            if self.steps == self._step or (self.struck and self._moment is Moment.AGAIN):
                self._cancel(waited)
            error = None
            try:
                yield waited
            except BaseException as raised:
                error = raised

    def _cancel(self, waited: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._moment is Moment.LATE and waited is not None:
            # Before the task's own callback, which is added when the future reaches it.
            waited.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()


def suspended(work: Any) -> set[tuple[str, str]]:
    """The functions of the client in a chain of awaits, by file and qualified name."""
    found: set[tuple[str, str]] = set()
    while work is not None:
        code = getattr(work, "cr_code", None) or getattr(work, "ag_code", None)
        if code is not None and code.co_filename.startswith(AIO):
            found.add((Path(code.co_filename).name, code.co_qualname))
        work = getattr(work, "cr_await", None) or getattr(work, "ag_await", None)
    return found
