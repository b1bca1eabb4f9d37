"""The page does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.broker.cli_store.stores import fill
from tests.broker.test_process import port_in, run, serve

# The command line is not compiled.
pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/broker/durability.md").read_text("utf-8")


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    found = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in found if words[:2] == ["ferrymq", "store"]]


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """What the paths of the page are here."""
    fill(tmp_path / "ferrymq")
    return {
        "/var/lib/ferrymq": str(tmp_path / "ferrymq"),
        "/var/lib/another": str(tmp_path / "another"),
        "/backup/monday": str(tmp_path / "monday"),
        "/backup/tuesday": str(tmp_path / "tuesday"),
        "messages.jsonl.gz": str(tmp_path / "messages.jsonl.gz"),
    }


def test_the_commands_of_the_page(place: dict[str, str]) -> None:
    given = commands()
    assert {words[1] for words in given} == {
        "verify",
        "info",
        "compact",
        "backup",
        "export",
        "import",
    }
    for words in given:
        words = [place.get(word, word) for word in words]
        if "--url" not in words:
            result = run(*words)
            assert result.returncode == 0, f"{words}: {result.stderr}"
    online = [words for words in given if "--url" in words]
    assert len(online) == 1
    data = place["/var/lib/ferrymq"]
    with serve("--listen", "amqp://127.0.0.1:0", "--data", data) as (_, lines):
        place["amqp://127.0.0.1:5672"] = f"amqp://127.0.0.1:{port_in(lines[0])}"
        result = run(*(place.get(word, word) for word in online[0]))
        assert result.returncode == 0, result.stderr
    for name in ("/backup/monday", "/backup/tuesday", "/var/lib/another"):
        assert run("store", "verify", place[name]).returncode == 0


def test_every_figure_is_on_the_page() -> None:
    source = ROOT / "broker/ferrymq_broker/monitoring/store_metrics.py"
    text = source.read_text("utf-8")
    names = set(re.findall(r'^ +\(?"(?:ferrymq_store_)?([a-z_]+)",', text, re.MULTILINE))
    assert len(names) > 8
    figures = PAGE[PAGE.index("## Figures") :]
    for name in names:
        assert f"{name}" in figures, name
