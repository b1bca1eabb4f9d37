"""Waiting for a query, and reports of its progress."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark_ferrymq.offsets import Offset, name_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# Seconds between two checks of the query.
_LOOK: Final = 0.3


@dataclass(frozen=True, slots=True)
class Step:
    """A finished batch, of `streams`. `behind` counts records that were available but not read, if
    known."""

    batch: int
    rows: int
    total: int
    rows_per_second: float
    seconds: float
    behind: int | None
    streams: tuple[str, ...] = ()


@dataclass(slots=True)
class Course:
    """All batches so far. `dropped` says whether rows came too late for the watermark. Spark does
    not tell how many: it counts them only after a first aggregation."""

    steps: list[Step] = field(default_factory=list)
    dropped: bool = False

    @property
    def rows(self) -> int:
        """The number of rows read."""
        return self.steps[-1].total if self.steps else 0

    @property
    def seconds(self) -> float:
        """The total duration of the batches that had rows."""
        return sum(step.seconds for step in self.steps)


def follow(
    query: StreamingQuery,
    tell: Callable[[Step], None] | None = None,
    course: Course | None = None,
) -> Course:
    """Wait until the query ends, and return its batches, also in `course` if one is given.

    Ctrl-C stops the query, and is raised again after that. Raises the query's error.
    """
    course = Course() if course is None else course
    seen: set[int] = set()
    with _interrupts() as interrupted:
        try:
            # PySpark accepts fractions of a second, although it declares an integer.
            while not query.awaitTermination(_LOOK):  # type: ignore[arg-type]
                _look(query, course, seen, tell)
                if interrupted.is_set():
                    break
        finally:
            if query.isActive:
                query.stop()
        _look(query, course, seen, tell)
    if interrupted.is_set():
        raise KeyboardInterrupt
    return course


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Provide an event that Ctrl-C and SIGTERM set instead of raising an exception. An exception in
    the middle of a call to Java would break the connection to it."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: interrupted.set()) for number in numbers]
    try:
        yield interrupted
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _look(
    query: StreamingQuery,
    course: Course,
    seen: set[int],
    tell: Callable[[Step], None] | None,
) -> None:
    for progress in query.recentProgress:
        batch, rows = progress["batchId"], progress["numInputRows"]
        if batch in seen or rows == 0:
            continue
        seen.add(batch)
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        step = Step(
            batch=batch,
            rows=rows,
            total=course.rows + rows,
            rows_per_second=rows / seconds if seconds else 0.0,
            seconds=seconds,
            behind=behind(progress["sources"]),
            streams=_streams(progress["sources"]),
        )
        course.steps.append(step)
        if tell is not None:
            tell(step)
    course.dropped = course.dropped or any(
        operator["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for operator in progress["stateOperators"]
    )


def behind(sources: list[Any]) -> int | None:
    """Return how many records were available after the end of a batch; None if unknown."""
    count = 0
    for source in sources:
        latest, end = _offsets(source["latestOffset"]), _offsets(source["endOffset"])
        if latest is None or end is None:
            return None
        count += sum(max(0, offset - end.get(place, 0)) for place, offset in latest.items())
    return count


def _streams(sources: list[Any]) -> tuple[str, ...]:
    places = {place for source in sources for place in _offsets(source["endOffset"]) or {}}
    return tuple(sorted({name_of(key) for key, _ in places}))


def _offsets(text: object) -> dict[tuple[str, int], int] | None:
    try:
        found: Any = json.loads(text) if isinstance(text, str) else text
        return {(name, number): offset for name, number, offset in Offset.from_json(found)}
    except ValueError:
        return None
