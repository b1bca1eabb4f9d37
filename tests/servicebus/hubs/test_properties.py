"""Streams as clients of Event Hubs ask about them, and read them where aliases lead there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.eventhub import EventHubConsumerClient

import ferrymq
from ferrymq_broker.config import load_config
from ferrymq_broker.server import BrokerServer
from ferrymq_codec.containers import Array
from ferrymq_codec.scalars import Int, Symbol, Timestamp
from ferrymq_types.messaging import Accepted, ApplicationProperties, Data, Properties
from tests.broker.harness import Network, encode
from tests.broker.management.asker import Answer, Asker, read_answer
from tests.broker.management.rules import guard, rule, user
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import declare, numbered

HUB = "com.microsoft:eventhub"
PARTITION = "com.microsoft:partition"


def read(asker: Asker, type: str, name: str, partition: str | None = None) -> Answer:
    """As such a client asks: everything in properties, one of which we know nothing of."""
    properties: dict[str, object] = {"security_token": "SharedAccessSignature sr=x"}
    if partition is not None:
        properties["partition"] = partition
    return asker.ask("READ", type, name, properties=properties)


def status(answer: Answer) -> tuple[object, object]:
    code, text = answer.properties["status-code"], answer.properties["status-description"]
    assert (code, text) == (answer.status, answer.description) and type(code) is Int
    return code, text


def test_a_hub(net: Network, asker: Asker) -> None:
    made = net.wall
    asker.ask("CREATE", "stream", "orders", {"partitions": 3})
    net.advance(100)
    net.space.set_alias("hub", "orders")
    for name in ("orders", "hub"):
        answer = read(asker, HUB, name)
        assert status(answer) == (200, "OK")
        body = answer.map()
        ids = body.pop("partition_ids")
        assert isinstance(ids, Array)
        assert (ids.element_type, list(ids.items)) == ("string", ["0", "1", "2"])
        assert body == {"name": name, "type": HUB, "created_at": made, "partition_count": 3}
        assert type(body["created_at"]) is Timestamp and type(body["partition_count"]) is Int


def test_when_it_was_made_is_known_after_a_restart() -> None:
    net = Network(store=ManualStore())
    net.broker.begin_pass(net.now)
    stream = declare(net)
    created = stream.created
    assert created > 0
    net.finish()
    net.advance(100)
    net.restart()
    assert net.space.nodes["s"].created == created  # type: ignore[attr-defined]


def test_a_partition(net: Network, asker: Asker) -> None:
    declare(net, partitions=2, max_records=4, segment_bytes=1)
    empty = read(asker, PARTITION, "s", "1")
    assert status(empty)[0] == 200
    assert empty.map() == {
        "name": "s",
        "type": PARTITION,
        "partition": "1",
        "begin_sequence_number": 0,
        "last_enqueued_sequence_number": -1,
        "last_enqueued_offset": "-1",
        "last_enqueued_time_utc": 0,
        "is_partition_empty": True,
    }
    net.connect().sender("s::1").send(*numbered(10))
    wall = net.wall
    net.advance(5)
    full = read(asker, PARTITION, "s", "1").map()
    assert full == {
        "name": "s",
        "type": PARTITION,
        "partition": "1",
        "begin_sequence_number": 6,
        "last_enqueued_sequence_number": 9,
        "last_enqueued_offset": "9",
        "last_enqueued_time_utc": wall,
        "is_partition_empty": False,
    }
    assert type(full["last_enqueued_time_utc"]) is Timestamp
    asker.ask("PURGE", "stream", "s")
    purged = read(asker, PARTITION, "s", "1").map()
    assert (purged["begin_sequence_number"], purged["last_enqueued_offset"]) == (10, "9")
    assert purged["is_partition_empty"] is True


def test_an_empty_list_for_a_body(net: Network, asker: Asker) -> None:
    declare(net)
    asker.sender.send_encoded(
        encode(
            Properties(message_id="1", reply_to=asker.reply_to),
            ApplicationProperties({"operation": "READ", "type": HUB, "name": "s"}),
            Data(b"[]"),
        )
    )
    (delivery,) = asker.receiver.deliveries
    asker.receiver.settle(Accepted())
    assert status(read_answer(delivery.payload))[0] == 200


def test_what_is_not_there(net: Network, asker: Asker) -> None:
    declare(net)
    asker.ask("CREATE", "queue", "q")
    for name in ("nosuch", "q"):
        for type in (HUB, PARTITION):
            answer = read(asker, type, name, "0")
            assert status(answer)[0] == 404 and repr(name) in answer.description
            assert answer.properties["error-condition"] == Symbol("amqp:not-found")
    for partition in ("1", "99999999999999999999", "x", ""):
        assert status(read(asker, PARTITION, "s", partition))[0] in (400, 404)
    assert status(asker.ask("READ", HUB))[0] == 400
    assert status(asker.ask("DELETE", HUB, "s"))[0] == 501


def test_it_takes_the_right_to_read(net: Network, asker: Asker) -> None:
    declare(net, "mine")
    declare(net, "secret")
    guard(net, rule("user:eve", "receive", "mine"))
    eve = user(net, "eve")
    for type in (HUB, PARTITION):
        assert status(read(eve, type, "mine", "0"))[0] == 200
        told = {status(read(eve, type, name, "0"))[0] for name in ("secret", "nosuch")}
        assert told == {403}
        answer = read(eve, type, "secret", "0")
        assert answer.properties["error-condition"] == Symbol("amqp:unauthorized-access")


def test_streams_are_not_listed_twice(net: Network, asker: Asker) -> None:
    declare(net)
    assert [row["type"] for row in asker.query() if row["name"] == "s"] == ["org.ferrymq.stream"]
    for operation in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS"):
        assert HUB not in asker.ask(operation, "org.amqp.management", "self").map()
    assert "com.microsoft" not in asker.ask("READ", "nonsense", "s").description


def test_others_are_answered_as_before(net: Network, asker: Asker) -> None:
    declare(net)
    assert "status-code" not in asker.ask("READ", "stream", "s").properties


CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[personality]
name = "azure"

[[security.shared-access-key]]
name = "root"
primary = "c2VjcmV0"
may = ["*"]
where = "*"

[[rule]]
who = ["*"]
may = ["*"]
where = ["*"]

[[stream]]
name = "orders"
partitions = 2
durable = false
"""


