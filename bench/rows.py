"""Reports as rows of text, for the tables on the screen and in documents."""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.results import LESS_IS_BETTER, Comparison, Figure, Report

FIGURE_HEAD: Final = ("case", "contender", "median", "lowest … highest", "unit", "demanded")
COMPARISON_HEAD: Final = ("case", "compared", "ratio", "demanded")
VERDICTS: Final = {True: "met", False: "MISSED", None: ""}


class Row(NamedTuple):
    """The cells of one row, and its verdict (None without a demand)."""

    cells: tuple[str, ...]
    met: bool | None


def spaced(count: int) -> str:
    """Format a number with separated thousands."""
    return f"{count:,}".replace(",", " ")


def number(value: float) -> str:
    """Format a figure with its significant digits, and separated thousands."""
    if value >= 1000:
        return spaced(round(value))
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def figure_row(figure: Figure) -> Row:
    """Return the row of a figure, for `FIGURE_HEAD`."""
    low, high = figure.spread
    spread = f"{number(low)} … {number(high)}" if len(figure.values) > 1 else ""
    demand = ""
    if figure.demand is not None:
        sign = "≤" if figure.unit in LESS_IS_BETTER else "≥"
        demand = f"{sign} {number(figure.demand)}: {VERDICTS[figure.met]}"
    cells = (figure.case, figure.contender, number(figure.median), spread, figure.unit, demand)
    return Row(cells, figure.met)


def comparison_row(comparison: Comparison) -> Row:
    """Return the row of a comparison, for `COMPARISON_HEAD`."""
    demand = ""
    if comparison.at_least is not None:
        demand = f"≥ {comparison.at_least:g} ×: {VERDICTS[comparison.met]}"
    elif comparison.at_most is not None:
        demand = f"≤ {comparison.at_most:g} ×: {VERDICTS[comparison.met]}"
    compared = f"{comparison.ours} ÷ {comparison.peer}"
    return Row((comparison.case, compared, f"{number(comparison.ratio)} ×", demand), comparison.met)


def build_line(report: Report) -> str:
    """Return one line with the code that was measured."""
    return ", ".join(f"{name} {value}" for name, value in report.build.items())


def option_line(report: Report) -> str:
    """Return one line with the method of measuring."""
    return ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in report.options.items()
        if value is not False
    )


def grouped(rows: list[Row]) -> list[Row]:
    """Return the rows with the first cell emptied where it repeats the one above."""
    before = ""
    found: list[Row] = []
    for row in rows:
        first = row.cells[0]
        found.append(Row(("" if first == before else first, *row.cells[1:]), row.met))
        before = first
    return found
