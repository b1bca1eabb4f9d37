"""The pages and the example do what they say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from tests.broker.test_process import port_in, serve

ROOT = Path(__file__).resolve().parents[3]


def test_the_commands_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/broker/admin.md").read_text("utf-8")
    block = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) > 10
    runner = CliRunner()
    with serve("--listen", "amqp://127.0.0.1:0") as (_, printed):
        monkeypatch.setenv("FERRYMQ_URL", f"amqp://127.0.0.1:{port_in(printed[0])}")
        # What the page takes to be there.
        for queue in ("later", "work"):
            assert runner.invoke(make_app(), ["admin", "create", "queue", queue]).exit_code == 0
        for line in lines:
            words = shlex.split(line)
            assert words.pop(0) == "ferrymq"
            result = runner.invoke(make_app(), words)
            if "17" in words:
                assert "no connection '17'" in str(result.exception)
            else:
                assert result.exit_code == 0, f"{line}: {result.exception}"


def test_the_example() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples/broker/management.py")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "all-orders has 2",
        "new-orders has 1",
        "1 an order is new",
        "2 an order is paid",
        "moved 2",
        "not deleted: 409 'new-orders' has 3 messages",
    ]