@pytest.mark.parametrize(
    ("selector", "first"),
    [
        ("amqp.annotation.x-opt-offset > '5'", 6),
        ("amqp.annotation.x-opt-sequence-number >= '5'", 5),
        ("amqp.annotation.x-opt-offset > '-1'", 0),
        ("amqp.annotation.x-opt-offset > '@latest'", 10),
    ],
)
async def test_positions_in_a_consumer_group(tmp_path: Path, selector: str, first: int) -> None:
    path = tmp_path / "ferrymq.toml"
    path.write_text(CONFIG, "utf-8")
    async with (
        BrokerServer(load_config(path)) as server,
        ferrymq.connect(server.url) as connection,
        connection.sender("orders/Partitions/1") as sender,
    ):
        for number in range(10):
            await sender.send(ferrymq.Message(body=number))
        address = "orders/ConsumerGroups/$default/Partitions/1"
        async with connection.receiver(address, selector=selector) as receiver:
            for number in range(10, 13):
                await sender.send(ferrymq.Message(body=number))
            for number in range(first, 13):
                async with asyncio.timeout(10):
                    delivery = await receiver.receive()
                annotations = delivery.message.message_annotations
                assert annotations["x-opt-offset"] == str(number)
                assert annotations["x-opt-partition"] == 1
                assert delivery.message.body == number
                await delivery.accept()


async def test_a_client_of_event_hubs_asks(tmp_path: Path) -> None:
    path = tmp_path / "ferrymq.toml"
    path.write_text(CONFIG, "utf-8")
    async with (
        BrokerServer(load_config(path)) as server,
        ferrymq.connect(server.url) as connection,
        connection.sender("orders::1") as sender,
    ):
        for number in range(10):
            await sender.send(ferrymq.Message(body=number))
        hub, partition = await asyncio.to_thread(_ask_as_they_do, server.url)
    assert (hub["eventhub_name"], hub["partition_ids"]) == ("orders", ["0", "1"])
    assert abs(datetime.now(UTC) - hub["created_at"]) < timedelta(minutes=1)
    assert (partition["id"], partition["is_empty"]) == ("1", False)
    assert partition["beginning_sequence_number"] == 0
    assert partition["last_enqueued_sequence_number"] == 9
    assert partition["last_enqueued_offset"] == "9"
    assert abs(datetime.now(UTC) - partition["last_enqueued_time_utc"]) < timedelta(minutes=1)


def _ask_as_they_do(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    port = urlsplit(url).port
    client = EventHubConsumerClient.from_connection_string(
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0;"
        "UseDevelopmentEmulator=true;EntityPath=orders",
        consumer_group="$Default",
        retry_total=0,
    )
    with client:
        return client.get_eventhub_properties(), client.get_partition_properties("1")
