"""The durable part: every case has its figure, and what goes wrong has none."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bench.parts import durable
from bench.parts.broker import EXTERNAL, MESSAGES, OURS
from bench.parts.durable import AT_LEAST, AT_MOST, DEMAND, DISK, Disk, DurableBench, disks
from bench.parts.latency import US
from bench.process import Server, broker, durable_broker
from bench.results import Report
from bench.tree import Trees

Start = Callable[[Trees, Path, Mapping[str, str]], Server]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "PROBE", 50)


def measure(folder: Path, *, tool: str | None = None, rounds: int = 1) -> Report:
    report = DurableBench(
        Trees(pure=True), folder, rounds=rounds, seconds=0.0, pings=10, tool=tool
    ).measure()
    left = {path.name for path in folder.iterdir()}
    assert left <= {"slow_disk.so", "tool"}, "the stores are removed, whatever happened"
    return report


def one_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "disks", lambda _: ([Disk("this disk", {}, False)], ""))


def replace_broker(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    one_disk(monkeypatch)
    monkeypatch.setattr(durable, "durable_broker", start)


def tool(folder: Path, **answer: object) -> str:
    """An external load tool that does nothing but answer."""
    path = folder / "tool"
    path.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(answer))})\n", "utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.slow
def test_every_case_has_its_figure_on_both_disks(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    found, why_not = disks(tmp_path / "probe")
    (tmp_path / "own").mkdir()
    report = measure(tmp_path / "own", rounds=2)
    assert not report.failures
    assert (why_not in report.notes) == bool(why_not)
    cases: dict[str, str] = {}
    for disk in found:
        cases[f"{disk.name}, 1 KiB, {OURS}"] = MESSAGES
        for name in ("p50", "p99"):
            cases[f"{disk.name}, one alone until it is answered, {name}"] = US
    figures = {(each.case, each.contender): each for each in report.figures}
    assert set(figures) == {(case, each) for case in cases for each in (OURS, DISK)}
    for (case, _), figure in figures.items():
        assert figure.unit == cases[case]
        assert len(figure.values) == 2
        assert min(figure.values) > 0
    assert [each.case for each in report.comparisons] == list(cases)
    assert sum("messages in a batch on average" in note for note in report.notes) == len(found)


@pytest.mark.slow
def test_what_is_demanded(tmp_path: Path) -> None:
    found, why_not = disks(tmp_path)
    if why_not:
        pytest.skip(why_not)
    report = measure(tmp_path)
    assert not report.failures
    # On a disk that syncs in no time there is nothing to compare one alone with.
    assert {each.case: (each.at_least, each.at_most) for each in report.comparisons} == {
        f"{disk.name}, {case}": demanded if disk.slow or demanded[0] else (None, None)
        for disk in found
        for case, demanded in (
            (f"1 KiB, {OURS}", (AT_LEAST, None)),
            ("one alone until it is answered, p50", (None, AT_MOST["p50"])),
            ("one alone until it is answered, p99", (None, AT_MOST["p99"])),
        )
    }
    demands = {each.case: each.demand for each in report.figures if each.demand is not None}
    assert demands == {f"{found[1].name}, 1 KiB, {OURS}": DEMAND}
    for figure in report.figures:
        if figure.case.startswith(found[1].name) and figure.unit == US:
            assert figure.median >= 1000, "both wait for the slow disk"


@pytest.mark.slow
def test_an_external_tool_has_figures_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_disk(monkeypatch)
    report = measure(tmp_path, tool=tool(tmp_path, ok=True, error="", through_msgs_s=1234.5))
    assert not report.failures
    theirs = report.figure(f"this disk, 1 KiB, {EXTERNAL}", OURS, MESSAGES)
    assert theirs is not None
    assert theirs.values == [1234.5]
    assert report.figure(f"this disk, 1 KiB, {OURS}", OURS, MESSAGES) is not None


@pytest.mark.slow
def test_an_external_tool_that_fails_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_disk(monkeypatch)
    report = measure(tmp_path, tool=tool(tmp_path, ok=False, error="3 lost"))
    assert len(report.failures) == 1
    assert report.failures[0].endswith("tool: 3 lost")
    assert report.figure(f"this disk, 1 KiB, {EXTERNAL}", OURS, MESSAGES) is None


@pytest.mark.slow
def test_without_metrics_there_is_no_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwatched(trees: Trees, data: Path, preload: Mapping[str, str]) -> Server:
        server = durable_broker(trees, data, preload)
        at = server.arguments.index("--http")
        del server.arguments[at : at + 2]
        return server

    replace_broker(monkeypatch, unwatched)
    report = measure(tmp_path)
    assert len(report.failures) == 1
    assert "does not tell its ferrymq_store_batches_total" in report.failures[0]
    assert {figure.unit for figure in report.figures} == {US}, "the rest is measured all the same"


@pytest.mark.slow
def test_without_a_store_there_is_no_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(trees: Trees, data: Path, preload: Mapping[str, str]) -> Server:
        server = broker(trees)
        server.arguments += ["--http", "http://127.0.0.1:0"]
        return server

    replace_broker(monkeypatch, forgetful)
    report = measure(tmp_path)
    assert MESSAGES not in {figure.unit for figure in report.figures}
    assert len(report.failures) == 1
    assert report.failures[0].startswith("this disk: the broker does not tell")


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

    replace_broker(monkeypatch, losing)
    monkeypatch.setattr(durable, "IDLE", 1.0)
    report = measure(tmp_path)
    assert len(report.failures) == 1
    assert MESSAGES not in {figure.unit for figure in report.figures}


@pytest.mark.slow
def test_a_broker_that_is_gone_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying(Server):
        def __enter__(self) -> Server:
            super().__enter__()
            self.kill()
            return self

    def dying(trees: Trees, data: Path, preload: Mapping[str, str]) -> Server:
        server = durable_broker(trees, data, preload)
        return Dying(server.name, server.arguments, trees.broker)

    replace_broker(monkeypatch, dying)
    report = measure(tmp_path)
    assert len(report.failures) == 2
    assert not report.figures
