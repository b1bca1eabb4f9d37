"""The large part: what a MiB of a large message costs the broker."""

from __future__ import annotations

import pytest

from bench.parts import large
from bench.parts.broker import OURS
from bench.parts.large import Case
from bench.tree import Trees


@pytest.mark.slow
def test_each_size_has_a_cost_and_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (Case(1, 2), Case(2, 1))
    monkeypatch.setattr(large, "CASES", cases)
    report = large.measure(Trees(pure=True), rounds=2, amount=4)
    assert not report.failures
    assert [(figure.case, figure.contender) for figure in report.figures] == [
        (case.name, name) for case in cases for name in (f"{OURS}, processor time", OURS)
    ]
    assert all(len(figure.values) == 2 and figure.median > 0 for figure in report.figures)
