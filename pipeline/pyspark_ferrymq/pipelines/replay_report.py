"""The report of a replay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_ferrymq.report.page import Page
from pyspark_ferrymq.report.plots import bars

if TYPE_CHECKING:
    from pyspark_ferrymq.pipelines.replay import Replayed


def write_report(path: Path, done: Replayed, seconds: float) -> None:
    """Write the report; `seconds` is the duration of this run. Raises `AmqpSourceError` if the file
    cannot be written."""
    plan = done.plan
    page = Page("Replay", f"{plan.stream} to {plan.target}; the run is called {plan.run}")
    page.facts(
        [
            ("records in the range", plan.count),
            ("sent by this run", done.sent),
            ("sent by runs before", done.before),
            ("partitions", len(plan.partitions)),
            ("seconds", seconds),
            ("records a second", done.sent / seconds if done.sent and seconds else None),
        ]
    )
    counts = [
        (f"partition {number}", float(next - first))
        for number, (first, next) in plan.partitions.items()
    ]
    if counts:
        page.plot(bars("Records in the range", "records", counts))
    page.heading("By partition")
    page.table(
        ("partition", "first offset", "last offset", "records"),
        [
            (number, first, next - 1, next - first)
            for number, (first, next) in plan.partitions.items()
        ],
    )
    page.write(path, datetime.now(UTC))
