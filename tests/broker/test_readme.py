"""README.md works when it is followed from its top to the part about Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reader import ROOT, blocks, follow

README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.once
@pytest.mark.timeout(120)
def test_readme_works_in_its_order(tmp_path: Path) -> None:
    first, found, _ = README.partition("\n## Streams and Spark\n")
    assert found
    said = follow(first, tmp_path)
    # Sent by the command line and by the client, received by the client.
    assert "one coffee\ntwo teas\n" in said


def test_the_first_screen_has_a_picture_two_commands_and_a_short_program() -> None:
    screen = README.partition("\n## ")[0]
    assert "](docs/performance.svg)" in screen
    (_, commands), (_, program) = blocks(screen)
    assert len(commands.splitlines()) == 2
    assert len([line for line in program.splitlines() if line]) <= 13
    assert len(screen.splitlines()) <= 45
