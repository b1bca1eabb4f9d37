"""The pages are true where a machine can tell: links lead somewhere, Python in them is Python."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from pathlib import Path

import pytest

from ferrymq.blocking.portal import Portal
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "spec/**/*.md", "bench/**/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)
OURS = ("ferrymq", "ferrymq_broker", "ferrymq_codec", "ferrymq_types")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors a page's headings get: lower case, punctuation dropped, spaces to dashes."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def python_blocks(page: Path) -> list[str]:
    """The Python examples of a page."""
    found = FENCE.findall(page.read_text("utf-8"))
    return [textwrap.dedent(code) for _, language, code in found if language == "python"]


@pages
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link} leads nowhere"
        assert path.is_relative_to(ROOT), f"{page.name}: {link} leads out of the repository"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name}: {link} names no heading"


DOCS = [page for page in PAGES if page.is_relative_to(ROOT / "docs")]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_opens_with_one_sentence_that_says_what_it_is_for(page: Path) -> None:
    title, opening, *_ = page.read_text("utf-8").strip().split("\n\n")
    assert re.fullmatch(r"# .+", title)
    assert re.fullmatch(r"This (page|part|decision|tutorial) .+\.", opening, re.DOTALL), opening
    assert not re.search(r"[.:!?]\s+[A-Z`\[]", opening), f"more than a sentence: {opening}"


@pages
def test_python_examples_compile_and_import_what_exists(page: Path) -> None:
    for code in python_blocks(page):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        compile(code, page.name, "exec", flags=flags, dont_inherit=True)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] in OURS:
                        importlib.import_module(alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module:
                if node.module.split(".")[0] in OURS:
                    module = importlib.import_module(node.module)
                    for alias in node.names:
                        assert hasattr(module, alias.name), f"{node.module}.{alias.name}"


PROGRAMS = [
    (page, code)
    for page in PAGES
    for code in python_blocks(page)
    if 'if __name__ == "__main__":' in code and "\n# Prints:\n" in code
]


@pytest.mark.parametrize(("page", "code"), PROGRAMS, ids=[page.stem for page, _ in PROGRAMS])
def test_programs_on_pages_print_what_they_say(
    page: Path, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that says what it prints is run, with a broker of its own."""
    config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    portal = Portal("broker")
    server = portal.run(BrokerServer(config).__aenter__)
    try:
        here = code.replace("amqp://localhost", server.url)
        exec(compile(here, page.name, "exec", dont_inherit=True), {"__name__": "__main__"})
    finally:
        portal.run(lambda: server.__aexit__(None, None, None))
        portal.stop()
    promised = code.partition("\n# Prints:\n")[2].splitlines()
    assert [f"# {line}" for line in capsys.readouterr().out.splitlines()] == promised


def test_the_pages_are_found() -> None:
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert "management" in [page.stem for page, _ in PROGRAMS]
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/build.md"} <= names
