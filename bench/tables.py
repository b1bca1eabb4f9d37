"""Tables of results on the screen."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

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

_STYLES = {True: "green", False: "bold red", None: ""}


def show(console: Console, report: Report, machine: dict[str, str]) -> None:
    """Print the results of one part with the machine, the build and the method."""
    console.rule(report.part)
    for name, line in (
        ("machine", ", ".join(f"{key} {value}" for key, value in machine.items())),
        ("build", build_line(report)),
        ("method", option_line(report)),
    ):
        console.print(f"{name}: {line}", style="dim", highlight=False)
    if report.figures:
        console.print(
            _table(FIGURE_HEAD, [figure_row(figure) for figure in report.figures], {2, 3})
        )
    if report.comparisons:
        rows = [comparison_row(comparison) for comparison in report.comparisons]
        console.print(_table(COMPARISON_HEAD, rows, {2}))
    for note in report.notes:
        console.print(f"note: {note}", highlight=False)
    for failure in report.failures:
        console.print(f"FAILED: {failure}", style="bold red", highlight=False, markup=False)


def _table(head: tuple[str, ...], rows: list[Row], numbers: set[int]) -> Table:
    table = Table()
    for i, name in enumerate(head):
        options: dict[str, Any] = {"justify": "right"} if i in numbers else {}
        table.add_column(name, **options)
    for row in grouped(rows):
        table.add_row(*row.cells[:-1], f"[{style}]{row.cells[-1]}[/]" if (
            style := _STYLES[row.met]
        ) else row.cells[-1])  # fmt: skip
    return table
