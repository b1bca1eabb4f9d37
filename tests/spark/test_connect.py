"""Spark Connect: the data source on a server, used by clients that have no Java."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq import Message
from tests.interop.broker_process import BrokerProcess
from tests.spark.connect_server import ConnectServer
from tests.spark.kit import Streams, take_all
from tests.spark.sinking import messages_at
from tests.spark.test_pipelines_metrics import made_at

pytest.importorskip("grpc", reason="no packages of Spark Connect")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMMAND = [sys.executable, "-m", "ferrymq_broker", "pipeline"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as server:
        yield server


def command(server: ConnectServer, broker: BrokerProcess, *arguments: str) -> str:
    """Return the output of a command."""
    done = subprocess.run(
        [*COMMAND, *arguments, "--url", broker.url, "--master", server.url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_client_reads_and_writes(
    server: ConnectServer, broker: BrokerProcess, tmp_path: Path
) -> None:
    with Streams(broker) as streams:
        streams.create("orders", 2)
        streams.create("copies", 2)
        streams.fill("orders", 100)
    client = [sys.executable, "-m", "tests.spark.connect_client"]
    done = subprocess.run(
        [*client, server.url, broker.url, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "orders": 100, "lag": 0, "copies": 100, "copies again": 100, "lags": 60,
    }  # fmt: skip


def test_metrics(
    server: ConnectServer, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    to = f"{address}.results"
    with Streams(broker) as streams:
        streams.create(address)
        streams.create(to)
        streams.publish(address, [made_at(i / 10, i) for i in range(50)])
    one = ["metrics", address, "--by", "created", "--once"]
    # In one batch: all windows are printed.
    rows = [json.loads(row) for row in command(server, broker, *one, "--json").splitlines()]
    assert [row["messages"] for row in rows] == [10] * 5
    # As a query: windows that are over go to the address, also if it is started again.
    query = [*one, "--watermark", "2 minutes", "--checkpoint", str(tmp_path / "checkpoint")]
    for _ in range(2):
        command(server, broker, *query, "--to", to)
    found = [json.loads(bytes(one.body)) for one in messages_at(broker.url, to, start="first")]
    assert [row["messages"] for row in found] == [10, 10]
    with pytest.raises(AssertionError, match="results of a query do not come to its client"):
        command(server, broker, *query)


def test_archive_and_replay(
    server: ConnectServer, broker: BrokerProcess, address: str, tmp_path: Path
) -> None:
    again = f"{address}.again"
    with Streams(broker) as streams:
        streams.create(address, 2)
        streams.fill(address, 60)
    archive = str(tmp_path / "archive")
    command(
        server, broker, "archive", address, "--path", archive, "--once",
        "--checkpoint", str(tmp_path / "checkpoint"),
    )  # fmt: skip
    with Streams(broker) as streams:
        streams.trim(address)
    command(
        server, broker, "replay", address, "--to", again, "--archive", archive,
        "--checkpoint", str(tmp_path / "replayed"),
    )  # fmt: skip
    for number in (0, 1):
        found = messages_at(broker.url, f"{again}::{number}", start="first")
        assert [int(bytes(one.body)) for one in found] == list(range(number, 60, 2))


def test_triage(server: ConnectServer, broker: BrokerProcess, address: str) -> None:
    with Streams(broker) as streams:
        streams.ask("CREATE", "queue", address)
        streams.publish(address, [Message(b"%d" % i, subject="bad") for i in range(5)])
    text = command(
        server, broker, "triage", address, "--where", "text > '1'", "--move-to", f"{address}.back"
    )
    assert "bad" in text
    assert [bytes(one.body) for one in take_all(broker, f"{address}.back")] == [b"2", b"3", b"4"]
    assert [bytes(one.body) for one in take_all(broker, address)] == [b"0", b"1"]


def test_a_wrong_address_of_a_server(broker: BrokerProcess) -> None:
    done = subprocess.run(
        [*COMMAND, "metrics", "a", "--once", "--url", broker.url, "--master", "sc://a/b"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "no session at sc://a/b: " in done.stderr
    assert "Traceback" not in done.stderr
