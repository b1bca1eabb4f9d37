"""The security part: every way to a broker is gone, and set beside the plain one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.parts import security
from bench.parts.broker import MESSAGES
from bench.parts.security import CONNECTIONS, LOGINS, RELAYS, SCHEMES, SecurityBench
from bench.process import broker
from bench.tree import Trees


@pytest.mark.slow
def test_every_way_to_a_broker_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "PROBE", 50)
    monkeypatch.setattr(security, "FIRST", 1)
    trees = Trees(pure=True)
    security.make_certificates(trees, tmp_path)
    with (
        broker(trees, tmp_path / "open.toml", SCHEMES) as everybodys,
        broker(trees, tmp_path / "guarded.toml", SCHEMES) as guarded,
    ):
        report = SecurityBench(
            trees, (everybodys, guarded), tmp_path, rounds=1, seconds=0.0
        ).measure()
    assert not report.failures
    rates = {figure.case: figure for figure in report.figures
             if figure.unit in (MESSAGES, CONNECTIONS)}  # fmt: skip
    assert set(rates) == {case.name for case in (*RELAYS, *LOGINS)}
    assert all(figure.median > 1 for figure in rates.values())


@pytest.mark.slow
def test_who_is_not_let_in_has_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "PROBE", 50)
    monkeypatch.setattr(security, "FIRST", 1)
    # Nobody may do anything, and the password is another.
    refusing = security.GUARDED.replace("bench.*", "elsewhere").replace(security.PASSWORD, "other")
    monkeypatch.setattr(security, "GUARDED", refusing)
    monkeypatch.setattr(security, "RELAYS", security.RELAYS[2:])
    monkeypatch.setattr(security, "LOGINS", security.LOGINS[:2])
    trees = Trees(pure=True)
    security.make_certificates(trees, tmp_path)
    with (
        broker(trees, tmp_path / "open.toml", SCHEMES) as everybodys,
        broker(trees, tmp_path / "guarded.toml", SCHEMES) as guarded,
    ):
        report = SecurityBench(
            trees, (everybodys, guarded), tmp_path, rounds=1, seconds=0.0
        ).measure()
    failed = {failure.partition(": ")[0] for failure in report.failures}
    assert failed == {"relay, guarded by rules", "connecting, PLAIN"}
