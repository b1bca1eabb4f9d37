"""The page on hostile input names tests that are there, and leaves none of them out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "hostile-input.md"
FOLDER = ROOT / "tests" / "hostile"
# About the tools.
ELSEWHERE = "test_harness.py"


def functions_in(path: Path) -> set[str]:
    """The tests of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def named() -> set[str]:
    """The tests that the page names."""
    return set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))


def test_every_test_that_is_named_is_there() -> None:
    there: set[str] = set()
    for path in FOLDER.glob("test_*.py"):
        there |= functions_in(path)
    assert named() - there == set()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("test_*.py")), ids=lambda path: path.name)
def test_every_test_is_named(path: Path) -> None:
    if path.name != ELSEWHERE:
        assert functions_in(path) - named() == set()
