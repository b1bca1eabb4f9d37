"""The site of the documentation is built without a warning, needs no network and has everything."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ferrymq
from ferrymq import blocking, errors, testing
from ferrymq.testing import strategies

ROOT = Path(__file__).resolve().parents[2]
PARTS = ["Tutorial", "How-to", "Concepts", "Reference", "Broker operators", "Pipeline", "Decisions"]
# What a browser fetches by itself; links that a reader follows may lead anywhere.
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]*)")
FETCHED_BY_CSS = re.compile(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]*)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_navigation_has_all_parts_and_every_page_is_there(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    tabs = re.findall(r'md-tabs__link">\s*(.*?)\s*</a>', index, re.DOTALL)
    assert tabs[1:] == PARTS
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / path.replace("README.html", "index.html")).exists(), path


def test_a_reader_without_a_network_misses_nothing(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        links = [link for link in FETCHED.findall(text) if "rel=canonical" not in link]
        assert not links, page
    for style in site.rglob("*.css"):
        assert not FETCHED_BY_CSS.findall(style.read_text("utf-8")), style
    # The index of the search is a script: a page that comes from a file may not fetch anything.
    assert (site / "search/search_index.js").stat().st_size > 100_000
    assert "assets/iframe-worker.js" in (site / "index.html").read_text("utf-8")


def test_the_search_finds_pages_and_names_of_the_reference(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert "broker/queues.html" in places
    assert "reference/client.html#ferrymq.Connection.receiver" in places
    assert not [place for place in places if place.startswith("source/")]


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_the_search_works_from_a_folder(site: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    # Without a sandbox, because in a container there may be none; the pages are our own.
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    page = f"{(site / 'broker/queues.html').as_uri()}?q=credit"
    done = subprocess.run(
        [CHROMIUM, *options, "--virtual-time-budget=60000", "--dump-dom", page],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found = re.search(r'md-search-result__meta">\s*(\d+) matching documents', done.stdout)
    assert found is not None and int(found[1]) > 10
    links = re.findall(r'href="([^"]*)" class="md-search-result__link"', done.stdout)
    assert any("concepts/deliveries.html" in link for link in links), links


def test_links_to_files_of_the_repository_lead_to_their_text(site: Path) -> None:
    page = (site / "client/asyncio.html").read_text("utf-8")
    assert 'href="../source/examples/client_asyncio.py.html"' in page
    source = (site / "source/examples/client_asyncio.py.html").read_text("utf-8")
    assert "async" in source and "client_asyncio.py" in source
    # A folder is a list of its files.
    folder = (site / "source/examples/broker.html").read_text("utf-8")
    assert 'href="broker/queues.py.html"' in folder or 'href="broker/topics.py.html"' in folder


def headings(site: Path, page: str) -> set[str]:
    """The names that a page of the reference explains."""
    text = (site / "reference" / page).read_text("utf-8")
    return set(re.findall(r'id="(ferrymq[\w.]*)" class="doc doc-heading"', text))


def test_the_reference_has_every_public_name(site: Path) -> None:
    client = headings(site, "client.html") | headings(site, "errors.html")
    of_client = {name.rpartition(".")[2] for name in client}
    modules = {"__version__", "aio", "azure", "blocking", "errors", "rabbitmq", "testing"}
    assert set(ferrymq.__all__) - modules <= of_client, "add `::: ferrymq.NAME` to docs/reference"
    assert set(errors.__all__) <= of_client
    of_blocking = {name.rpartition(".")[2] for name in headings(site, "blocking.html")}
    assert set(blocking.__all__) <= of_blocking
    of_testing = {name.rpartition(".")[2] for name in headings(site, "testing.html")}
    assert {*testing.__all__, *strategies.__all__} <= of_testing


def test_the_reference_has_methods_for_users_and_no_others(site: Path) -> None:
    names = headings(site, "client.html")
    # Inherited ones too.
    assert {"ferrymq.Connection.receiver", "ferrymq.Sender.detach"} <= names
    assert not {"ferrymq.Connection.on_event", "ferrymq.Connection.give_up"} & names
    assert not [name for name in names if "._" in name]
