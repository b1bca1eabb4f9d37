"""The memory part: every case runs, and says what it found, at a size that shows nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.parts import memory
from bench.process import Server, broker, paging_broker, roomy_broker
from bench.results import Report
from bench.tree import ROOT, Trees, environment

# What is paged has to be more than what stays in memory for the next that come.
TIMES = 20
TIMES_PAGED = 2_000


def measure(case: str, server: Server, shrink: int) -> Report:
    return memory.measure(case, server.port, server.pid, server.monitoring, shrink)


@pytest.mark.slow
@pytest.mark.parametrize("case", memory.CASES)
def test_a_case_runs_and_leaves_nothing_behind(case: str, tmp_path: Path) -> None:
    _, most, paging, limits = memory.CASES[case]
    times = TIMES_PAGED if paging else TIMES
    shrink = most // times
    trees = Trees(pure=True)
    most_in_memory = memory.PAGE_OUT // shrink
    with (
        paging_broker(trees, tmp_path, most_in_memory)
        if paging
        else roomy_broker(trees, tmp_path, limits)
    ) as server:
        report = measure(case, server, shrink)
        # What the case made and held is gone with its connections: it can be had once more.
        again = measure(case, server, most // (times // 2))
    assert not report.failures
    assert not again.failures
    assert report.figures
    assert [figure.unit for figure in report.figures] == [figure.unit for figure in again.figures]
    assert all(f"{times:,}".replace(",", " ") in figure.case for figure in report.figures)
    assert not list(tmp_path.iterdir())


def test_what_is_demanded_of_paged_queues() -> None:
    paged = [name for name, case in memory.CASES.items() if case.paging]
    assert paged == ["paged-durable", "paged"]
    assert all(memory.CASES[name].times == 1_000_000 for name in paged)
    assert memory.PAGE_OUT == 64 * 2**20
    assert pytest.approx(600_000_000) == memory.DEMAND_PAGED * 2**20


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
        "paged: no message has left memory: this would be the figure of another thing"
    ]


def test_a_broker_that_does_not_tell_what_it_has_paged_has_no_figure() -> None:
    shrink = memory.CASES["paged"].times // TIMES
    with broker(Trees(pure=True)) as server:
        report = measure("paged", server, shrink)
    assert not report.figures
    assert len(report.failures) == 1
    assert "does not tell its ferrymq_store_paged_out_total" in report.failures[0]


def test_the_measuring_process_needs_no_more_than_there_is_in_the_compiled_tree(
    tmp_path: Path,
) -> None:
    # `build/bench` has no broker, and none of what is at the top of the project.
    shutil.copytree(ROOT / "bench", tmp_path / "bench")
    path = [str(tmp_path), str(ROOT / "runtime"), str(ROOT / "generated")]
    done = subprocess.run(
        [sys.executable, "-P", "-S", "-c", "import bench.worker"],
        env=environment([*path, *(each for each in sys.path if each.endswith("site-packages"))]),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_the_system_does_not_tell_is_an_error() -> None:
    with pytest.raises(OSError, match="does not tell"):
        memory.Watched(port=0, pid=-1).memory()
