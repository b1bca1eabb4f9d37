"""The part `start` of the benchmarks: every start is measured."""

from __future__ import annotations

import pytest

from bench.parts.start import measure
from bench.tree import Trees


@pytest.mark.slow
@pytest.mark.once
def test_every_start_takes_some_time() -> None:
    report = measure(Trees(pure=True), 1)
    assert all(len(figure.values) == 1 and figure.values[0] > 0 for figure in report.figures)
    cases = {figure.case: figure.median for figure in report.figures}
    assert cases["the interpreter"] < cases["ferrymq serve, until it is ready"]
