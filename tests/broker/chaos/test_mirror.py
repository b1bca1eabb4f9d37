"""What the mirror of a broker may differ in, and what it must not."""

from __future__ import annotations

import pytest

from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.store.errors import StoreDamaged
from ferrymq_broker.store.tables import DELIVERY, ENTRY, HELD, HOLD, PARTITION, RECORD
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy
from ferrymq_types.messaging import (
    ApplicationProperties,
    Data,
    Header,
)
from tests.broker.chaos.mirror import compare
from tests.broker.harness import Network
from tests.broker.lasting import lasting_source
from tests.broker.management.asker import Asker
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import numbered


def start() -> tuple[Network, ManualStore]:
    store = ManualStore()
    return Network(store=store), store


def test_what_was_replaced_while_it_was_held_does_not_come_back_nor_its_delivery() -> None:
    net, store = start()
    net.space.create("q", QueuePolicy(last_value_key="key", durable=True))
    net.finish()
    source = lasting_source("q")
    receiver = net.connect(container_id="c").receiver(None, source=source, name="link", credit=1)
    sender = net.connect().sender("q")
    for body in (b"old", b"new"):
        sender.send_sections(
            Header(durable=True), ApplicationProperties(value={"key": 1}), Data(value=body)
        )
    assert receiver.bodies() == [b"old"]
    assert (store.count(ENTRY), store.count(DELIVERY)) == (2, 1)
    compare(net)
    net.restart()
    assert (store.count(ENTRY), store.count(DELIVERY)) == (1, 0)
    assert net.connect().receiver("q", credit=9).bodies() == [b"new"]
    compare(net)


def test_a_stream_that_is_divided_anew_lets_go_what_limits_say() -> None:
    net, _ = start()
    install(net.space, net.broker)
    stream = net.space.create("s", StreamPolicy())
    assert isinstance(stream, Stream)
    net.finish()
    net.connect().sender("s").send(*numbered(6))
    stream.hold("copy", 0, 3)
    net.finish()
    assert Asker(net).ask("UPDATE", "stream", "s", {"max-records": 2}).status == 200
    # All of it is in one segment, which goes as a whole; segments are smaller now.
    assert stream.range(0) == (0, 6)
    compare(net)
    net.restart()
    again = net.space.nodes["s"]
    assert isinstance(again, Stream) and again.range(0) == (3, 6)
    compare(net)


@pytest.mark.parametrize("table", [PARTITION, RECORD, HOLD, HELD])
@pytest.mark.parametrize("there", [True, False])
def test_records_of_nobody_are_found_and_those_that_are_missing(table: int, there: bool) -> None:
    net, store = start()
    stream = net.space.create("s", StreamPolicy())
    assert isinstance(stream, Stream)
    stream.hold("copy", 0, 0)
    net.finish()
    net.connect().sender("s").send(*numbered(3))
    compare(net)
    key = max(key for key in store.records if key[0] == table)
    if there:
        store.records[key[0], key[1] + 100, key[2]] = store.records[key]
    else:
        del store.records[key]
    with pytest.raises((AssertionError, StoreDamaged)):
        compare(net)
