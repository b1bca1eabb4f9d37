"""The program of the page about the generator runs."""

from __future__ import annotations

from pathlib import Path

from tests.support.reader import blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "generator.md"


def test_the_program_on_the_page_runs() -> None:
    (program,) = [
        code for language, code in blocks(PAGE.read_text("utf-8")) if language == "python"
    ]
    exec(compile(program, str(PAGE), "exec"), {})
