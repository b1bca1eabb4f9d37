"""The files of the console, and the fields of the answers that have them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

import ferrymq_broker.console.pages as pages
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

STATIC = Path(pages.__file__).with_name("static")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    listener = {"url": "any://127.0.0.1:0"}
    async with BrokerServer(Config.model_validate({"listener": [listener]})) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_files_and_their_policy(url: str, session: aiohttp.ClientSession) -> None:
    kinds = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/"}
    paths = [path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()]
    for path in ("", *paths, "vendor/uplot.js", "vendor/uplot.css"):
        async with session.get(f"{url}/console/{path}") as answer:
            assert answer.status == 200, path
            assert answer.headers["Content-Type"].startswith(kinds[Path(path or "x.html").suffix])
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'") and "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            tag = answer.headers["ETag"]
        headers = {"If-None-Match": tag}
        async with session.get(f"{url}/console/{path}", headers=headers) as answer:
            assert answer.status == 304 and await answer.read() == b""


async def test_other_paths_and_methods(url: str, session: aiohttp.ClientSession) -> None:
    for path in ("none", "../pages.py", "%2e%2e/pages.py", "views", "static/index.html"):
        async with session.get(f"{url}/console/{path}") as answer:
            assert answer.status == 404, path
    async with session.post(f"{url}/console/") as answer:
        assert answer.status == 405
    async with session.get(f"{url}/console", allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (308, "/console/")


def test_no_file_names_another_place_or_has_script_or_style_inside() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix not in (".html", ".js", ".css"):
            continue
        text = path.read_text("utf-8")
        assert not re.search(r"https?://|//[a-z]+\.[a-z]", text), path
        assert "innerHTML" not in text and "eval(" not in text
        if path.suffix == ".html":
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_charts_that_are_another_file_are_not_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "youplot"
    (package / "vendor").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "vendor" / "uplot.iife.min.js").write_text("alert(1)")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "vendor/uplot.js" not in pages._read_files()
    assert "index.html" in pages._read_files()
