"""amqp10, an older client for Node: it connects with SASL, sends, receives and settles."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.broker_process import BrokerProcess

FOLDER = Path(__file__).parent / "amqp10"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        shutil.which("node") is None or not (FOLDER / "node_modules").exists(),
        reason="Node or amqp10 is not installed",
    ),
]


def test_messages_come_back_as_they_were_sent(broker: BrokerProcess, address: str) -> None:
    texts = ["one", "two words", "drei ß"]
    done = subprocess.run(
        ["node", "run.js", broker.url, address, *texts],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[text, text, len(text)] for text in texts]
