"""The files and functions that docs/architecture.md names are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
HOPS = re.findall(r"`([\w/]+\.py)`\s+(?:\|\s+)?`([\w.]+)`", PAGE)


def names(source: str) -> set[str]:
    """Return the functions and classes of a module, methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return found


def test_every_row_of_a_walk_names_a_file_and_a_function() -> None:
    rows = re.findall(r"^\| `[\w/]+\.py` \|", PAGE, re.MULTILINE)
    assert len(rows) > 40
    assert len(rows) <= len(HOPS)


@pytest.mark.parametrize(("path", "name"), HOPS)
def test_it_is_there(path: str, name: str) -> None:
    assert name in names((ROOT / path).read_text("utf-8"))
