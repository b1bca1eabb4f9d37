"""The durable part: every case has its figure, and what goes wrong has none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.parts import durable
from bench.parts.broker import MESSAGES, OURS
from bench.parts.durable import DISK, SYNCED, Disk, DurableBench, disks
from bench.parts.latency import US
from bench.process import Server, durable_broker
from bench.results import Report
from bench.tree import Trees


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "PROBE", 50)


def measure(folder: Path, rounds: int = 1) -> Report:
    report = DurableBench(
        Trees(pure=True), folder, rounds=rounds, seconds=0.0, pings=10, tool=None
    ).measure()
    left = {path.name for path in folder.iterdir()}
    assert left <= {"slow_disk.so"}, "the stores are removed, whatever happened"
    return report


@pytest.mark.slow
def test_every_case_has_its_figure_on_both_disks(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    found, why_not = disks(tmp_path / "probe")
    (tmp_path / "own").mkdir()
    report = measure(tmp_path / "own", rounds=2)
    assert not report.failures
    assert (why_not in report.notes) == bool(why_not)
    cases: dict[str, tuple[str, str]] = {}
    for disk in found:
        cases[f"{disk.name}, 1 KiB, {OURS}"] = MESSAGES, DISK
        for name in ("p50", "p99"):
            cases[f"{disk.name}, one alone until it is answered, {name}"] = US, SYNCED
    figures = {(each.case, each.contender): each for each in report.figures}
    assert set(figures) == {
        (case, each) for case, (_, bare) in cases.items() for each in (OURS, bare)
    }
    for (case, _), figure in figures.items():
        assert figure.unit == cases[case][0]
        assert len(figure.values) == 2
        assert min(figure.values) > 0
    assert [each.case for each in report.comparisons] == list(cases)
    assert sum("messages in a batch on average" in note for note in report.notes) == len(found)


def test_a_broker_that_loses_messages_has_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path.parent / f"{tmp_path.name}.toml"
    config.write_text(
        '[[queue]]\nname = "elsewhere"\n'
        '[[exchange]]\nname = "astray"\nbinding = [{ to = "elsewhere" }]\n'
        '[[alias]]\nname = "bench-durable"\nto = "astray"\n', "utf-8",
    )  # fmt: skip

    def losing(trees: Trees, data: Path, preload: Mapping[str, str]) -> Server:
        return durable_broker(trees, data, preload, config)

    monkeypatch.setattr(durable, "disks", lambda _: ([Disk("this disk", {}, False)], ""))
    monkeypatch.setattr(durable, "durable_broker", losing)
    monkeypatch.setattr(durable, "IDLE", 1.0)
    report = measure(tmp_path)
    assert len(report.failures) == 1
    assert MESSAGES not in {figure.unit for figure in report.figures}
