"""A module holds one concept: hand-written ones are short."""

from __future__ import annotations

import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HAND_WRITTEN = ("runtime", "broker", "pipeline", "codegen", "bench")
WITH_TESTS = (*HAND_WRITTEN, "tests")
MEDIAN, LIMIT = 150, 600


def lengths(folders: tuple[str, ...]) -> dict[str, int]:
    """Lines of every hand-written module in these folders that is not empty."""
    return {
        path.relative_to(ROOT).as_posix(): count
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text("utf-8").splitlines()))
    }


def test_no_module_is_over_the_limit() -> None:
    assert {name: count for name, count in lengths(WITH_TESTS).items() if count > LIMIT} == {}


def test_the_median_module_is_short() -> None:
    counts = lengths(HAND_WRITTEN)
    assert len(counts) > 20
    assert statistics.median(counts.values()) <= MEDIAN
