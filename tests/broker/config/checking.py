"""`ferrymq check-config` in this process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from ferrymq_broker.cli.app import make_app


def check(path: Path, *arguments: str) -> Result:
    """Run the command, with a wide terminal. The password of alice, if there is one, stays
    secret."""
    result = CliRunner(env={"COLUMNS": "120"}).invoke(
        make_app(), ["check-config", str(path), *arguments]
    )
    assert "secret of alice" not in result.output
    return result
