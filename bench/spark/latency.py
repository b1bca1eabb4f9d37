"""The part `query-latency`: a message's way through a query, from its send to its receipt.

Messages go at a steady rate into a stream, through a query with `processingTime` = 0 that writes
exactly once, into another stream, and to a receiver. The source and sink `ticks` show what of it is
Spark's. Each contender has a query of its own in every round, and is measured after its warm-up.
One more query runs before all of them, which compiles Java's code.
"""

from __future__ import annotations

import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.results import Comparison, Figure, Report
from ferrymq import Message, blocking

RATE: Final = 50
CASE: Final = f"{RATE} messages/s, exactly once"
TICKS: Final = "source and sink that do nothing"
STREAMS: Final = ("ticks-in", "ticks-out")
# Seconds of each query: before it is measured, and measured.
WARM_UP: Final = 20
MEASURED: Final = 30
# The demands, in milliseconds; and the ratio to `ticks` that is enough as well.
P50: Final = 350.0
P99: Final = 900.0
AT_MOST: Final = 1.5
CONFIGURATION: Final = "".join(f'\n[[stream]]\nname = "{name}"\n' for name in STREAMS)


def measure(
    session: SparkSession,
    report: Report,
    urls: dict[str, str],
    rounds: int,
    seconds: tuple[int, int],
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Measure all contenders in turn; `urls` has a broker for each but `ticks`. `seconds` are those
    of the warm-up and those measured."""
    found: dict[str, list[list[float]]] = {}
    say("a first query, which compiles Java's code")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        _through_spark(session, (WARM_UP, WARM_UP), Path(place))
    for turn in range(rounds):
        names = [*urls, TICKS]
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            say(f"{name}, round {turn + 1}")
            with tempfile.TemporaryDirectory(dir=folder) as place:
                one = (
                    _through_spark(session, seconds, Path(place))
                    if name == TICKS
                    else _through_broker(session, urls[name], seconds, Path(place))
                )
            if len(one) < RATE:
                report.failures.append(f"query-latency: {name}: only {len(one)} rows came")
                return
            found.setdefault(name, []).append(sorted(one))
    for name, runs in found.items():
        for part, demand in (("p50", P50), ("p99", P99)):
            values = [1000 * _quantile(run, int(part[1:])) for run in runs]
            wanted = None if name == TICKS else demand
            report.figures.append(Figure(CASE, f"{name}, {part}", "ms", values, wanted))
    for name in urls:
        for percent in (50, 99):
            ratio = statistics.median(
                _quantile(ours, percent) / _quantile(plain, percent)
                for ours, plain in zip(found[name], found[TICKS], strict=True)
            )
            report.comparisons.append(
                Comparison(CASE, f"{name}, p{percent}", TICKS, ratio, at_most=AT_MOST)
            )


def _quantile(run: list[float], percent: int) -> float:
    return run[min(len(run) - 1, len(run) * percent // 100)]


def _through_spark(session: SparkSession, seconds: tuple[int, int], folder: Path) -> list[float]:
    out = Path(folder, "latencies")
    frame = session.readStream.format("ticks").option("rate", RATE).load()
    query = _start(frame, "ticks", {"out": str(out)}, folder)
    begin = _live(query, seconds)
    rows = [line.split() for line in out.read_text("utf-8").splitlines()]
    return [float(latency) for at, latency in rows if float(at) >= begin]


def _through_broker(
    session: SparkSession, url: str, seconds: tuple[int, int], folder: Path
) -> list[float]:
    source, target = STREAMS
    found: list[tuple[float, float]] = []
    over = threading.Event()

    def send() -> None:
        with blocking.connect(url) as connection:
            sender = connection.sender(source)
            due = time.monotonic()
            while not over.is_set():
                sender.send(Message(struct.pack(">d", time.time())))
                due += 1 / RATE
                over.wait(max(0.0, due - time.monotonic()))

    def receive() -> None:
        with blocking.connect(url) as connection:
            receiver = connection.receiver(target)
            while not over.is_set():
                try:
                    delivery = receiver.receive(timeout=1)
                except TimeoutError:
                    continue
                now = time.time()
                found.append((now, now - struct.unpack(">d", delivery.message.body)[0]))
                delivery.accept()

    frame = (
        session.readStream.format("amqp")
        .options(url=url, subscribe=source)
        .schema("body binary")
        .load()
    )
    threads = [threading.Thread(target=work) for work in (receive, send)]
    for thread in threads:
        thread.start()
    try:
        begin = _live(_start(frame, "amqp", {"url": url, "address": target}, folder), seconds)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return [latency for at, latency in found if at >= begin]


def _start(frame: DataFrame, sink: str, options: dict[str, str], folder: Path) -> StreamingQuery:
    writer = frame.writeStream.format(sink).options(**options)
    writer = writer.option("checkpointLocation", str(Path(folder, "checkpoint")))
    return writer.trigger(processingTime="0 seconds").start()


def _live(query: StreamingQuery, seconds: tuple[int, int]) -> float:
    """Run a query for its warm-up and the measured time; return when the measured time began."""
    warm_up, measured = seconds
    query.awaitTermination(warm_up)
    begin = time.time()
    query.awaitTermination(measured)
    query.stop()
    return begin
