"""The part `query-memory`: the memory that many records need on their way, read and written once.

A stream in the broker's store is read into Parquet files, and as many rows are written to a stream
with fences. While that runs, a thread looks at the resident memory of all processes.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from bench.results import Figure, Report
from bench.rows import spaced
from bench.spark.archive import rows_in
from bench.spark.cpu import Times, processes_below
from bench.spark.reading import NARROW, Shape, amqp, frame
from bench.spark.sink import Sinks
from bench.spark.turns import COST, first_line
from ferrymq.arrow import DEFAULT

# Seconds between two looks.
_PAUSE: Final = 0.2
MEMORY: Final = "MiB"


class Peaks(NamedTuple):
    """The highest resident memory in MiB: of the broker, of Java, of the largest Python worker, and
    of all Python workers together, whose shared pages count for each."""

    broker: float
    java: float
    worker: float
    workers: float


def measure(
    session: SparkSession,
    report: Report,
    url: str,
    rows: int,
    folder: Path,
    pids: tuple[int, int],
    times: Callable[[], Times],
    say: Callable[[str], None],
) -> None:
    """Move all records once in each way. `pids` are those of the broker and of Java."""
    defaults = Shape("default columns", tuple(DEFAULT), None)
    sinks = Sinks(session, {"ferrymq": url}, rows, folder)
    cases: list[tuple[str, Callable[[], int]]] = [
        ("source to Parquet, body and position", partial(_parquet, session, folder, url, NARROW)),
        ("source to Parquet, default columns", partial(_parquet, session, folder, url, defaults)),
        ("sink, batch", partial(sinks.batch, url)),
        ("sink, streaming", partial(sinks.streaming, url)),
    ]
    for name, run in cases:
        case = f"{spaced(rows)} records: {name}"
        say(case)
        before = times()
        try:
            with _peaks(*pids) as peaks:
                count = run()
            used = times().since(before)
            if count != rows:
                raise ValueError(f"{count} rows came")
        except Exception as error:
            # Errors of Spark have no common class besides this one. The next case may succeed.
            told = f"{case}: {first_line(error)}"
            say(f"FAILED: {told}")
            report.failures.append(told)
            continue
        most = peaks()
        for what, value in most._asdict().items():
            report.figures.append(Figure(case, f"peak: {_NAMES[what]}", MEMORY, [value]))
        for what, seconds in used._asdict().items():
            cost = Figure(case, f"processor time: {what}", COST, [1e6 * seconds / rows])
            report.figures.append(cost)
        shown = [f"{what} {value:.0f} MiB" for what, value in most._asdict().items()]
        shown += [
            f"{what} {1e6 * value / rows:.1f} µs/row" for what, value in used._asdict().items()
        ]
        say(f"{case}: {', '.join(shown)}")


_NAMES: Final = {
    "broker": "broker",
    "java": "Java",
    "worker": "largest Python worker",
    "workers": "Python workers together",
}


def _parquet(session: SparkSession, folder: Path, url: str, shape: Shape) -> int:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        out = Path(own, "out")
        frame(session, amqp(url), shape).write.parquet(str(out))
        return rows_in(out)


@contextmanager
def _peaks(broker: int, java: int) -> Iterator[Callable[[], Peaks]]:
    """Look at memory while the block runs; the function returned gives the peaks."""
    highest = [Peaks(0.0, 0.0, 0.0, 0.0)]
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            workers = [_resident(pid) for pid in processes_below(java)]
            now = (_resident(broker), _resident(java), max(workers, default=0.0), sum(workers))
            highest[0] = Peaks(*map(max, highest[0], now))
            ended.wait(_PAUSE)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: highest[0]
    finally:
        ended.set()
        thread.join()


def _resident(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0
