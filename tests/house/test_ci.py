"""The parts of CI that are programs of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def summary(*paths: Path) -> subprocess.CompletedProcess[str]:
    """Run the summary over result files."""
    command = [sys.executable, str(ROOT / ".ci" / "summary.py"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_summary_adds_up_all_runs(tmp_path: Path) -> None:
    one, two = tmp_path / "one.xml", tmp_path / "two.xml"
    one.write_text(RESULT.format(10, 0, 0, 1), "utf-8")
    two.write_text(RESULT.format(10, 0, 0, 0), "utf-8")
    done = summary(one, two)
    assert (done.stdout, done.returncode) == ("19 passed, 0 failed, 1 skipped\n", 0)


def test_summary_counts_errors_as_failures(tmp_path: Path) -> None:
    one = tmp_path / "one.xml"
    one.write_text(RESULT.format(10, 2, 1, 0), "utf-8")
    done = summary(one)
    assert (done.stdout, done.returncode) == ("7 passed, 3 failed, 0 skipped\n", 1)


def test_a_run_that_left_no_result_is_a_failure(tmp_path: Path) -> None:
    one = tmp_path / "one.xml"
    one.write_text(RESULT.format(10, 0, 0, 0), "utf-8")
    done = summary(one, tmp_path / "crashed.xml")
    assert (done.stdout, done.returncode) == ("10 passed, 1 failed, 0 skipped\n", 1)


def test_nothing_run_is_a_failure(tmp_path: Path) -> None:
    one = tmp_path / "one.xml"
    one.write_text(RESULT.format(0, 0, 0, 0), "utf-8")
    assert summary(one).returncode == 1


def test_the_entry_point_is_executable_and_parses() -> None:
    run = ROOT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    subprocess.run(["bash", "-n", str(run)], check=True)


def test_npm_lock_files_name_no_download_addresses() -> None:
    for lock in ROOT.glob("tests/**/package-lock.json"):
        if "node_modules" in lock.parts:
            continue
        packages = json.loads(lock.read_text("utf-8"))["packages"]
        assert [name for name, package in packages.items() if "resolved" in package] == [], lock
