"""The map is true: every file, function and class in a walk of `docs/architecture.md` exists."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
HOP = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
WALK = re.compile(r"^### (.+)\n((?:(?!^#).*\n)*)", re.MULTILINE)
WALKS = {title: HOP.findall(text) for title, text in WALK.findall(PAGE.read_text("utf-8"))}
FILE = re.compile(r"`((?:broker|generated|pipeline|runtime)/[\w/]+\.py)`")


def missing(path: str, name: str) -> str:
    """Say what of a hop does not exist; empty if all of it does."""
    file = ROOT / path
    if not file.is_file():
        return f"there is no file {path} (for {name})"
    body: list[ast.stmt] = ast.parse(file.read_text("utf-8")).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name == part
        ]
        if not found:
            return f"{path} has no {name}: {part} is not defined there"
        body = found[0].body
    return ""


def test_there_are_six_walks() -> None:
    assert len(WALKS) == 6
    assert all(len(hops) >= 8 for hops in WALKS.values())


@pytest.mark.parametrize("title", WALKS)
def test_every_hop_exists(title: str) -> None:
    assert [said for path, name in WALKS[title] if (said := missing(path, name))] == []


@pytest.mark.parametrize("title", WALKS)
def test_every_row_of_a_walk_is_a_hop(title: str) -> None:
    walk = dict(WALK.findall(PAGE.read_text("utf-8")))[title]
    rows = [line for line in walk.splitlines() if line.startswith("| `")]
    assert len(rows) == len(WALKS[title])


def test_every_file_named_exists() -> None:
    named = FILE.findall(PAGE.read_text("utf-8"))
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_part_of_the_broker_is_on_the_map() -> None:
    page = PAGE.read_text("utf-8")
    folders = (path.parent.name for path in (ROOT / "broker/ferrymq_broker").glob("*/__init__.py"))
    assert [name for name in folders if f"`{name}`" not in page] == []


def test_every_shipped_package_is_on_the_map() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    page = PAGE.read_text("utf-8")
    assert all(name in page for name in tool["importlinter"]["root_packages"])


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("broker/ferrymq_broker/nobody.py", "x", "there is no file"),
        ("broker/ferrymq_broker/broker.py", "Broker.nothing", "nothing is not defined"),
        ("broker/ferrymq_broker/broker.py", "Nothing.at_all", "Nothing is not defined"),
    ],
)
def test_what_is_missing_is_named(path: str, name: str, said: str) -> None:
    assert said in missing(path, name)
