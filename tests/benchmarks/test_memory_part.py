"""The memory part: every case runs, and says what it found, at a size that shows nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bench.cli import memory_server
from bench.parts import memory
from bench.process import Server, paging_broker
from bench.results import Report
from bench.tree import Trees

# What is paged has to be more than what stays in memory for the next that come.
TIMES = 20
TIMES_PAGED = 2_000


def measure(case: str, server: Server, shrink: int) -> Report:
    return memory.measure(case, server.port, server.pid, server.monitoring, shrink)


@pytest.mark.slow
@pytest.mark.parametrize("case", memory.CASES)
def test_a_case_runs_and_leaves_nothing_behind(case: str, tmp_path: Path) -> None:
    of_it = memory.CASES[case]
    times = TIMES_PAGED if of_it.paging else TIMES
    shrink = of_it.times // times
    with (
        tempfile.TemporaryDirectory(dir=tmp_path) as folder,
        memory_server(Trees(pure=True), Path(folder), of_it, shrink) as server,
    ):
        report = measure(case, server, shrink)
        # What the case made and held is gone with its connections: it can be had once more.
        again = measure(case, server, of_it.times // (times // 2))
    assert not report.failures
    assert not again.failures
    assert report.figures
    assert [figure.unit for figure in report.figures] == [figure.unit for figure in again.figures]
    assert all(f"{times:,}".replace(",", " ") in figure.case for figure in report.figures)


@pytest.mark.slow
def test_a_queue_that_is_not_paged_has_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PAGING_PATIENCE", 0.2)
    shrink = memory.CASES["paged"].times // TIMES_PAGED
    # As much may be in memory as with a million messages: there are too few to be paged out.
    with paging_broker(Trees(pure=True), tmp_path, memory.PAGE_OUT) as server:
        report = measure("paged", server, shrink)
    assert not report.figures
    assert report.failures == [
        "paged: no message was paged out, so the queue cannot be measured as a paged one"
    ]
