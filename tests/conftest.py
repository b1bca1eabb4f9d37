"""What holds for every test: Hypothesis profiles, the build variant, missing optional peers."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline anywhere: a shared machine would turn one into a random failure.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", deadline=None, suppress_health_check=_QUIET)
settings.register_profile(
    "ci", deadline=None, suppress_health_check=_QUIET, derandomize=True, print_blob=True
)
settings.register_profile(
    "fuzz", deadline=None, suppress_health_check=_QUIET, max_examples=1000, print_blob=True
)
settings.load_profile("dev")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what is to run in the background; some tests interrupt what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_IMPORTS_PROTON = re.compile(r"^(?:from|import) c?proton\b", re.MULTILINE)
_LEFT_OUT = pytest.StashKey[list[str]]()


def running_variant() -> str:
    """`compiled` or `pure`: which of the two an import of the packages would give now."""
    try:
        spec = importlib.util.find_spec("ferrymq_codec.reader")
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise pytest.UsageError("ferrymq is not installed: run `make install`")
    return "pure" if spec.origin.endswith(".py") else "compiled"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--until",
        type=float,
        default=None,
        metavar="EPOCH",
        help="start no test after this time (seconds since the epoch); take them in random order",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--until") is not None:
        # Every process of a run has to find the same order.
        random.Random(str(config.getoption("--hypothesis-seed", None))).shuffle(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("the time for this run is over")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = []
    wanted = os.environ.get("FERRYMQ_BUILD")
    if wanted and wanted != running_variant():
        raise pytest.UsageError(
            f"this run is for the {wanted} build, but the {running_variant()} one would be imported"
        )


def pytest_report_header() -> str:
    return f"ferrymq: {running_variant()} build"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out tests against Proton where it could not be installed, and say so at the end."""
    if collection_path.suffix != ".py" or importlib.util.find_spec("proton") is not None:
        return None
    if not _IMPORTS_PROTON.search(collection_path.read_text("utf-8")):
        return None
    config.stash[_LEFT_OUT].append(collection_path.name)
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    names = config.stash[_LEFT_OUT]
    if names:
        terminalreporter.write_line(
            f"left out, python-qpid-proton is not installed: {', '.join(sorted(names))}"
        )
