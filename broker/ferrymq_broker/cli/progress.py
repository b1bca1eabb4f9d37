"""A progress line on the terminal for long runs."""

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

# Seconds before the line appears.
PATIENCE: Final = 1.0


class RunProgress:
    """A counter of messages or other items, with a progress line on standard error in long runs.

    It shows nothing if standard error is no terminal, or if `quiet`. `total` is the expected
    number; None if it is unknown.
    """

    def __init__(self, what: str, total: int | None, quiet: bool = False) -> None:
        self.count: int = 0
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
        """End the run, and remove the line."""
        self._visible = False
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    @property
    def seconds(self) -> float:
        """The seconds since the start of the run."""
        return time.monotonic() - self._started

    def reach(self, what: str, count: int, total: int) -> None:
        """Show the progress of a part of the run. A `total` of 0 is unknown."""
        self._what = what
        self._total = total or None
        self.count = count
        self.advance(0)

    def advance(self, count: int = 1) -> None:
        """Count further items."""
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
