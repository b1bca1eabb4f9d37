"""Results in a document: the text between two marker lines is generated and replaced."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from bench.results import Report
from bench.rows import (
    COMPARISON_HEAD,
    FIGURE_HEAD,
    Row,
    build_line,
    comparison_row,
    figure_row,
    grouped,
    option_line,
)

BEGIN: Final = "<!-- results: written by `python -m bench --markdown`, do not edit -->"
END: Final = "<!-- end of results -->"
SPARK_BEGIN: Final = "<!-- results: written by `python -m bench.spark --markdown`, do not edit -->"
SPARK_END: Final = "<!-- end of results of Spark -->"
OF_SPARK: Final = (
    "reading", "archive", "sink", "query-latency", "query-memory", "brokers", "scale",
)  # fmt: skip
"""The parts whose tables have a place of their own."""
_HEADING: Final = "### "
TITLES: Final = {
    "codec": "Codec",
    "broker": "Broker",
    "clients": "Clients",
    "features": "Features",
    "security": "Security",
    "latency": "Latency",
    "rate": "Latency at an even rate",
    "durable": "Durable messages",
    "memory": "Memory",
    "azure": "Azure's clients",
    "start": "Start",
    "watching": "Watching a broker",
    "replicated": "A cluster on PostgreSQL",
    "target-latency": "Short waits",
    "workers": "Several workers",
    "large": "Large messages",
    "amqp-0-9-1": "AMQP 0-9-1 beside another broker",
    "reading": "Streams into Spark",
    "archive": "Streams to Parquet",
    "sink": "Spark into streams",
    "query-latency": "Latency of a query",
    "query-memory": "Memory of a query",
    "brokers": "One query over several brokers",
    "scale": "Cost of a row, by the length of the stream",
}


def render(run: dict[str, Any]) -> str:
    """Render the results of a run, in the JSON form of `bench.cli`, as Markdown with a section for
    each part."""
    machine = ", ".join(f"{key} {value}" for key, value in run["machine"].items())
    lines = []
    for data in run["reports"]:
        report = Report.from_json(data)
        lines += [f"{_HEADING}{TITLES[report.part]}", ""]
        lines += [f"Measured {run['date']} on: {machine}.", ""]
        lines += [f"Build: {build_line(report)}. Method: {option_line(report)}.", ""]
        if report.figures:
            rows = [figure_row(figure) for figure in report.figures]
            lines += [*_table(FIGURE_HEAD, rows, {2, 3}), ""]
        if report.comparisons:
            rows = [comparison_row(comparison) for comparison in report.comparisons]
            lines += [*_table(COMPARISON_HEAD, rows, {2}), ""]
        for kind, remarks in (("Note", report.notes), ("Failed", report.failures)):
            for remark in remarks:
                lines += [f"{kind}: {remark}", ""]
    return "\n".join(lines)


def write(page: Path, run: dict[str, Any]) -> None:
    """Update the document with the results of a run, the parts of Spark in their place.

    Raises:
        ValueError: the document has no place for a part.
    """
    for marks, of_spark in (((BEGIN, END), False), ((SPARK_BEGIN, SPARK_END), True)):
        reports = [data for data in run["reports"] if (data["part"] in OF_SPARK) == of_spark]
        if reports:
            update(page, render({**run, "reports": reports}), *marks)


def _table(head: tuple[str, ...], rows: list[Row], numbers: set[int]) -> list[str]:
    rule = ["---:" if i in numbers else "---" for i in range(len(head))]
    cells = [head, rule, *(row.cells for row in grouped(rows))]
    return ["| " + " | ".join(line) + " |" for line in cells]


def update(path: Path, text: str, opening: str = BEGIN, closing: str = END) -> None:
    """Replace the sections between the markers of the document at `path` by those of `text` with
    the same headings. Sections of parts that were not measured stay.

    Raises:
        ValueError: the document has no such markers.
    """
    old = _between(path, opening, closing)[1]
    found = sections(old) | sections(text)
    titles = list(TITLES.values())
    made = "".join(found[title] for title in sorted(found, key=titles.index))
    replace(path, made.rstrip(), opening, closing)


def replace(path: Path, text: str, opening: str, closing: str) -> None:
    """Replace the text between two markers of the document at `path`.

    Raises:
        ValueError: the document has no such markers.
    """
    before, _, after = _between(path, opening, closing)
    path.write_text(f"{before}{opening}\n\n{text}\n\n{closing}{after}", "utf-8")


def _between(path: Path, opening: str, closing: str) -> tuple[str, str, str]:
    """Return the text before, between and after the markers."""
    document = path.read_text("utf-8")
    before, begin, rest = document.partition(opening)
    between, end, after = rest.partition(closing)
    if not begin or not end:
        raise ValueError(f"{path} has no lines {opening!r} and {closing!r}")
    return before, between, after


def sections(text: str) -> dict[str, str]:
    """Return the sections of known parts by title, each with its heading and an empty line at its
    end."""
    parts = re.split(f"^{_HEADING}", text, flags=re.MULTILINE)[1:]
    found = {part.partition("\n")[0]: f"{_HEADING}{part.strip()}\n\n" for part in parts}
    return {title: part for title, part in found.items() if title in TITLES.values()}
