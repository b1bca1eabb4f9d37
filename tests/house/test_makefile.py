"""`make help` explains every target, and what the documents tell people to run exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
EXPLAINED = dict(re.findall(r"^([a-z-]+):.*?## (.+)$", MAKEFILE, re.MULTILINE))
PROMISED = {"help", "run", "test", "build", "regen", "check-generated", "lint", "type"} | {
    "test-all",
    "bench",
    "interop",
    "conformance",
    "fuzz",
    "docs",
    "clean",
}


def test_every_public_target_has_help_text() -> None:
    declared = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert declared is not None
    assert PROMISED <= set(declared[1].replace("\\\n", " ").split()) == set(EXPLAINED)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/build.md"])
def test_documented_make_commands_exist(page: str) -> None:
    named = set(re.findall(r"`make ([a-z][a-z-]*)", (ROOT / page).read_text("utf-8")))
    named |= set(
        re.findall(r"^make ([a-z][a-z-]*)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    )
    assert named
    assert named <= set(EXPLAINED)
