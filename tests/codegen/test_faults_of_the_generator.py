"""Output that is wrong is reported, kept for inspection and never replaces what was there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrymq_codegen import cli
from ferrymq_codegen.format import format_files
from ferrymq_codegen.mistakes import SpecError
from ferrymq_codegen.verify import verify


def test_output_that_black_refuses_is_kept() -> None:
    with pytest.raises(SpecError) as caught:
        format_files({"a.py": "x = (\n", "b.py": "y=1\n"})
    [mistake] = caught.value.mistakes
    kept = Path(mistake.at.path)
    try:
        assert kept.read_text("utf-8") == "x = (\n"
        assert kept.with_name("b.py").read_text("utf-8") == "y=1\n"
    finally:
        for path in kept.parent.iterdir():
            path.unlink()
        kept.parent.rmdir()


def test_type_error_in_the_output() -> None:
    with pytest.raises(SpecError, match=r"mypy: broken/a\.py:1: error: Incompatible types"):
        verify({"__init__.py": "", "a.py": "x: int = 'no'\n"}, "broken")


def test_output_that_cannot_be_imported() -> None:
    with pytest.raises(SpecError, match=r"broken: cannot be imported: (?s:.*)ZeroDivisionError"):
        verify({"__init__.py": "", "a.py": "x: float = 1 / 0\n"}, "broken")


def test_output_that_fails_verification_is_not_written(
    workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop.types('<definition name="A" value="1"/>')
    assert workshop.generate("--no-verify").status == 0
    before = {path: path.read_bytes() for path in workshop.out.iterdir()}
    good = cli.format_files

    def bad(*arguments: object) -> dict[str, str]:
        files = good(*arguments)  # type: ignore[arg-type]
        return {**files, "case.py": files["case.py"] + "x: int = 'no'\n"}

    monkeypatch.setattr(cli, "format_files", bad)
    result = workshop.generate()
    assert result.status == 1
    assert "mypy: case_types/case.py:" in result.err
    assert {path: path.read_bytes() for path in workshop.out.iterdir()} == before
