"""`ferrymq admin list` and `ferrymq top`: sorted, limited, again and again, live."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from ferrymq import blocking
from ferrymq_broker.cli.admin import entities
from ferrymq_broker.cli.admin.tables import print_list
from ferrymq_broker.cli.app import make_app
from ferrymq_broker.cli.top import View, screen
from ferrymq_broker.config.errors import ConfigError
from tests.broker.test_process import port_in, serve

# The command line is not compiled.
pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        url = f"amqp://127.0.0.1:{port_in(lines[0])}"
        with blocking.connect(url) as connection:
            with connection.management() as management:
                for name in ("b", "a", "c"):
                    management.create("queue", name)
                management.create("topic", "news")
            for name, count in (("a", 2), ("c", 1)):
                with connection.sender(name) as sender:
                    for _ in range(count):
                        sender.send("m")
        yield url


def told(*words: str) -> str:
    result = CliRunner().invoke(make_app(), words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def names(*words: str) -> list[str]:
    return [row["name"] for row in json.loads(told(*words, "--json"))]


def test_a_list_is_sorted_and_cut(url: str) -> None:
    words = ("admin", "list", "queues", "--url", url)
    assert names(*words) == ["a", "b", "c"]
    assert names(*words, "--sort", "-available") == ["a", "c", "b"]
    assert names(*words, "--sort", "available", "--limit", "2") == ["b", "c"]
    assert names(*words, "--limit", "0") == []
    lines = told(*words, "--sort=-available", "--columns", "name,available,in-rate").splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["a", "2"], ["c", "1"], ["b", "0"]]


def test_options_stand_where_they_are_thought_of(url: str) -> None:
    assert names("admin", "--url", url, "list", "queues") == ["a", "b", "c"]
    with pytest.raises(ValueError, match="--no-verify are for amqps"):
        told("admin", "list", "queues", "--no-verify", "--url", url)
    assert names("admin", "list", "--url", url, "queues", "-n", "1") == ["a"]
    assert "show" in told("admin", "--help")


@pytest.mark.parametrize("words", [("--columns", "name,weight"), ("--sort", "-weight")])
def test_an_unknown_column_is_refused_with_those_that_exist(
    url: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refused:
        told("admin", "list", "queues", "--url", url, *words)
    assert "there is no column 'weight'; the columns are name, " in str(refused.value)
    assert "in-rate" in str(refused.value)


def test_a_list_is_shown_until_it_is_ended(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = 0

    async def end_after_two(seconds: float) -> None:
        nonlocal shown
        shown += 1
        assert seconds == 0.5
        if shown == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(entities.asyncio, "sleep", end_after_two)
    words = ("admin", "list", "queues", "--url", url, "--watch", "--interval", "0.5")
    assert told(*words).count("available") == 2


def test_tables_have_straight_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [
        {"name": "日本", "available": 5, "in-rate": 0.5},
        {"name": "plain", "available": 12_345, "in-rate": None},
    ]
    print_list(["name", "available", "in-rate"], rows)
    assert capsys.readouterr().out.splitlines() == [
        "name    available   in-rate",
        "───────────────────────────",
        "日本            5       0.5",
        "plain       12345         -",
    ]


def test_top_prints_one_table_into_a_pipe(url: str) -> None:
    lines = told("top", "--url", url, "--sort", "-messages", "-n", "2").splitlines()
    assert lines[0].startswith("ferrymq ")
    assert lines[1].split()[:4] == ["name", "in-rate", "out-rate", "messages"]
    assert [line.split()[0] for line in lines[2:]] == ["a", "c"]
    shown = json.loads(told("top", "topics", "--url", url, "--json"))
    assert [row["name"] for row in shown["topic"]] == ["news"]
    assert shown["broker"].keys() >= {"in-rate", "out-rate", "alarms"}


@pytest.mark.parametrize(
    ("words", "said"), [(("links",), "'link'"), (("--sort", "weight"), "'weight'")]
)
def test_top_says_what_it_can_show(url: str, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        told("top", "--url", url, *words)


def test_keys_of_top() -> None:
    view = View("queue", "in-rate", True)
    for key in (">", "r"):
        assert view.press(key)
    assert view.sort == "out-rate"
    assert view.press("<")
    assert view.press("<")
    assert view.sort == "name"
    assert view.press("\t")
    assert (view.kind, view.sort) == ("subscription", "name")
    assert not view.press("x")
    assert not view.done
    assert view.press("q")
    assert view.done


def test_a_narrow_screen_shortens_names() -> None:
    row: dict[str, object] = {"name": "n" * 50, "in-rate": 1.5, "oldest-age": 7300}
    lines = screen(View("queue", "in-rate", True), {}, [row], 80)
    assert "nn…" in lines[2]
    assert " 2h " in lines[2]
    assert len(lines[2]) <= 80


def test_top_on_a_terminal(url: str) -> None:
    """`ferrymq top` shows the table, follows keys, and leaves the terminal as it was."""
    theirs, ours = pty.openpty()
    command = [sys.executable, "-m", "ferrymq_broker", "top", "--url", url, "--interval", "60"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
    process = subprocess.Popen(
        command, stdin=ours, stdout=ours, stderr=ours, env=environment, close_fds=True
    )
    os.close(ours)
    try:
        seen = _until(theirs, "\x1b[J")
        assert "\x1b[7m  in-rate" in seen or "\x1b[7min-rate" in seen
        os.write(theirs, b">")
        assert "out-rate\x1b[0m" in _until(theirs, "\x1b[J")
        os.write(theirs, b"\t")
        assert "links" in _until(theirs, "\x1b[J")
        os.write(theirs, b"q")
        assert "\x1b[?1049l" in _until(theirs, "\x1b[?1049l")
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(theirs)


def _until(terminal: int, text: str) -> str:
    seen = ""
    while text not in seen:
        seen += os.read(terminal, 65536).decode("utf-8", "replace")
    return seen
