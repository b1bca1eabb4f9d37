"""The Spark benchmarks: turns, what counts as one, and whose processor time is whose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.results import Report
from bench.spark.cli import reports_of
from bench.spark.cpu import Times, times_of
from bench.spark.turns import COST, OURS, PLAIN, RATE, Contender, Rounds

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def rounds(report: Report, used: Iterator[Times] | None = None) -> Rounds:
    def times() -> Times:
        return Times(0.0, 0.0, 0.0) if used is None else next(used)

    return Rounds(report, 3, times, lambda _: None)


def sleeping(seconds: float, rows: int = 100) -> int:
    time.sleep(seconds)
    return rows


def test_contenders_take_turns_and_are_compared_with_the_plain_source() -> None:
    report = Report("reading")
    turns: list[str] = []

    def run(name: str, seconds: float) -> int:
        turns.append(name)
        return sleeping(seconds)

    rounds(report).measure(
        "a case",
        [
            Contender(OURS, lambda: run(OURS, 0.04), 100, demand=1e9),
            Contender(PLAIN, lambda: run(PLAIN, 0.01), 100),
        ],
    )
    # The first turn of each does not count, and who begins changes.
    assert turns == [OURS, PLAIN, OURS, PLAIN, PLAIN, OURS, OURS, PLAIN]
    ours = report.figure("a case", OURS, RATE)
    assert ours is not None and len(ours.values) == 3 and ours.met is False
    assert ours.median <= 100 / 0.04
    (comparison,) = report.comparisons
    assert (comparison.ours, comparison.peer) == (OURS, PLAIN) and comparison.ratio < 1


def test_a_turn_without_all_rows_is_a_failure_and_no_figure() -> None:
    report = Report("reading")

    def broken() -> int:
        raise RuntimeError("Traceback\nValueError: no such stream\n\tat java")

    rounds(report).measure(
        "a case",
        [
            Contender("short", lambda: 99, 100),
            Contender("broken", broken, 100),
            Contender(PLAIN, lambda: sleeping(0.001), 100),
        ],
    )
    assert report.failures == [
        "a case, short: 99 rows came, and not 100",
        "a case, broken: ValueError: no such stream",
    ]
    assert {figure.contender for figure in report.figures} == {PLAIN}
    assert report.comparisons == []


def test_processor_time_is_told_for_each_process() -> None:
    report = Report("reading")
    used = (Times(float(n), 2.0 * n, 0.0) for n in range(100))
    rounds(report, used).measure("a case", [Contender(OURS, lambda: sleeping(0.001), 100)])
    broker = report.figure("a case", f"{OURS}, processor time: broker", COST)
    java = report.figure("a case", f"{OURS}, processor time: Java", COST)
    assert broker is not None and broker.median == pytest.approx(1e4)
    assert java is not None and java.median == pytest.approx(2e4)
    assert report.figure("a case", f"{OURS}, processor time: Python", COST) is None


def test_children_count_also_those_that_have_ended() -> None:
    me = os.getpid()
    before = times_of(me, me)
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    ended = times_of(me, me).since(before)
    assert ended.python >= 0.2
    with pytest.raises(OSError, match="does not report"):
        times_of(me, 2**30)


def test_what_was_measured_is_kept_if_the_measuring_process_fails(tmp_path: Path) -> None:
    out = tmp_path / "reports.json"
    with pytest.raises(RuntimeError, match="status 1"):
        reports_of(out, 1)
    out.write_text(json.dumps([Report("sink").to_json(), Report("scale").to_json()]), "utf-8")
    assert [report.failures for report in reports_of(out, 0)] == [[], []]
    assert [report.failures for report in reports_of(out, 143)] == [
        [],
        ["the measuring process ended with status 143"],
    ]
