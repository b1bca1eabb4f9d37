"""README.md works when it is followed from its top to its end, with Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reader import ROOT, follow


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_readme_works_in_its_order(tmp_path: Path) -> None:
    said = follow((ROOT / "README.md").read_text("utf-8"), tmp_path)
    # Sent by the command line and by the client, received by the client; then through Spark.
    assert said.count("one coffee\ntwo teas\n") == 2
