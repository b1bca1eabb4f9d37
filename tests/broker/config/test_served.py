"""`ferrymq serve --config`: what a file declares, as Proton finds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from tests.broker.test_process import port_in, run, serve

FILE = """
[[listener]]
url = "amqp://127.0.0.1:0"

[nodes]
auto-create = false

[[queue]]
name = "orders"

[[queue]]
pattern = "jobs.*"
message-ttl = "1h"

[[topic]]
name = "prices"

[[alias]]
name = "bestellungen"
to = "orders"

[[virtual-host]]
name = "tenant"

[[virtual-host.queue]]
name = "orders"
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("served") / "broker.toml"
    path.write_text(FILE, "utf-8")
    with serve("--config", str(path)) as (_, lines):
        yield f"127.0.0.1:{port_in(lines[0])}"


def test_an_alias_and_a_pattern(url: str) -> None:
    connection = BlockingConnection(url, timeout=10)
    for written, read in (("bestellungen", "orders"), ("jobs.1", "jobs.1")):
        receiver = connection.create_receiver(read, credit=1)
        connection.create_sender(written).send(Message(body=written))
        assert receiver.receive(timeout=10).body == written
        receiver.accept()
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender("nobody")
    connection.close()


def test_a_topic_has_a_copy_for_everybody(url: str) -> None:
    connection = BlockingConnection(url, timeout=10)
    receivers = [connection.create_receiver("prices", credit=1, name=name) for name in "ab"]
    connection.create_sender("prices").send(Message(body="up"))
    assert [receiver.receive(timeout=10).body for receiver in receivers] == ["up", "up"]
    connection.close()


def test_virtual_hosts_are_apart(url: str) -> None:
    here = BlockingConnection(url, timeout=10)
    there = BlockingConnection(url, timeout=10, virtual_host="tenant")
    here.create_sender("orders").send(Message(body="here"))
    there.create_sender("orders").send(Message(body="there"))
    for connection, body in ((there, "there"), (here, "here")):
        receiver = connection.create_receiver("orders", credit=1)
        assert receiver.receive(timeout=10).body == body
        receiver.accept()
        connection.close()


def test_a_broker_with_mistakes_does_not_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[[queue]]\nname = 'a'\ndead-letter = '$x'\n")
    ended = run("serve", "--config", str(path))
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr == f"ferrymq: {path}:3: queue.dead-letter: '$x' names nothing\n"


def test_listeners_of_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[[listener]]\nurl = 'amqp://127.0.0.1:1'\n[[queue]]\npattern = 'a*'\n")
    with serve("--config", str(path), "--listen", "amqp://127.0.0.1:0") as (_, lines):
        assert port_in(lines[0]) > 1
