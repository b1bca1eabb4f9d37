"""The audit of dependencies: of declarations always, of vulnerabilities where that can be asked."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, output, "")

    monkeypatch.setattr(subprocess, "run", run)


def project(audit: ModuleType) -> dict[str, object]:
    loaded: dict[str, object] = audit.tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found = loaded["project"]
    assert isinstance(found, dict)
    return found


def test_what_is_not_declared_is_named_with_its_place_and_nothing_else(audit: ModuleType) -> None:
    known = project(audit)
    extras = known["optional-dependencies"]
    assert isinstance(extras, dict)
    extras["broker"] = [text for text in extras["broker"] if "lark" not in text] + ["colorama"]
    said = list(audit.undeclared(known))
    assert any("lark is imported, not declared" in line and ".py:" in line for line in said)
    assert any("colorama is declared" in line for line in said)
    assert [line for line in said if "lark" not in line and "colorama" not in line] == []


def test_a_vulnerability_fails(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = {"id": "X-1", "fix_versions": ["2"]}
    report = {"dependencies": [{"name": "rich", "version": "1", "vulns": [finding]}]}
    answer(monkeypatch, json.dumps(report))
    assert audit.vulnerable()
    assert "rich 1: X-1, fixed in 2" in capsys.readouterr().out


def test_without_a_way_to_ask_it_says_so_and_does_not_fail(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "")
    assert not audit.vulnerable()
    assert "not checked" in capsys.readouterr().out
