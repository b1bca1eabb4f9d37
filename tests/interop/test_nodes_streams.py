"""Proton on streams: positions, readers beside each other, annotations, partitions."""

from __future__ import annotations

import time
import zlib
from typing import Any

import pytest
from proton import Delivery, Message, Terminus, int32, symbol, timestamp, ulong
from proton.utils import BlockingConnection, LinkDetached

from tests.interop.broker_process import BrokerProcess
from tests.interop.proton_client import connect
from tests.interop.proton_nodes import POSITION, Asking, Inbox, lost_to, send, settle

pytestmark = pytest.mark.interop

CONFIG = """
[[stream]]
pattern = "test_*"

[[stream]]
pattern = "parted-*"
partitions = 4

[[stream]]
pattern = "short-*"
max-records = 4
segment-bytes = "1KiB"
"""

OFFSET = symbol("x-opt-offset")


def reader(connection: BlockingConnection, address: str, start: Any, credit: int = 0) -> Inbox:
    return Inbox(connection, address, credit=credit, options=Asking(filters={POSITION: start}))


def partition_of(key: str) -> int:
    return zlib.crc32(key.encode()) % 4


# -- positions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "bodies"),
    [
        ("first", [0, 1, 2, 3]),
        (symbol("first"), [0, 1, 2, 3]),
        ("last", [3]),
        ("next", []),
        (ulong(2), [2, 3]),
        (1, [1, 2, 3]),
        (timestamp(0), [0, 1, 2, 3]),
        (timestamp(2**42), []),
    ],
)
def test_positions(
    connection: BlockingConnection, address: str, start: object, bodies: list[int]
) -> None:
    send(connection, address, *range(4))
    inbox = reader(connection, address, start)
    first = bodies[0] if bodies else 4
    assert inbox.link.remote_properties["ferrymq:first-offsets"] == [first]
    assert inbox.rest() == bodies
    send(connection, address, "new")
    assert inbox.rest() == ["new"]


def test_a_time_between(connection: BlockingConnection, address: str) -> None:
    send(connection, address, "before")
    told = reader(connection, address, "first").link
    assert told.remote_source.distribution_mode == Terminus.DIST_MODE_COPY
    then = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < then:
        # At most a millisecond, which the broker works in.
        send(connection, f"{address}-other", "passing time")
    send(connection, address, "after")
    assert reader(connection, address, timestamp(then)).rest() == ["after"]


def test_positions_of_other_brokers(connection: BlockingConnection, address: str) -> None:
    send(connection, address, *range(4))
    rabbit = Asking(filters={"rabbitmq:stream-offset-spec": ulong(2)})
    assert Inbox(connection, address, credit=0, options=rabbit).rest() == [2, 3]
    hub = "amqp.annotation.x-opt-offset > '1'"
    azure = Asking(filters={"apache.org:selector-filter:string": hub})
    assert Inbox(connection, address, credit=0, options=azure).rest() == [2, 3]


def test_an_offset_that_is_none(connection: BlockingConnection, address: str) -> None:
    send(connection, address, 0)
    with pytest.raises(LinkDetached, match="precondition-failed") as caught:
        reader(connection, address, ulong(7))
    info = caught.value.link.remote_condition.info
    assert (info["expected"], info["first"], info["next"]) == (7, 0, 1)
    with pytest.raises(LinkDetached, match="invalid-field"):
        reader(connection, address, "middle")


def test_without_a_filter_a_reader_begins_with_what_comes(
    connection: BlockingConnection, address: str
) -> None:
    send(connection, address, "old")
    inbox = Inbox(connection, address, credit=0)
    send(connection, address, "new")
    assert inbox.rest() == ["new"]


# -- reading --------------------------------------------------------------------------------


def test_readers_do_not_disturb_each_other(
    broker: BrokerProcess, connection: BlockingConnection, address: str
) -> None:
    send(connection, address, *range(5))
    with connect(broker.url) as other:
        one = reader(connection, address, "first", credit=2)
        two = reader(other, address, "first", credit=10)
        for outcome in (Delivery.REJECTED, Delivery.RELEASED):
            settle(one.get()[1], outcome)
        assert two.bodies(5) == [0, 1, 2, 3, 4]
        # An outcome changes nothing: nothing comes again.
        assert one.rest() == [2, 3, 4]
    assert reader(connection, address, "first").rest() == [0, 1, 2, 3, 4]


def test_a_record_tells_its_place(connection: BlockingConnection, address: str) -> None:
    begun = time.time_ns() // 1_000_000
    send(connection, address, "a", Message(body="b", annotations={"x-opt-mine": 1, OFFSET: 99}))
    inbox = reader(connection, address, "first", credit=2)
    for offset in range(2):
        annotations = inbox.next().annotations
        assert annotations[OFFSET] == annotations[symbol("x-opt-sequence-number")] == offset
        assert annotations[symbol("x-opt-partition")] == 0
        assert type(annotations[symbol("x-opt-partition")]) is int32
        enqueued = annotations[symbol("x-opt-enqueued-time")]
        assert type(enqueued) is timestamp
        assert begun <= enqueued <= time.time_ns() // 1_000_000
    assert annotations[symbol("x-opt-mine")] == 1


