"""`python -m bench compare OLD NEW`: what became faster or slower between two files with results.

A figure has one value for each round. It has moved if its ranges in the two files do not overlap
and its medians differ by more than `SURE`. With few rounds ranges are apart by chance: of two equal
figures once in 3 with 2 rounds each, once in 10 with 3, once in 35 with 4. Therefore medians must
differ by more than `UNSURE` if a file has fewer than `ENOUGH` values.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.results import LESS_IS_BETTER, Figure, Report
from bench.rows import number

SURE: Final = 10.0
UNSURE: Final = 30.0
"""Percent by which medians must differ, with enough rounds and with fewer."""
ENOUGH: Final = 4
FASTER: Final = "faster"
SLOWER: Final = "slower"
SMALLER: Final = "smaller"
LARGER: Final = "larger"
SAME: Final = "same"
_SIZES: Final = ("MiB", "KiB", "B")
# A number of messages is neither good nor bad.
_NEUTRAL: Final = "messages"
_LOAD: Final = ("load", "load after")
_STYLES: Final = {FASTER: "green", SMALLER: "green", SLOWER: "bold red", LARGER: "bold red"}


@dataclass(frozen=True)
class Change:
    """A figure in both files: its medians, its ranges, and the verdict.

    `percent` is the difference of the medians, as a part of the old one; None if the old median is
    not above 0.
    """

    part: str
    case: str
    contender: str
    unit: str
    old: float
    new: float
    old_range: tuple[float, float]
    new_range: tuple[float, float]
    percent: float | None
    verdict: str

    @property
    def worse(self) -> bool:
        """Whether the figure became slower or larger."""
        return self.verdict in (SLOWER, LARGER)


def judge(part: str, old: Figure, new: Figure) -> Change:
    """Return what has happened to a figure."""
    percent = 100 * (new.median / old.median - 1) if old.median > 0 else None
    enough = min(len(old.values), len(new.values)) >= ENOUGH
    (old_low, old_high), (new_low, new_high) = old.spread, new.spread
    apart = new_low > old_high or new_high < old_low
    verdict = SAME
    if percent is not None and apart:
        # As a part of the smaller one, so that both directions have one limit.
        times = max(old.median, new.median) / max(min(old.median, new.median), 1e-12)
        if 100 * (times - 1) > (SURE if enough else UNSURE):
            verdict = _verdict(old.unit, percent > 0)
    return Change(
        part, old.case, old.contender, old.unit, old.median, new.median,
        old.spread, new.spread, percent, verdict,
    )  # fmt: skip


def _verdict(unit: str, more: bool) -> str:
    if unit in _SIZES:
        return LARGER if more else SMALLER
    return FASTER if more != (unit in LESS_IS_BETTER) else SLOWER


@dataclass(frozen=True)
class Compared:
    """Two files beside each other: the figures of both, and warnings, such as another machine."""

    changes: list[Change]
    warnings: list[str]

    @property
    def worse(self) -> bool:
        """Whether a figure became slower or larger."""
        return any(change.worse for change in self.changes)


def compare(old: dict[str, Any], new: dict[str, Any]) -> Compared:
    """Compare two runs, in the form for JSON. Raises `ValueError` if they have no common figure."""
    warnings = _differences("machine", old["machine"], new["machine"], _LOAD)
    for key in ("format", "quick"):
        warnings += _differences("run", {key: old.get(key)}, {key: new.get(key)})
    reports = [{data["part"]: Report.from_json(data) for data in run["reports"]}
               for run in (old, new)]  # fmt: skip
    changes: list[Change] = []
    alone: list[int] = [0, 0]
    for part in dict.fromkeys([*reports[0], *reports[1]]):
        before, after = (found.get(part, Report(part)) for found in reports)
        if before.figures and after.figures:
            warnings += _differences(part, before.build, after.build)
            warnings += _differences(part, before.options, after.options)
        theirs = {(each.case, each.contender, each.unit): each for each in after.figures}
        for figure in before.figures:
            same = theirs.pop((figure.case, figure.contender, figure.unit), None)
            if same is None:
                alone[0] += 1
            elif figure.unit != _NEUTRAL:
                changes.append(judge(part, figure, same))
        alone[1] += len(theirs)
    if not changes:
        raise ValueError("the two files have no figure in common")
    for count, which in zip(alone, ("old", "new"), strict=True):
        if count:
            warnings.append(f"figures that only the {which} file has: {count}")
    return Compared(changes, list(dict.fromkeys(warnings)))


def _differences(
    what: str, old: dict[str, Any], new: dict[str, Any], ignored: tuple[str, ...] = ()
) -> list[str]:
    return [
        f"{what}: {key} was {old.get(key, 'not there')}, is {new.get(key, 'not there')}"
        for key in dict.fromkeys([*old, *new])
        if key not in ignored and old.get(key) != new.get(key)
    ]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m bench compare",
        description="Show what became faster or slower between two files that --json has written. "
        "A figure has moved if its ranges do not overlap and its medians differ by more than "
        f"{SURE:g} %, or {UNSURE:g} % if a file has fewer than {ENOUGH} rounds. The exit status is "
        "1 if a figure became slower or larger, 2 if the files cannot be compared.",
    )
    made.add_argument("old", metavar="OLD", type=Path)
    made.add_argument("new", metavar="NEW", type=Path)
    made.add_argument("--json", action="store_true", help="write JSON")
    made.add_argument("--all", action="store_true", help="show the figures that stayed the same")
    return made


def main(argv: list[str]) -> int:
    """Run `python -m bench compare` and return the exit status."""
    arguments = parser().parse_args(argv)
    try:
        old, new = (json.loads(path.read_text("utf-8")) for path in (arguments.old, arguments.new))
        compared = compare(old, new)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"the files cannot be compared: {error!r}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps({"worse": compared.worse, **asdict(compared)}, indent=1))
    else:
        _show(compared, arguments.all)
    return 1 if compared.worse else 0


def _show(compared: Compared, everything: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = 160
    for warning in compared.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False)
    shown = [each for each in compared.changes if everything or each.verdict != SAME]
    if shown:
        table = Table()
        for name in ("part", "case", "contender", "old", "new", "unit", "change", "verdict"):
            table.add_column(name, justify="right" if name in ("old", "new", "change") else "left")
        for each in shown:
            percent = "" if each.percent is None else f"{each.percent:+.1f} %"
            style = _STYLES.get(each.verdict, "")
            table.add_row(
                each.part, each.case, each.contender, _ranged(each.old, each.old_range),
                _ranged(each.new, each.new_range), each.unit, percent, each.verdict, style=style,
            )  # fmt: skip
        console.print(table)
    same = sum(each.verdict == SAME for each in compared.changes)
    console.print(f"{same} of {len(compared.changes)} figures are the same", highlight=False)


def _ranged(median: float, of: tuple[float, float]) -> str:
    if of[0] == of[1]:
        return number(median)
    return f"{number(median)} ({number(of[0])} … {number(of[1])})"
