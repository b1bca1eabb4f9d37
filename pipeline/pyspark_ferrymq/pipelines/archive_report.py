"""The report of an archive run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_ferrymq.report.page import Page
from pyspark_ferrymq.report.plots import bars, lines

if TYPE_CHECKING:
    from pyspark_ferrymq.pipelines.archive import Archived, ArchiveOptions


def write_report(path: Path, done: Archived, options: ArchiveOptions) -> None:
    """Write the report. Raises `AmqpSourceError` if the file cannot be written."""
    partitions = done.partitions
    page = Page("Archive", f"in {options.path}; hold at the broker: {options.hold or 'none'}")
    seconds = done.course.seconds
    page.facts(
        [
            ("records of this run", done.course.rows),
            ("records a second", done.course.rows / seconds if seconds else None),
            ("batches of this run", len(done.course.steps)),
            ("records in all", sum(one.next - one.first - one.missing for one in partitions)),
            ("files in all", sum(one.files for one in partitions)),
            ("records missing", sum(one.missing for one in partitions)),
        ]
    )
    if len(done.course.steps) > 1:
        steps = done.course.steps
        numbers: list[object] = [step.batch for step in steps]
        page.plot(
            lines("Records a second", "batch", "records/s",
                  {"archived": (numbers, [step.rows_per_second for step in steps])})
        )  # fmt: skip
        page.plot(
            lines("Available records not read yet", "batch", "records",
                  {"behind": (numbers, [step.behind for step in steps])})
        )  # fmt: skip
    if partitions:
        page.plot(
            bars(
                "Records in the archive",
                "records",
                [
                    (f"{one.stream} {one.partition}", one.next - one.first - one.missing)
                    for one in partitions
                ],
            )
        )
    page.heading("By partition")
    page.table(
        ("stream", "partition", "first offset", "next offset", "files", "missing"),
        [
            (one.stream, one.partition, one.first, one.next, one.files, one.missing)
            for one in partitions
        ],
    )
    page.write(path, datetime.now(UTC))
