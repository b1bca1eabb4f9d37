from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.needs import why_not
from tests.crash.processes import Starter


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """Forks brokers of the build that is tested."""
    starter = Starter()
    yield starter
    starter.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory for a run, which it may remove."""
    path = tmp_path / "run"
    path.mkdir()
    return path


@pytest.fixture
def strace() -> None:
    """strace is there."""
    _need("strace")


@pytest.fixture
def disks() -> None:
    """File systems can be mounted."""
    _need("disks")


@pytest.fixture
def postgresql() -> None:
    """PostgreSQL is there."""
    _need("postgresql")


def _need(what: str) -> None:
    reason = why_not(what)
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"these tests are to run here, but {reason}")
    pytest.skip(reason)
