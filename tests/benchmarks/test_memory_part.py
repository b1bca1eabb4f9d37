"""The memory part: every case runs, and says what it found, at a size that shows nothing else."""

from __future__ import annotations

import pytest

from bench.parts import memory
from bench.process import broker
from bench.tree import Trees


@pytest.mark.slow
@pytest.mark.parametrize("case", memory.CASES)
def test_a_case_runs_and_leaves_nothing_behind(case: str) -> None:
    count = memory.CASES[case][1]
    with broker(Trees(pure=True)) as server:
        report = memory.measure(case, server.port, server.pid, count // 20)
        # What the case made and held is gone with its connections: it can be had once more.
        again = memory.measure(case, server.port, server.pid, count // 10)
    assert not report.failures
    assert not again.failures
    assert report.figures
    assert [figure.unit for figure in report.figures] == [figure.unit for figure in again.figures]
    assert all("20" in figure.case for figure in report.figures)


def test_what_the_system_does_not_tell_is_an_error() -> None:
    with pytest.raises(OSError, match="does not tell"):
        memory.Watched(port=0, pid=-1).memory()
