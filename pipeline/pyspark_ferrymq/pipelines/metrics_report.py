"""The report of a metrics run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_ferrymq.report.page import Page
from pyspark_ferrymq.report.plots import Points, lines, stacked

if TYPE_CHECKING:
    from pyspark.sql import Row

    from pyspark_ferrymq.pipelines.metrics import Measured, MetricsOptions

# The highest number of rows in the last table; the plots have all rows.
_ROWS = 500


def write_report(path: Path, measured: Measured, options: MetricsOptions, what: str) -> None:
    """Write the report. Raises `AmqpSourceError` if the file cannot be written."""
    rows = sorted(measured.rows, key=lambda row: (row["start"], row["address"]))
    made = datetime.now(UTC)
    page = Page("Metrics", f"{what}, windows of {options.window}, by the time {_TIMES[options.by]}")
    total = _sum(rows, "messages")
    page.facts(
        [
            ("messages", total),
            ("MiB of bodies", _sum(rows, "bytes") / 1024 / 1024),
            ("addresses", len({row["address"] for row in rows})),
            ("windows", len({row["start"] for row in rows})),
            (f"late, by more than {options.late}", _sum(rows, "late")),
            ("twice in a window", _sum(rows, "duplicates")),
        ]
    )
    if measured.course.dropped:
        page.paragraph(
            f"Some messages came later than the watermark of {options.watermark} allows: they are"
            " not counted."
        )
    if rows:
        _plots(page, rows, options)
    page.heading("By address")
    page.table(
        ("address", "messages", "MiB", "bytes each", "worst p95, ms", "late", "twice"),
        [_total(address, [row for row in rows if row["address"] == address])
         for address in sorted({row["address"] for row in rows})],
    )  # fmt: skip
    page.heading("By window" + (f": the last {_ROWS}" if len(rows) > _ROWS else ""))
    page.table(
        ("from", "address", "messages", "KiB", "p50, ms", "p95, ms", "p99, ms", "late", "twice"),
        [
            (
                row["start"], row["address"], row["messages"], row["bytes"] // 1024,
                row["p50"], row["p95"], row["p99"], row["late"], row["duplicates"],
            )
            for row in rows[-_ROWS:]
        ],
    )  # fmt: skip
    page.write(path, made)


_TIMES = {"enqueued": "at which the broker appended them", "created": "at which they were created"}


def _plots(page: Page, rows: list[Row], options: MetricsOptions) -> None:
    seconds = (rows[0]["end"] - rows[0]["start"]).total_seconds()
    time = "start of the window, UTC"
    page.heading("Throughput")
    page.plot(stacked("Messages a second", time, "messages/s",
                      _by_address(rows, lambda row: row["messages"] / seconds)))  # fmt: skip
    page.plot(stacked("Bodies a second", time, "KiB/s",
                      _by_address(rows, lambda row: row["bytes"] / 1024 / seconds)))  # fmt: skip
    page.heading("Transit time")
    page.paragraph(
        "From the creation-time of a message to the moment the broker appended it. The axis is"
        " logarithmic, because late messages are much later than others."
    )
    for percentile, words in (("p50", "Half of the messages took no longer than"),
                              ("p95", "95 of 100 messages took no longer than"),
                              ("p99", "99 of 100 messages took no longer than")):  # fmt: skip
        points = _by_address(rows, itemgetter(percentile))
        page.plot(lines(words, time, "milliseconds", points, log=True))
    page.heading("Late and duplicate messages")
    page.plot(stacked(f"Later than {options.late}", time, "messages",
                      _by_address(rows, lambda row: row["late"])))  # fmt: skip
    page.plot(stacked("Twice within a window", time, "messages",
                      _by_address(rows, lambda row: row["duplicates"])))  # fmt: skip


def _by_address(rows: list[Row], value: Callable[[Row], float | None]) -> Points:
    found: dict[str, tuple[list[object], list[float | None]]] = {}
    for row in rows:
        across, up = found.setdefault(row["address"], ([], []))
        across.append(row["start"])
        up.append(value(row))
    points: Points = dict(found)
    return points


def _total(address: str, rows: list[Row]) -> Sequence[object]:
    messages, size = _sum(rows, "messages"), _sum(rows, "bytes")
    worst = max((row["p95"] for row in rows if row["p95"] is not None), default=None)
    return (
        address, messages, size / 1024 / 1024, size // max(1, messages), worst,
        _sum(rows, "late"), _sum(rows, "duplicates"),
    )  # fmt: skip


def _sum(rows: list[Row], name: str) -> int:
    return sum(int(row[name]) for row in rows)
