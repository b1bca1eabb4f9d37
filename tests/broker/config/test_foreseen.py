"""Stores that a configuration does not go with: `check-config --data` says what a start would."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection

from tests.broker.test_process import port_in, run, serve

ANYWHERE = ["--listen", "amqp://127.0.0.1:0"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store with a queue `prices` that has a message, and more."""
    path = tmp_path / "data"
    config = written(
        tmp_path,
        """
        [[queue]]
        name = "lasting"
        [[stream]]
        name = "clicks"
        partitions = 3
        [[virtual-host]]
        name = "tenant"
        [[virtual-host.exchange]]
        name = "router"
        routing = "topic"
        """,
    )
    with serve("--config", str(config), "--data", str(path), *ANYWHERE) as (process, lines):
        connection = BlockingConnection(f"127.0.0.1:{port_in(lines[0])}", timeout=10)
        connection.create_sender("prices").send(Message(body="1", durable=True))
        connection.close()
        process.terminate()
        process.wait(10)
    return path


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text(text, "utf-8")
    return path


def foreseen(config: Path, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("check-config", str(config), "--data", str(data), *arguments)


CONTRARY = """
[[topic]]
name = "prices"
[[stream]]
name = "clicks"
partitions = 2
[[alias]]
name = "lasting"
to = "prices"
[[virtual-host]]
name = "tenant"
[[virtual-host.exchange]]
name = "router"
routing = "fanout"
"""


def test_everything_that_cannot_be_is_said_at_once_and_before(tmp_path: Path, data: Path) -> None:
    config = written(tmp_path, CONTRARY)
    assert run("check-config", str(config)).returncode == 0
    ended = run("serve", "--config", str(config), "--data", str(data), *ANYWHERE)
    assert ended.returncode == 1 and ended.stdout == ""
    said = ended.stderr.splitlines()[1:]
    assert "recovered" in ended.stderr.splitlines()[0]
    checked = foreseen(config, data)
    assert checked.returncode == 1 and checked.stdout == ""
    foretold = checked.stderr.splitlines()
    assert len(said) == len(foretold) == 3
    for line, words in (
        (3, "'prices' is declared a topic, but stored a queue: "),
        (8, "'lasting' is declared as alias, but stored as a queue: "),
        (13, "'router' in the virtual host 'tenant' is declared with routing = \"fanout\","),
    ):
        assert any(words in each for each in said), said
        assert any(f"{config}:{line}: " in one and words in one for one in foretold), foretold
    told = json.loads(foreseen(config, data, "--json").stdout)
    assert told["valid"] is False and len(told["problems"]) == 3


def test_the_way_out_that_is_told(tmp_path: Path, data: Path) -> None:
    without = written(tmp_path, '[[queue]]\nname = "lasting"\n')
    listen = ["--listen", "amqp://127.0.0.1:0"]
    with serve("--config", str(without), "--data", str(data), *listen) as (process, lines):
        url = f"amqp://127.0.0.1:{port_in(lines[0])}"
        ended = run("admin", "delete", "queue", "prices", "--url", url, "--yes")
        assert ended.returncode == 0, ended.stderr
        process.terminate()
        process.wait(10)
    config = written(tmp_path, '[[topic]]\nname = "prices"\n')
    assert foreseen(config, data).returncode == 0
    with serve("--config", str(config), "--data", str(data), *listen) as (_, lines):
        assert lines[-1] == "ready"


def test_a_configuration_that_goes_with_the_store(tmp_path: Path, data: Path) -> None:
    config = written(tmp_path, '[[queue]]\nname = "prices"\nmax-length = 5\n')
    checked = foreseen(config, data)
    assert checked.returncode == 0
    assert "broker.toml: good" in checked.stdout
    # What becomes of what is stored.
    assert "a stored node follows the configuration" in checked.stderr
    assert "it stays" in checked.stderr and "lasting" in checked.stderr
    assert "kept aside" in checked.stderr and "router" in checked.stderr
    # Nothing was changed: the message is there, and the store can be used.
    with serve("--config", str(config), "--data", str(data), *ANYWHERE) as (_, lines):
        connection = BlockingConnection(f"127.0.0.1:{port_in(lines[0])}", timeout=10)
        receiver = connection.create_receiver("prices", credit=1)
        assert receiver.receive(timeout=10).body == "1"
        connection.close()
        # The store is the broker's now.
        busy = foreseen(config, data)
        assert busy.returncode == 1 and "store backup" in busy.stderr


def test_more_nodes_than_there_may_be(tmp_path: Path, data: Path) -> None:
    text = '[nodes]\nlimit = 2\n[[queue]]\nname = "new"\n'
    config = written(tmp_path, text)
    ended = run("serve", "--config", str(config), "--data", str(data), *ANYWHERE)
    checked = foreseen(config, data)
    for said in (ended.stderr, checked.stderr):
        assert "3 nodes are stored and 1 more are declared, but [nodes] limit is 2" in said
    # Those that are stored may be more: there are just no new ones.
    config = written(tmp_path, "[nodes]\nlimit = 2\n")
    assert foreseen(config, data).returncode == 0
    with serve("--config", str(config), "--data", str(data), *ANYWHERE) as (_, lines):
        assert lines[-1] == "ready"


def test_a_directory_without_a_store(tmp_path: Path) -> None:
    checked = foreseen(written(tmp_path, ""), tmp_path)
    assert checked.returncode == 1 and "there is no store in this directory" in checked.stderr
