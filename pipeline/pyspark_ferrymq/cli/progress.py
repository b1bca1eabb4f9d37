"""Progress lines for long runs, on standard error, and only if that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

if TYPE_CHECKING:
    from pyspark_ferrymq.pipelines.query_progress import Step

# Seconds before the bar appears: a short run needs none.
_PATIENCE: Final = 0.5


class Bar:
    """A counter of messages, with a bar if the total is known."""

    def __init__(self, what: str, total: int | None) -> None:
        self.count = 0
        self._what = what
        self._total = total
        self._started = time.monotonic()
        self._progress: Progress | None = None

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._started

    def advance(self, count: int = 1) -> None:
        """Count more messages."""
        self.count += count
        if self._progress is None:
            if not sys.stderr.isatty() or self.seconds < _PATIENCE:
                return
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
            self._progress.add_task(self._what, total=self._total, rate="")
            self._progress.start()
        rate = f"{self.count / self.seconds:,.0f}/s"
        self._progress.update(self._progress.task_ids[0], completed=self.count, rate=rate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


class Follower:
    """A status line of a query: its batch, rows, rows per second, and lag."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._console = Console(stderr=True)
        self._status = self._console.status(f"{what}: Spark starts")
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self._shown:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            self._status.stop()

    def say(self, text: str) -> None:
        """Show what is being done now."""
        self._status.update(f"{self._what}: {text}")

    def __call__(self, step: Step) -> None:
        """Show the progress after a batch."""
        behind = "" if step.behind is None else f", {step.behind:,} behind"
        self.say(
            f"batch {step.batch}, {step.total:,} rows, {step.rows_per_second:,.0f} rows/s{behind}"
        )
