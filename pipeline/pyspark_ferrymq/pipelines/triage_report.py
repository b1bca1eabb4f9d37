"""The report of the triage."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_ferrymq.report.page import Page
from pyspark_ferrymq.report.plots import bars, stacked

if TYPE_CHECKING:
    from pyspark_ferrymq.pipelines.triage import Triaged, TriageOptions


def write_report(path: Path, found: Triaged, options: TriageOptions) -> None:
    """Write the report. Raises `AmqpSourceError` if the file cannot be written."""
    groups = found.groups
    what = "" if options.where is None else f", those for which {options.where}"
    page = Page("Dead letters", f"the queue {options.queue}{what}")
    page.facts(
        [
            ("dead letters", found.count),
            ("kinds of dead letters", len(groups)),
            ("queues they come from", len({row["source"] for row in groups if row["source"]})),
            ("KiB of bodies", sum(row["bytes"] or 0 for row in groups) // 1024),
            ("first", min((row["first"] for row in groups if row["first"]), default=None)),
            ("last", max((row["last"] for row in groups if row["last"]), default=None)),
        ]
    )
    if found.moved is not None:
        moved = ", ".join(f"{count:,} to {to}" for to, count in sorted(found.moved.targets.items()))
        page.paragraph(f"Moved after this was counted: {moved or 'none'}.")
    if groups:
        _plots(page, found)
    page.heading("Kinds")
    page.table(
        ("reason", "from", "condition", "subject", "count", "KiB", "first", "last"),
        [
            (
                row["reason"], row["source"], row["condition"], row["subject"], row["count"],
                (row["bytes"] or 0) // 1024, row["first"], row["last"],
            )
            for row in groups
        ],
    )  # fmt: skip
    page.heading("Samples: the latest of each kind")
    page.table(
        ("reason", "message", "died", "description", "body"),
        [
            (
                row["condition"] or row["reason"], sample["messageId"], sample["diedAt"],
                sample["description"], sample["text"],
            )
            for row in groups
            for sample in row["samples"]
        ],
    )  # fmt: skip
    page.write(path, datetime.now(UTC))


def _plots(page: Page, found: Triaged) -> None:
    kinds: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    for row in found.groups:
        kind = row["reason"] if row["condition"] is None else f"{row['reason']}: {row['condition']}"
        kinds[kind] += row["count"]
        sources[row["source"] or "(unknown)"] += row["count"]
    page.heading("Reasons")
    page.plot(bars("Dead letters by reason", "messages", kinds.most_common()))
    if len(sources) > 1:
        page.plot(bars("Dead letters by queue", "messages", sources.most_common()))
    points: dict[str, tuple[list[object], list[float | None]]] = {}
    for row in found.times:
        across, up = points.setdefault(row["reason"], ([], []))
        across.append(row["start"])
        up.append(row["count"])
    if points:
        page.plot(stacked("Dead letters over time", "time, UTC", "messages", points))
