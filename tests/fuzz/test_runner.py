"""The runner as people use it: as a process, and what it makes of one that found something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import campaign
from tests.fuzz.campaign import Outcome, run_target

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_short_run_without_atheris(tmp_path: Path) -> None:
    done = fuzz(
        "run", "url", "--seconds=0.5", "--engine=hypothesis", f"--corpus={tmp_path}", "--json"
    )
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(done.stdout)
    assert outcome["target"] == "url" and outcome["executions"] >= 200
    assert outcome["crashes"] == [] and outcome["failure"] == ""


def test_what_a_process_found_is_in_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(name: str, engine: str, seconds: float, *folders: object) -> list[str]:
        crash = tmp_path / "url" / "crashes" / "crash-1"
        program = (
            "import sys; from pathlib import Path;"
            "sys.stderr.write('#7\\tNEW    cov: 1 ft: 2 corp: 3/9b exec/s: 5 rss: 1Mb\\n');"
            f"Path({str(crash)!r}).write_bytes(b'x');"
            "sys.stderr.write('AssertionError: so it goes\\n'); sys.exit(77)"
        )
        return [sys.executable, "-c", program]

    monkeypatch.setattr(campaign, "_command", command)
    told: list[int] = []

    def tell(outcome: Outcome) -> None:
        told.append(outcome.executions)

    outcome = run_target("url", 1, tmp_path, "atheris", 1, tell)
    assert told == [7]
    assert outcome.crashes == [str(tmp_path / "url" / "crashes" / "crash-1")]
    assert "so it goes" in outcome.failure
    # What was found before is not found again.
    monkeypatch.setattr(campaign, "_command", lambda *_: [sys.executable, "-c", ""])
    assert run_target("url", 1, tmp_path, "atheris", 1, tell).failure == ""
