"""The programs of docs/testing-with-a-broker.md run, as tests of a project of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reader import blocks

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing-with-a-broker.md"


def test_the_programs_of_the_page_pass(pytester: pytest.Pytester) -> None:
    programs = [code for language, code in blocks(PAGE.read_text("utf-8")) if language == "python"]
    assert len(programs) == 2
    for number, code in enumerate(programs):
        pytester.makepyfile(**{f"test_{number}": code})
    result = pytester.runpytest_subprocess("-p", "ferrymq_pytest", "--strict-markers")
    result.assert_outcomes(passed=len(programs))
