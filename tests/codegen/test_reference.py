"""The pages about the types: every type has its place, links lead somewhere, tables stay tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.reference import core_pages, pages
from ferrymq_codegen.amqp_1_0.resolve import resolve
from ferrymq_codegen.cli import main
from tests.codegen.conftest import Workshop

PAGES = core_pages()
HEADING = re.compile(r"^## (\S+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([\w.]+\.md)#([\w-]+)\)")


def test_there_is_a_page_for_every_part() -> None:
    parts = ["filters", "messaging", "security", "transactions", "transport", "types"]
    assert sorted(PAGES) == sorted(["index.md", *(f"{part}.md" for part in parts)])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_headings(page: str) -> None:
    links = LINK.findall(PAGES[page])
    assert len(links) >= (100 if page == "index.md" else 0)
    missing = [(to, name) for to, name in links if name not in HEADING.findall(PAGES[to])]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_rows_of_a_table_have_the_cells_of_its_head(page: str) -> None:
    width = 0
    for line in PAGES[page].splitlines():
        cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells


def test_a_field_says_its_type_its_default_and_its_meaning() -> None:
    (row,) = [r for r in PAGES["transport.md"].splitlines() if r.startswith("| `max_frame_size`")]
    assert row.startswith(
        "| `max_frame_size` | [uint](types.md#uint) | <code>int</code> | `4294967295` | "
        "Largest frame accepted, in bytes."
    )
    assert "`idle_time_out` | [milliseconds](transport.md#milliseconds) " in PAGES["transport.md"]
    assert "descriptor `amqp:open:list` (0x10); provides `frame`; AMQP 1.0 §2.7.1" in (
        PAGES["transport.md"]
    )


def test_markup_in_texts_is_shown(workshop: Workshop) -> None:
    workshop.types(
        '<type name="x" class="restricted" source="uint" label="a *b* | `c` &lt;d&gt;"/>'
    )
    text = pages(resolve(read_spec([workshop.base, workshop.spec])), "case_types")["case.md"]
    assert r"**A \*b\* \| \`c\` &lt;d&gt;.**" in text


def test_the_command_writes_them(tmp_path: Path) -> None:
    assert main(["reference", "--out", str(tmp_path / "types")]) == 0
    written = {p.name: p.read_text("utf-8") for p in (tmp_path / "types").iterdir()}
    assert written == PAGES
