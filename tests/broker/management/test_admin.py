"""`ferrymq admin` as processes against a real broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Digest, Fence, blocking
from ferrymq_broker.cli.admin.session import values_of
from ferrymq_broker.cli.admin.tables import text_of
from ferrymq_broker.config import Config, Listener, Store
from ferrymq_broker.server import BrokerServer
from tests.broker.test_process import port_in, run, serve

# The command line is not compiled.
pytestmark = pytest.mark.once

LOCAL = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        yield f"amqp://127.0.0.1:{port_in(lines[0])}"


@pytest.fixture
def name() -> str:
    return f"q-{uuid.uuid4()}"


def admin(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("admin", arguments[0], "--url", url, *arguments[1:])


def done(url: str, *arguments: str) -> str:
    result = admin(url, *arguments)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


def failed(url: str, *arguments: str) -> str:
    result = admin(url, *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("ferrymq: ")
    return result.stderr


def as_json(url: str, *arguments: str) -> Any:
    return json.loads(done(url, *arguments, "--json"))


def test_a_queue_from_its_making_to_its_end(url: str, name: str) -> None:
    made = done(url, "create", "queue", name, "max-length=5", "message-ttl=30s", "durable=false")
    assert made == f"queue {name} exists\n"
    shown = as_json(url, "show", "queue", name)
    assert (shown["max-length"], shown["message-ttl"], shown["durable"]) == (5, 30_000, False)
    changed = as_json(url, "update", "queue", name, "max-length=7")
    assert changed["max-length"] == 7
    lines = done(url, "show", "queue", name).splitlines()
    assert any(line.split() == ["max-length", "7"] for line in lines)
    assert done(url, "delete", "queue", name, "--yes") == f"queue {name} is deleted\n"
    assert failed(url, "show", "queue", name) == f"ferrymq: there is no queue '{name}'\n"


def test_a_change_of_what_is_declared_tells_of_the_next_start(tmp_path: Path) -> None:
    """On standard error, so that programs can read the entity."""
    file = tmp_path / "broker.toml"
    file.write_text("""
        [[listener]]
        url = "amqp://127.0.0.1:0"
        [[queue]]
        name = "orders"
        [[alias]]
        name = "other"
        to = "orders"
    """)
    with serve("--config", str(file)) as (_, lines):
        url = f"amqp://127.0.0.1:{port_in(lines[0])}"
        changed = admin(url, "update", "queue", "orders", "max-length=7", "--json")
        assert (changed.returncode, json.loads(changed.stdout)["max-length"]) == (0, 7)
        assert changed.stderr == (
            "ferrymq: but the configuration declares it, so the declared settings count again"
            " after the next start\n"
        )
        led = admin(url, "update", "alias", "other", "address=elsewhere")
        assert "declares it with 'orders', which counts again after the next start" in led.stderr
        gone = admin(url, "delete", "alias", "other", "--yes")
        assert (gone.returncode, gone.stdout) == (0, "alias other is deleted\n")
        assert "so the next start makes it again" in gone.stderr


def test_lists_for_people_and_for_programs(url: str, name: str) -> None:
    done(url, "create", "queue", name)
    run("send", "--url", url, name, "one", "two")
    rows = as_json(url, "list", "queues")
    (row,) = [row for row in rows if row["name"] == name]
    assert (row["available"], row["type"]) == (2, "org.ferrymq.queue")
    head, _, *lines = [line.split() for line in done(url, "list", "queues").split("\n") if line]
    assert head[:3] == ["name", "available", "acquired"]
    assert [name, "2", "0"] in [line[:3] for line in lines]
    short = done(url, "list", "queue", "--columns", "name,bytes")
    assert next(line.split() for line in short.split("\n") if line) == ["name", "bytes"]
    (connection,) = as_json(url, "list", "connections")
    assert connection["container-id"].startswith("ferrymq-")
    assert "no-such-kind" in failed(url, "list", "no-such-kind")


def test_fences_are_listed_and_forgotten_by_their_group(url: str, name: str) -> None:
    digest = Digest()
    digest.add([b"a", b"b"])
    with blocking.connect(url) as connection:
        for member in ("0", "*"):
            fence = Fence(name, member, 7, target="out")
            connection.transaction(fence=fence).commit(digest=digest)
    head, _, *lines = [line.split() for line in done(url, "list", "fences").split("\n") if line]
    assert head == ["group", "member", "target", "sequence", "rows", "repeated", "digest"]
    assert [name, "0", "out", "7", "2", "0", digest.value.hex()] in lines
    shown = as_json(url, "show", "fence", f"{name}\n*\nout")
    assert (shown["sequence"], shown["rows"], shown["target"]) == (7, 2, "out")
    assert done(url, "delete", "fence", name, "--yes") == f"fence {name} is deleted\n"
    assert [row for row in as_json(url, "list", "fences") if row["group"] == name] == []
    assert "there is no fence" in failed(url, "delete", "fence", name, "--yes")


def test_messages_are_looked_at_moved_and_dropped(url: str, name: str) -> None:
    other = f"{name}-other"
    for queue in (name, other):
        done(url, "create", "queue", queue)
    run("send", "--url", url, name, "a", "b", "c", "--subject", "s")
    assert done(url, "peek", name, "--count", "2") == "1\ta\n2\tb\n"
    assert done(url, "peek", name, "--from", "3") == "3\tc\n"
    first = json.loads(done(url, "peek", name, "--count", "1", "--json"))
    assert (first["state"], first["message"]["subject"]) == ("available", "s")
    assert first["message"]["body"] == "a"
    assert done(url, "move", name, other, "-n", "1") == f"1 message moved from {name} to {other}\n"
    assert as_json(url, "move", name, other)["count"] == 2
    assert done(url, "peek", other) == "1\ta\n2\tb\n3\tc\n"
    assert as_json(url, "purge", other, "--yes") == {"address": other, "count": 3}
    assert "no node 'nowhere'" in failed(url, "move", name, "nowhere")
    assert failed(url, "peek", "nowhere").endswith("stream 'nowhere'\n")


def test_bindings_topics_and_streams(url: str, name: str) -> None:
    done(url, "create", "queue", name)
    done(url, "create", "exchange", f"{name}-x", "routing=topic")
    done(url, "bind", f"{name}-x", name, "--key", "a.#")
    (binding,) = [b for b in as_json(url, "list", "bindings") if b["destination"] == name]
    assert (binding["exchange"], binding["key"]) == (f"{name}-x", "a.#")
    done(url, "unbind", f"{name}-x", name, "--key", "a.#")
    assert "no binding" in failed(url, "unbind", f"{name}-x", name, "--key", "a.#")
    done(url, "create", "topic", f"{name}-t", "subscription.max-length=3")
    made = as_json(url, "create", "subscription", f"{name}-t::s")
    assert made["settings"]["max-length"] == 3
    done(url, "create", "stream", f"{name}-s", "partitions=2")
    run("send", "--url", url, f"{name}-s::1", "x", "y")
    peeked = done(url, "peek", f"{name}-s", "--partition", "1", "--from", "1")
    assert peeked == "1\ty\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "queue", "q", "max-lenght=5"), "did you mean 'max-length'"),
        (("create", "queue", "$q"), "reserved"),
        (("create", "connection", "5"), "no operation 'CREATE'"),
        (("delete", "queue", "q"), "--yes"),
        (("purge", "q"), "--yes"),
        (("delete", "connection", "999", "--yes"), "no connection '999'"),
    ],
)
def test_mistakes_are_told_in_a_line(url: str, arguments: tuple[str, ...], words: str) -> None:
    message = failed(url, *arguments)
    assert words in message
    assert message.count("\n") == 1


def test_a_broker_that_is_not_there() -> None:
    assert "ferrymq: " in failed("amqp://127.0.0.1:1", "list", "queues")


def test_values_of_the_command_line() -> None:
    assert values_of(["a=1", "b=true", "c=x", 'd="5"', "e=", "f=10MiB", "g=-1"]) == {
        "a": 1,
        "b": True,
        "c": "x",
        "d": "5",
        "e": "",
        "f": "10MiB",
        "g": -1,
    }
    assert values_of(["s.a=1", "s.b.c=x"]) == {"s": {"a": 1, "b": {"c": "x"}}}


def test_a_name_does_not_move_the_cursor() -> None:
    assert text_of("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert text_of({"a": None, "b": [1, True]}) == "a=-, b=1, yes"


# -- messages that are on disk --------------------------------------------------------------


async def test_messages_that_are_out_of_memory_are_shown_whole(tmp_path: Path) -> None:
    config = Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        store=Store(path=tmp_path / "store", page_out=1000),
    )
    bodies = [f"{number:03d}" + "x" * 500 for number in range(50)]
    for start in range(2):
        async with (
            BrokerServer(config) as server,
            ferrymq.connect(server.url) as connection,
            connection.management() as management,
        ):
            if start == 0:
                sender = await connection.sender("orders")
                for body in bodies:
                    await sender.send(ferrymq.Message(body=body, durable=True))
            async with asyncio.timeout(20):
                while not (await management.read("queue", "orders"))["paged-out"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            peeked = await management.peek("queue", "orders", {"count": 50})
            assert [one.message.body for one in peeked] == bodies


def test_who_holds_messages_of_a_queue_and_the_end_of_his_link(url: str, name: str) -> None:
    done(url, "create", "queue", name)
    with blocking.connect(url, container_id="slow-worker") as connection:
        with connection.sender(name) as sender:
            sender.send("a")
            sender.send("b")
        receiver = connection.receiver(name, credit=5)
        receiver.receive(timeout=5)
        (link,) = as_json(url, "list", "links", "--of", name)
        assert (link["unsettled"], link["address"]) == (2, name)
        lines = done(url, "show", "queue", name).splitlines()
        assert any(line.split()[0] == link["identity"] for line in lines if line)
        rows = as_json(url, "list", "connections")
        row = next(each for each in rows if each["container-id"] == "slow-worker")
        assert row["unsettled"] == 2 and row["since"].endswith("+00:00")
        assert "no node 'none'" in failed(url, "list", "links", "--of", "none")
        done(url, "delete", "link", link["identity"], "--yes", "--reason", "stuck")
        with pytest.raises(ferrymq.LinkDetached, match=r"detach-forced.*stuck"):
            receiver.receive(timeout=5)
            receiver.receive(timeout=5)
        assert as_json(url, "show", "queue", name)["available"] == 2


def test_selected_dead_letters_go_back_or_are_dropped(url: str, name: str) -> None:
    done(url, "create", "queue", f"{name}.dead")
    done(url, "create", "queue", name, f"dead-letter={name}.dead")
    with blocking.connect(url) as connection:
        with connection.sender(name) as sender:
            for body in "abc":
                sender.send(body)
        with connection.receiver(name, credit=3) as receiver:
            for _ in range(3):
                receiver.receive(timeout=5).reject("shop:broken", "no\tprice")
    dead = f"{name}.dead"
    line, *_ = done(url, "peek", dead).splitlines()
    place, body, why = line.split("\t")
    assert (place, body) == ("1", "a")
    assert why.startswith(f"rejected in {name} at 20") and why.endswith(": no\\tprice")
    chosen = ["--reason", "rejected", "--id", "1", "--id", "3"]
    assert done(url, "requeue", dead, *chosen, "--dry-run") == (
        f"2 messages would be requeued from {dead}\n"
    )
    assert as_json(url, "requeue", dead, *chosen, "--dry-run") == {
        "source": dead,
        "dry-run": True,
        "count": 2,
        "sequences": [1, 3],
    }
    assert done(url, "requeue", dead, *chosen) == f"2 messages requeued from {dead}\n"
    assert as_json(url, "show", "queue", name)["available"] == 2
    assert "PURGE drops all" in failed(url, "remove", dead, "--yes")
    select = ["--selector", "m.x-opt-deadletter-count = 1"]
    assert done(url, "remove", dead, *select, "--yes") == f"1 message removed from {dead}\n"
    assert as_json(url, "show", "queue", dead)["messages"] == 0