def test_filters_leave_records_out(connection: BlockingConnection, address: str) -> None:
    messages = [Message(body=n, properties={"even": n % 2 == 0}) for n in range(6)]
    send(connection, address, *messages)
    filters = {POSITION: ulong(1), "apache.org:selector-filter:string": "even"}
    inbox = Inbox(connection, address, credit=0, options=Asking(filters=filters))
    inbox.drain()
    got = [inbox.next() for _ in range(inbox.waiting)]
    assert [(message.body, message.annotations[OFFSET]) for message in got] == [(2, 2), (4, 4)]


def test_a_stream_is_not_taken_from(connection: BlockingConnection, address: str) -> None:
    with pytest.raises(LinkDetached, match="not-implemented"):
        Inbox(connection, address, options=Asking(mode=Terminus.DIST_MODE_MOVE))
    with pytest.raises(LinkDetached, match="not-implemented"):
        Inbox(connection, address, options=Asking(properties={"exclusive": True}))


# -- partitions -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["x-opt-partition-key", "group-id"])
def test_a_key_has_its_partition(connection: BlockingConnection, address: str, way: str) -> None:
    address = f"parted-{address}"
    keys = ["alpha", "beta", "gamma", "delta", "alpha", "beta"]
    for n, key in enumerate(keys):
        if way == "group-id":
            message = Message(body=n, group_id=key)
        else:
            message = Message(body=n, annotations={symbol(way): key})
        send(connection, address, message)
    for number in range(4):
        inbox = reader(connection, f"{address}::{number}", "first")
        inbox.drain()
        got = [inbox.next() for _ in range(inbox.waiting)]
        assert [message.body for message in got] == [
            n for n, key in enumerate(keys) if partition_of(key) == number
        ]
        assert [message.annotations[OFFSET] for message in got] == list(range(len(got)))
        assert {message.annotations[symbol("x-opt-partition")] for message in got} <= {number}


def test_a_partition_by_its_number(connection: BlockingConnection, address: str) -> None:
    address = f"parted-{address}"
    send(connection, f"{address}::2", "address")
    explicit = {symbol("x-opt-partition"): 2}
    send(connection, address, Message(body="annotation", annotations=explicit))
    assert reader(connection, f"{address}::2", "first").rest() == ["address", "annotation"]
    wrong = Message(body="x", annotations={symbol("x-opt-partition"): 4})
    assert send(connection, address, wrong) == [Delivery.REJECTED]
    with pytest.raises(LinkDetached, match="not-found"):
        connection.create_sender(f"{address}::4")


def test_all_partitions_are_read_in_turn(connection: BlockingConnection, address: str) -> None:
    address = f"parted-{address}"
    send(connection, address, *range(8))
    inbox = reader(connection, address, "first")
    assert inbox.link.remote_properties["ferrymq:first-offsets"] == [0, 0, 0, 0]
    inbox.drain()
    got = [inbox.next() for _ in range(inbox.waiting)]
    assert sorted(message.body for message in got) == list(range(8))
    for number in range(4):
        offsets = [
            message.annotations[OFFSET]
            for message in got
            if message.annotations[symbol("x-opt-partition")] == number
        ]
        assert offsets == [0, 1]
    with pytest.raises(LinkDetached, match="invalid-field"):
        reader(connection, address, ulong(1))


# -- what is kept ---------------------------------------------------------------------------


def test_what_is_gone_is_told(connection: BlockingConnection, address: str) -> None:
    address = f"short-{address}"
    send(connection, address, "first")
    slow = reader(connection, address, "first", credit=1)
    assert slow.next().body == "first"
    follow = Asking(filters={POSITION: "first"}, properties={"ferrymq:on-trim": "continue"})
    patient = Inbox(connection, address, credit=1, options=follow)
    assert patient.next().body == "first"
    send(connection, address, *["x" * 400] * 20)
    patient.link.flow(1)
    message = patient.next()
    skipped = message.instructions[symbol("x-opt-skipped")]
    assert skipped == message.annotations[OFFSET] - 1 > 0
    slow.link.flow(1)
    condition, _ = lost_to(connection, slow)
    assert condition == "ferrymq:stream-trimmed"
    info = slow.link.remote_condition.info
    assert (info["partition"], info["expected"], info["next"]) == (0, 1, 21)
    first = reader(connection, f"{address}::0", "first").link
    assert first.remote_properties["ferrymq:first-offset"] == info["first"]
