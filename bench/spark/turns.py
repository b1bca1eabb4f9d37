"""Contenders that take turns: each processes the same rows once in every round, timed from outside.

The whole action is timed, including the start of its job. The number of rows that the action
reports must be the expected one. Processor time is reported separately for the broker, Java and the
Python workers, which shows the bottleneck.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bench.results import Comparison, Figure, Report
from bench.rows import spaced
from bench.spark.cpu import Times

RATE: Final = "rows/s"
COST: Final = "µs/row"
OURS: Final = "ferrymq"
PLAIN: Final = "plain"


class Contender(NamedTuple):
    """A contender. `run` does the action once and returns the number of rows."""

    name: str
    run: Callable[[], int]
    rows: int
    # The demanded rows per second, the demanded part of the rate of `plain`, and the µs of the
    # broker's processor time that a row may cost.
    demand: float | None = None
    of_plain: float | None = None
    cost: float | None = None


class Rounds:
    """A runner of contenders in rounds, which adds the results to the report."""

    def __init__(
        self, report: Report, rounds: int, times: Callable[[], Times], said: Callable[[str], None]
    ) -> None:
        self.report = report
        self._rounds = rounds
        self._times = times
        self._said = said

    def measure(self, case: str, contenders: Sequence[Contender]) -> dict[str, list[float]]:
        """Measure one case; return the seconds of each contender that succeeded in every round.

        Each is run once before the first round, to compile code and start workers.
        """
        seconds: dict[str, list[float]] = {}
        used: dict[str, list[Times]] = {}
        failed: set[str] = set()
        for turn in range(-1, self._rounds):
            shift = max(turn, 0) % len(contenders)
            for each in [*contenders[shift:], *contenders[:shift]]:
                if each.name in failed:
                    continue
                where = f"{case}: {each.name}, {'warm-up' if turn < 0 else f'round {turn + 1}'}"
                self._said(where)
                before, began = self._times(), time.perf_counter()
                try:
                    rows = each.run()
                    took, after = time.perf_counter() - began, self._times()
                    if rows != each.rows:
                        raise ValueError(f"{rows} rows came, and not {each.rows}")
                except Exception as error:
                    failed.add(each.name)
                    told = f"{case}, {each.name}: {first_line(error)}"
                    self._said(f"FAILED: {told}")
                    self.report.failures.append(told)
                    continue
                self._said(f"{where}: {spaced(round(rows / took))} rows/s")
                if turn >= 0:
                    seconds.setdefault(each.name, []).append(took)
                    used.setdefault(each.name, []).append(after.since(before))
        for each in contenders:
            if each.name not in failed:
                self._figures(case, each, seconds[each.name], used[each.name])
        whole = {name: values for name, values in seconds.items() if name not in failed}
        self._compare(case, whole, {each.name: each.of_plain for each in contenders})
        return whole

    def _figures(self, case: str, each: Contender, seconds: list[float], used: list[Times]) -> None:
        rates = [each.rows / took for took in seconds]
        self.report.figures.append(Figure(case, each.name, RATE, rates, each.demand))
        for label, values, demand in (
            ("broker", [times.broker for times in used], each.cost),
            ("Java", [times.java for times in used], None),
            ("Python", [times.python for times in used], None),
        ):
            costs = [1e6 * value / each.rows for value in values]
            if max(costs) >= 0.005:
                name = f"{each.name}, processor time: {label}"
                self.report.figures.append(Figure(case, name, COST, costs, demand))

    def _compare(
        self, case: str, seconds: dict[str, list[float]], demands: dict[str, float | None]
    ) -> None:
        base = seconds.get(PLAIN)
        if base is None:
            return
        for name, values in seconds.items():
            if name != PLAIN:
                ratio = statistics.median(b / a for a, b in zip(values, base, strict=True))
                self.report.comparisons.append(
                    Comparison(case, name, PLAIN, ratio, at_least=demands[name])
                )


def first_line(error: Exception) -> str:
    """Return the error's message without the Java trace that Spark appends."""
    text = str(error).strip()
    python = [line for line in text.splitlines() if "Error: " in line and "Traceback" not in line]
    return (python[-1] if python else text.splitlines()[0] if text else repr(error)).strip()
