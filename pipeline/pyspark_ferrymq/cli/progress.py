"""Lines on the terminal for runs that take a while. On standard error, and only at a terminal."""

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

# Seconds before something appears: a short run needs none.
_PATIENCE: Final = 0.5


class Bar:
    """Counts messages, with a bar if it is known how many there will be."""

    def __init__(self, what: str, total: int | None) -> None:
        self.count = 0
        self._what = what
        self._total = total
        self._started = time.monotonic()
        self._progress: Progress | None = None

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._started

    def advance(self, count: int = 1) -> None:
        """So many more."""
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
    """Shows how a query gets on: its batch, rows, rows a second, and how far it is behind."""

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
        """A batch more is done."""
        behind = "" if step.behind is None else f", {step.behind:,} behind"
        self.say(
            f"batch {step.batch}, {step.total:,} rows, {step.rows_per_second:,.0f} rows/s{behind}"
        )
