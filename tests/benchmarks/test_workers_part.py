"""The workers part: two workers beside one, and the processor time of the busiest."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.parts import workers
from bench.parts.workers import CASES, CONNECTING, ONE, RELAYED, TWO
from bench.tree import Trees


@pytest.mark.slow
def test_two_workers_are_set_beside_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PROBE", 50)
    report = workers.measure(Trees(pure=True), tmp_path, rounds=1, seconds=0.0, connections=2)
    assert not report.failures
    cases = {*(case.name for case in CASES), CONNECTING, RELAYED}
    assert {(figure.case, figure.contender) for figure in report.figures} == {
        (case, name) for case in cases for name in (ONE, TWO)
    }
    assert all(figure.median > 0 for figure in report.figures)
    assert {each.case for each in report.comparisons} == cases
