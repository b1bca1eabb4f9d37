"""What comes from clients cannot pretend to be something else in a log, nor fill it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine.sasl import Plain
from ferrymq_broker import audit
from ferrymq_broker.config.log import Log
from ferrymq_broker.event_log import log
from ferrymq_broker.sanitize import MOST, clean, clean_lines
from ferrymq_broker.server.logs import configure_logging
from tests.broker.harness import Network
from tests.broker.management.rules import guard

EVIL = "x\r\n2026-01-01T00:00:00Z [info ] login user=admin\x1b[2J\x1b]0;title\x07\u202e\x9b\u2028\0"


class Stderr:
    """What a broker process has logged."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Stderr]:
    """Where a broker process logs to."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield Stderr(capsys)
    root.handlers[:] = before
    root.setLevel(level)


@given(st.text())
def test_clean_text_is_one_printable_line(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.isprintable()
    if text.isprintable() and len(text) <= MOST:
        assert cleaned == text


@given(st.text(min_size=MOST + 1, max_size=3 * MOST))
def test_clean_text_is_short(text: str) -> None:
    # An escape has ten characters at most.
    assert len(clean(text)) <= 10 * (MOST + 1)
    assert "…" in clean(text)


@given(st.text())
def test_no_line_of_a_traceback_looks_like_an_entry(text: str) -> None:
    assert all(line.startswith("  ") for line in clean_lines(text).split("\n"))
    assert all(line.isprintable() for line in clean_lines(text).split("\n"))


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("through", ["container", "link", "user", "hostname", "management"])
def test_names_of_clients_get_into_no_log_raw(stderr: Stderr, format: str, through: str) -> None:
    configure_logging(Log.model_validate({"level": "debug", "format": format}))
    net = Network()
    evil = EVIL.replace("\0", "")
    if through == "container":
        net.connect(container_id=evil).lose()
    elif through == "link":
        guard(net)
        net.connect().sender("a", name=evil)
        net.connect().sender(evil)
    elif through == "user":
        net.connect(sasl=Plain(evil, "pw")).close()
    elif through == "hostname":
        net.broker.strict_hosts = True
        net.connect(hostname=evil)
    else:
        audit.changed("peer", evil, evil, "CREATE", evil, evil, 200, evil)
    lines = stderr.getvalue().splitlines()
    assert lines
    assert evil[:1] in stderr.getvalue()
    for line in lines:
        if format == "json":
            json.loads(line)
        assert line.isprintable()
        assert not line.startswith("2026-01-01")


def test_a_traceback_is_logged_and_its_lines_are_its_own(stderr: Stderr) -> None:
    configure_logging(Log())
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("internal error", peer="p")
    lines = stderr.getvalue().split("\n")
    assert any("Traceback" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("2026-01-01") for line in lines)
    # A library's log entries go the same way.
    logging.getLogger("asyncio").warning("from %s", EVIL)
    assert stderr.getvalue().split("\n")[-2].isprintable()


def test_long_values_are_cut(stderr: Stderr) -> None:
    configure_logging(Log())
    Network().connect().sender("a" * 50_000)
    audit.login_refused("peer", "u" * 50_000, "PLAIN", True, "why")
    assert 500 < len(stderr.getvalue()) < 3000
