"""A line on the terminal for runs that take a while."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

# Seconds before the line appears: a short run needs none.
PATIENCE: Final = 1.0


class RunProgress:
    """Counts messages, or whatever else there is many of; shows a line on standard error once the
    run has become a long one.

    Shows nothing when standard error is no terminal, or when `quiet`. `total` is how many there
    will be, None if that is unknown.
    """

    def __init__(self, what: str, total: int | None, quiet: bool = False) -> None:
        self.count = 0
        self._what = what
        self._total = total
        self._started = time.monotonic()
        self._visible = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """The run is over; the line goes."""
        self._visible = False
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return time.monotonic() - self._started

    def reach(self, what: str, count: int, total: int) -> None:
        """It is at this point of this part of the run; a `total` of 0 is not known."""
        self._what = what
        self._total = total or None
        self.count = count
        self.advance(0)

    def advance(self, count: int = 1) -> None:
        """So many messages more."""
        self.count += count
        if self._progress is not None:
            self._progress.update(
                self._task,
                description=self._what,
                completed=self.count,
                total=self._total,
                rate=f"{self.count / self.seconds:,.0f}/s",
            )
        elif self._visible and self.seconds >= PATIENCE:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._progress.add_task(
                self._what, total=self._total, completed=self.count, rate=""
            )
            self._progress.start()
