"""Recovery: its figures, and that a broker which has lost something has none."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.cli import Extent
from bench.parts import recovery
from bench.parts.broker import OURS
from bench.parts.recovery import COUNT, MIB, SECONDS, recover
from bench.process import Server, durable_broker
from bench.results import Figure
from bench.tree import Trees

MESSAGES = 1_200
CASE = "ready again after SIGKILL, 1 200 messages of 1 KiB"


def test_what_is_demanded() -> None:
    assert COUNT == 1_000_000
    assert recovery.DEMAND == 10.0
    assert COUNT // Extent.quick().memory_shrink == 20_000
    assert Figure("case", OURS, SECONDS, [10.0], recovery.DEMAND).met is True
    assert Figure("case", OURS, SECONDS, [10.1], recovery.DEMAND).met is False


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


@pytest.mark.slow
def test_a_broker_that_does_not_start_again_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Server] = []

    def start(trees: Trees, data: Path, preload: Mapping[str, str]) -> Server:
        server = durable_broker(trees, data, preload)
        if started:
            server.arguments.append("--no-such-option")
        started.append(server)
        return server

    monkeypatch.setattr(recovery, "durable_broker", start)
    report = recover(Trees(pure=True), tmp_path, 10)
    assert not report.figures
    assert len(report.failures) == 1
    assert "did not start" in report.failures[0]
    assert "no-such-option" in report.failures[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_kill_leaves_no_process(tmp_path: Path) -> None:
    with durable_broker(Trees(pure=True), tmp_path / "data", {}) as server:
        pid = server.pid
        assert server.seconds_to_ready > 0
        server.kill()
    done = subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False)
    assert done.returncode == 1
