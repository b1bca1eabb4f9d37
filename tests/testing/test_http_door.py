"""`ferrymq testing`: a broker for tests of programs in any language, driven over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ferrymq import Message, blocking
from ferrymq.errors import DeliveryRejected

START = "import typer; from ferrymq.testing.command import testing; typer.run(testing)"


class Door:
    """The command, as another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(3)]
        assert [line[0] for line in lines] == ["listening", "http", "ready"]
        self.process = process
        self.amqp = lines[0][1]
        self.http = lines[1][1]

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@pytest.fixture
def door() -> Iterator[Door]:
    command = [sys.executable, "-c", START, "--queue", "orders"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Door(process)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def test_clock_faults_and_queues_over_http(door: Door) -> None:
    with blocking.connect(door.amqp) as connection:
        sender = connection.sender("orders")
        sender.send(Message(body="milk", ttl=30, subject="new"))
        status, found = door.ask("GET", "/queues/orders")
        assert status == 200
        assert found["counts"] == {"available": 1, "acquired": 0, "scheduled": 0}
        assert found["messages"][0]["body"] == "milk"
        assert found["messages"][0]["subject"] == "new"
        assert door.ask("POST", "/clock", {"advance": 31})[1]["advanced"] == 31
        assert door.ask("GET", "/queues/orders")[1]["messages"] == []

        rejecting = {"fault": "reject", "address": "orders", "condition": "shop:closed"}
        status, fault = door.ask("POST", "/faults", rejecting)
        assert (status, fault["fired"]) == (201, 0)
        with pytest.raises(DeliveryRejected):
            sender.send(Message(body="bread"))
        assert door.ask("GET", "/faults")[1][0]["fired"] == 1
        assert door.ask("DELETE", f"/faults/{fault['number']}")[0] == 200
        sender.send(Message(body=b"\x00"))
        found = door.ask("GET", "/queues/orders")[1]
        assert found["messages"][0]["body"] == {"base64": "AA=="}

    host = door.ask("POST", "/hosts", {"queues": ["orders"]})[1]
    with blocking.connect(host["url"]) as connection:
        connection.sender("orders").send(Message(body="mine"))
    found = door.ask("GET", f"/queues/orders?host={host['name']}")[1]
    assert [each["body"] for each in found["messages"]] == ["mine"]
    assert door.ask("DELETE", f"/hosts/{host['name']}")[0] == 200

    assert door.ask("GET", "/queues/nothing")[0] == 404
    assert door.ask("POST", "/clock", {"advance": -1})[0] == 400
    assert door.ask("POST", "/clock", {"advance": "1"})[0] == 400
    assert door.ask("POST", "/faults", {"fault": "explode"})[0] == 400
    assert door.ask("DELETE", "/faults/9")[0] == 404
    # A page in a browser cannot use the door.
    assert door.ask("DELETE", "/faults", None, Origin="http://example.com")[0] == 403
    assert door.ask("GET", "/clock", None, Host="example.com")[0] == 403


def test_without_the_broker_the_command_says_what_to_install() -> None:
    program = f"import sys; sys.modules['structlog'] = None; sys.argv = ['ferrymq']; {START}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "structlog: pip install 'ferrymq[broker]'" in done.stderr
