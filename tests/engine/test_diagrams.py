"""The diagrams in the documentation are those of the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ferrymq.engine.states import CONNECTION_TABLE, LINK_TABLE, SESSION_TABLE
from tests.support.diagrams import (
    DIAGRAMS,
    DIAGRAMS_0_9_1,
    PAGE,
    PAGE_0_9_1,
    drawn,
    path_of,
    words,
)

TABLES = {"connection": CONNECTION_TABLE, "session": SESSION_TABLE, "link": LINK_TABLE}
ALL = {**DIAGRAMS, **DIAGRAMS_0_9_1}
ARROW = re.compile(r"<title>(\w+) → (\w+): (.+)</title></path>$", re.MULTILINE)


def test_the_diagrams_are_of_the_tables_of_the_engine() -> None:
    assert {name: each.table for name, each in DIAGRAMS.items()} == TABLES


@pytest.mark.parametrize("name", ALL)
def test_a_diagram_is_what_its_table_says(name: str) -> None:
    found = path_of(name).read_text("utf-8")
    assert found == drawn(ALL[name]), "run python -m tests.support.diagrams"


def test_the_page_shows_every_diagram_once() -> None:
    assert shown_on(PAGE) == list(TABLES) == list(DIAGRAMS)
    assert shown_on(PAGE_0_9_1) == list(DIAGRAMS_0_9_1)


def shown_on(page: Path) -> list[str]:
    return re.findall(r"!\[[^]]+\]\(engine-([\w-]+)\.svg\)", page.read_text("utf-8"))


@pytest.mark.parametrize("name", ALL)
def test_a_diagram_has_an_arrow_for_every_entry_and_no_other(name: str) -> None:
    picture = path_of(name).read_text("utf-8")
    arrows = {
        (old, label): new
        for old, new, labels in ARROW.findall(picture)
        for label in labels.split(", ")
    }
    assert arrows == {
        (state.name, words(given)): new.name for (state, given), new in ALL[name].table.items()
    }
    assert all(f">{label}</text>" in picture for _, label in arrows)


def test_the_page_names_every_module_of_the_engine() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    engine = PAGE.parents[1] / "runtime" / "ferrymq" / "engine"
    assert named == {path.stem for path in engine.glob("*.py")} - {"__init__"}
