"""A module holds one concept: most are short, and a long one says why it is one."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HAND_WRITTEN = ("runtime", "broker", "pipeline", "codegen", "bench")
WITH_TESTS = (*HAND_WRITTEN, "tests")
MEDIAN, LONG = 150, 600
REASON = "one module because"


def sources(folders: tuple[str, ...]) -> dict[str, str]:
    """Return the text of every hand-written module in these folders, in the root and in `.ci`.

    Empty modules are left out.
    """
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {
        path.relative_to(ROOT).as_posix(): text
        for path in (*paths, *ROOT.glob("*.py"), *ROOT.glob(".ci/*.py"))
        if (text := path.read_text("utf-8"))
    }


def test_a_long_module_says_why_it_is_one() -> None:
    silent = [
        f"{name} has over {LONG} lines, and its docstring does not say '{REASON} ...'"
        for name, text in sources(WITH_TESTS).items()
        if len(text.splitlines()) > LONG
        and REASON not in " ".join((ast.get_docstring(ast.parse(text)) or "").lower().split())
    ]
    assert silent == []


def test_the_median_module_is_short() -> None:
    counts = [len(text.splitlines()) for text in sources(HAND_WRITTEN).values()]
    assert len(counts) > 20
    assert statistics.median(counts) <= MEDIAN
