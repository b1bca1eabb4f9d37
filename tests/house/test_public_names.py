"""Pages and examples import only what docs/reference/README.md says is public.

The test of the site holds `__all__` of the clients against the pages of the reference.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ferrymq", "ferrymq_codec", "ferrymq_types")
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py")]
)


def listed() -> list[str]:
    """The modules in the table of the page."""
    page = (ROOT / "docs/reference/README.md").read_text("utf-8")
    table = page.partition("## What is public")[2]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]


PUBLIC = listed()


def imports(text: str) -> Iterator[tuple[str, str | None]]:
    """The modules of the packages that a program imports, and the names it takes from them."""
    for node in ast.walk(ast.parse(text)):
        found: list[tuple[str, str | None]] = []
        if isinstance(node, ast.Import):
            found = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found = [(node.module, alias.name) for alias in node.names]
        yield from (one for one in found if one[0].split(".")[0] in PACKAGES)


def private(text: str) -> list[str]:
    """What a program imports that is not public."""
    wrong = []
    for module, name in imports(text):
        if f"{module}.{name}" in PUBLIC or module.startswith("ferrymq_types"):
            continue
        if module not in PUBLIC:
            wrong.append(f"{module}.{name}")
        elif name is not None:
            names = getattr(importlib.import_module(module), "__all__", [name])
            wrong += [] if name in names else [f"{module}.{name}"]
    return wrong


def test_every_module_of_the_table_can_be_imported() -> None:
    assert {"ferrymq", "ferrymq_codec", "ferrymq.testing.strategies"} <= set(PUBLIC)
    for module in PUBLIC:
        importlib.import_module(module)


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_shown_is_public(source: str) -> None:
    text = (ROOT / source).read_text("utf-8")
    programs = BLOCK.findall(text) if source.endswith(".md") else [text]
    assert [name for program in programs for name in private(program)] == []


def test_what_is_private_is_found() -> None:
    assert private("from ferrymq.aio.sender import Sender") == ["ferrymq.aio.sender.Sender"]
    assert private("import ferrymq.aio.sender") == ["ferrymq.aio.sender.None"]
    assert private("from ferrymq import Link") == ["ferrymq.Link"]
    assert private("from ferrymq import Sender, errors\nfrom ferrymq import aio") == []
