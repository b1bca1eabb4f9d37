"""The audit log of a broker process, from its first login to its end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

import ferrymq
from ferrymq.errors import AmqpError
from ferrymq_broker.management.errors import ManagementError
from tests.broker.test_process import port_in, serve

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[log]
level = "error"
audit = "audit.jsonl"

[security.users]
alice = "opensesame"
eve = "closesesame"

[[rule]]
who = "user:alice"
may = "*"
where = ["orders", "dynamic.*"]
"""


def entries(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


async def _live(port: int) -> None:
    alice = f"amqp://alice:opensesame@127.0.0.1:{port}"
    async with (
        ferrymq.connect(alice) as connection,
        connection.management() as management,
    ):
        await management.create("queue", "orders", {"max-length": 5})
        await management.read("queue", "orders")
        with pytest.raises(ManagementError) as caught:
            await management.create("queue", "payroll")
        assert caught.value.status == 403
        with pytest.raises(AmqpError):
            await connection.sender("payroll")
    with pytest.raises(AmqpError):
        async with ferrymq.connect(f"amqp://eve:opensesame@127.0.0.1:{port}"):
            pass
    with pytest.raises(AmqpError):
        async with ferrymq.connect(f"amqp://eve:closesesame@127.0.0.1:{port}") as connection:
            await connection.sender("orders")


def test_what_is_on_record(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(CONFIG)
    log, moved = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    with serve("--config", str(path)) as (process, lines):
        asyncio.run(_live(port_in(lines[0])))
        log.rename(moved)
        process.send_signal(signal.SIGHUP)
        ended = time.monotonic() + 60
        while not log.exists() and time.monotonic() < ended:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0
    # Nothing of it is anywhere else.
    assert "login" not in stderr
    told = entries(moved)
    found = [(e["event"], e.get("user")) for e in told]
    assert found == [
        ("login", "alice"),
        ("management", "alice"),
        ("access-refused", "alice"),
        ("access-refused", "alice"),
        ("login-refused", "eve"),
        ("login", "eve"),
        ("host-refused", "eve"),
    ]
    login, change, management, link, refused, _, _ = told
    assert str(login["mechanism"]).startswith("SCRAM-") and login["encrypted"] is False
    assert str(login["peer"]).startswith("127.0.0.1:")
    assert (change["operation"], change["type"], change["name"]) == ("CREATE", "queue", "orders")
    assert (change["status"], change["outcome"], change["host"]) == (201, "created", "default")
    assert management["via"] == "management" and "payroll" in str(management["what"])
    assert link["via"] == "link" and "payroll" in str(link["what"])
    assert refused["reason"]
    assert "shutdown" in [e["event"] for e in entries(log)]
