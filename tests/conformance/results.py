"""Run the tests that the ledger names and tell for each of them how it went.

Loaded into pytest as a plugin (`-p tests.conformance.results`) this module writes the outcome of
every test to the file that `--conformance-results` gives; `run` starts such a pytest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.ledger import ROOT, Clause, Standing


class Result(StrEnum):
    """What is known about a clause after its tests have run; the order is worst first."""

    FAILED = "failed"
    SKIPPED = "skipped"
    """A test was left out, for want of an optional peer for example: nothing is proved."""
    OPEN = "open"
    NOT_KEPT = "not kept"
    NOT_APPLICABLE = "not applicable"
    PASSED = "passed"


_OPTION: Final = "--conformance-results"
_PASSED: Final = Result.PASSED


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file for the outcomes."""
    parser.addoption(_OPTION, type=Path, help="write the outcome of every test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Start recording, in the process that collects the reports of all workers."""
    target: Path | None = config.getoption(_OPTION)
    if target is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(target))


class _Recorder:
    """Collects the worst outcome of every test over its phases."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._outcomes: dict[str, Result] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for set-up, call and tear-down of every test."""
        if report.failed:
            outcome = Result.FAILED
        elif report.skipped:
            outcome = Result.SKIPPED
        else:
            outcome = Result.PASSED
        known = self._outcomes.get(report.nodeid, Result.PASSED)
        self._outcomes[report.nodeid] = worst((known, outcome))

    def pytest_sessionfinish(self) -> None:
        """Called by pytest at the end: write what was collected."""
        self._target.write_text(json.dumps(self._outcomes, indent=1), "utf-8")


def worst(results: Iterable[Result]) -> Result:
    """The one that decides: a failure before everything else, a pass only if all passed."""
    order = list(Result)
    return min(results, key=order.index)


def run(tests: list[str], arguments: list[str] | None = None) -> dict[str, Result]:
    """Run `tests` with pytest and return the result of each, its parameters taken together.

    Raises RuntimeError when pytest itself fails, on a file that cannot be imported for example.
    """
    if not tests:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "results.json"
        command = [sys.executable, "-m", "pytest", "-q", "-p", __name__, f"{_OPTION}={target}"]
        # Text goes straight through, so that a long run shows its progress.
        code = subprocess.run([*command, *(arguments or []), *tests], cwd=ROOT, check=False)
        if code.returncode not in (0, 1) or not target.exists():
            raise RuntimeError(f"pytest could not run the tests (exit {code.returncode})")
        recorded: dict[str, str] = json.loads(target.read_text("utf-8"))
    return gather(tests, recorded)


def gather(tests: list[str], recorded: Mapping[str, str]) -> dict[str, Result]:
    """Fold the outcomes of single parameters into those of the tests that the ledger names."""
    folded: dict[str, list[Result]] = {test: [] for test in tests}
    for node, outcome in recorded.items():
        name = node.partition("[")[0]
        if name in folded:
            folded[name].append(Result(outcome))
    # A test that was named but never ran proves nothing.
    return {test: worst(found or [Result.SKIPPED]) for test, found in folded.items()}


def result_of(clause: Clause, results: Mapping[str, Result]) -> Result:
    """How a clause stands, given the results of the tests."""
    if clause.standing is Standing.OPEN:
        return Result.OPEN
    found = worst([results.get(test, Result.SKIPPED) for test in clause.evidence] or [_PASSED])
    # What is said to happen instead has to happen.
    if clause.tests or found is not Result.PASSED:
        return found
    return Result.NOT_KEPT if clause.not_kept else Result.NOT_APPLICABLE
