"""The diagrams in the documentation are those of the tables."""

from __future__ import annotations

import re

import pytest

from ferrymq.engine.states import CONNECTION_TABLE, LINK_TABLE, SESSION_TABLE
from tests.support.diagrams import BLOCK, PAGE, diagrams, drawn, words

TABLES = {"connection": CONNECTION_TABLE, "session": SESSION_TABLE, "link": LINK_TABLE}
ARROW = re.compile(r"^    (\w+) --> (\w+): (.+)$", re.MULTILINE)


def test_the_page_shows_what_the_tables_say() -> None:
    page = PAGE.read_text("utf-8")
    assert page == drawn(page), "run python -m tests.support.diagrams"


def test_the_page_has_every_diagram_once() -> None:
    assert [name for _, name, _ in BLOCK.findall(PAGE.read_text("utf-8"))] == list(TABLES)


def test_a_page_that_lags_behind_is_noticed() -> None:
    page = PAGE.read_text("utf-8")
    assert "MAPPED --> END_SENT: send end" in page
    assert drawn(page.replace("MAPPED --> END_SENT: send end", "MAPPED --> MAPPED: end")) == page


@pytest.mark.parametrize("name", TABLES)
def test_a_diagram_has_an_arrow_for_every_entry_and_no_other(name: str) -> None:
    arrows = {
        (old, label): new
        for old, new, labels in ARROW.findall(diagrams()[name])
        for label in labels.split(", ")
    }
    assert arrows == {
        (state.name, words(given)): new.name for (state, given), new in TABLES[name].items()
    }


def test_the_page_names_every_module_of_the_engine() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", page, re.MULTILINE)
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    engine = PAGE.parents[1] / "runtime" / "ferrymq" / "engine"
    assert named == {path.stem for path in engine.glob("*.py")} - {"__init__"}
