"""`make help` explains every target, and what the documents tell people to run exists."""

from __future__ import annotations

import os
import re
import subprocess
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


def test_help_prints_them() -> None:
    # Not as a part of the make that runs this test: that one would add its own messages.
    outside = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make", "help"], cwd=ROOT, env=outside, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == list(EXPLAINED)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/build.md"])
def test_documented_make_commands_exist(page: str) -> None:
    named = set(re.findall(r"`make ([a-z][a-z-]*)", (ROOT / page).read_text("utf-8")))
    named |= set(
        re.findall(r"^make ([a-z][a-z-]*)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    )
    assert named
    assert named <= set(EXPLAINED)
