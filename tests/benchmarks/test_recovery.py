"""Recovery: its figures, and that a broker which has lost something has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.parts import recovery
from bench.parts.broker import OURS
from bench.parts.recovery import MIB, SECONDS, recover
from bench.tree import Trees

MESSAGES = 1_200
CASE = "ready again after SIGKILL, 1 200 messages of 1 KiB"


@pytest.mark.slow
def test_a_broker_that_was_killed_has_its_figures(tmp_path: Path) -> None:
    report = recover(Trees(pure=True), tmp_path, MESSAGES)
    assert not report.failures
    ready = report.figure(CASE, OURS, SECONDS)
    assert ready is not None
    assert ready.median > 0
    assert ready.demand is None, "so few prove nothing"
    used = report.figure(CASE, f"{OURS}, broker's processor time", SECONDS)
    occupied = report.figure(CASE, f"{OURS}, what it occupies then", MIB)
    assert used is None or used.median > 0
    assert occupied is None or occupied.median > 1
    assert not list(tmp_path.iterdir())


def test_messages_that_do_not_come_back_are_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A header that says not durable: the broker may forget them, and does.
    monkeypatch.setattr(recovery, "DURABLE", "005370c0020142")
    monkeypatch.setattr(recovery, "IDLE", 2.0)
    report = recover(Trees(pure=True), tmp_path, MESSAGES)
    assert not report.figures
    assert len(report.failures) == 1
    assert report.failures[0].startswith(CASE)
    assert f"{MESSAGES} lost" in report.failures[0]
    assert not list(tmp_path.iterdir())
