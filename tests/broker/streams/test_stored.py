"""Streams that are stored: seen when they are on disk, there again when the broker is."""

from __future__ import annotations

import logging

import pytest

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.store.tables import PARTITION, RECORD
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import Timestamp, ULong
from ferrymq_types.messaging import Data
from tests.broker.harness import Network, encode, message_annotations, text
from tests.broker.streams.disk import (
    crash,
    declare_stored,
    held,
    log_of,
    squeeze,
    stored_network,
)
from tests.broker.streams.kit import granted, numbered, offsets, read

POLICY = StreamPolicy()


def test_a_record_is_there_when_it_is_on_disk() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    disk.write_all()
    client = net.connect()
    waiting = read(client, "s")
    net.connect().sender("s").link.send(encode(Data(value=b"one")), settled=True)
    net.run()
    assert waiting.bodies() == []
    assert stream.range(0) == (0, 0) and stream.message_count() == 0
    assert stream.offset_at(0, 0) == 0
    figures = stream.partitions[0].describe()
    assert (figures["next-offset"], figures["bytes"], figures["last-time"]) == (0, 0, None)
    disk.write_all()
    assert waiting.bodies() == [b"one"]
    assert stream.range(0) == (0, 1)
    assert stream.partitions[0].describe()["last-time"] == net.wall


def test_what_comes_while_a_batch_is_written_waits_for_the_next() -> None:
    net, disk = stored_network()
    declare_stored(net)
    disk.write_all()
    waiting = read(net.connect(), "s")
    link = net.connect().sender("s").link
    for body in (b"1", b"2", b"3"):
        link.send(encode(Data(value=body)), settled=True)
        net.run()
    disk.write()
    assert waiting.bodies() == [b"1"]
    late = read(net.connect(), "s", "next", credit=0)
    # The answer to the attach tells nothing that is not on disk.
    assert granted(late)["ferrymq:first-offsets"] == [1]
    disk.write()
    assert waiting.bodies() == [b"1", b"2", b"3"]
    late.credit(10)
    assert late.bodies() == [b"2", b"3"]


def test_a_stream_comes_back_with_everything_that_was_on_disk() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, partitions=2)
    disk.write_all()
    link = net.connect().sender("s").link
    for body in numbered(10):
        link.send(encode(Data(value=body)), settled=True)
        net.run()
        net.advance(1)
    disk.write_all()
    before = [(text(d.payload), message_annotations(d.payload)) for d in _all(net)]
    figures = stream.describe()
    link.send(encode(Data(value=b"lost")), settled=True)
    net.run()
    net, disk, again = crash(disk, StreamPolicy(partitions=2))
    # Counters begin anew, and there are no readers.
    anew = {"published": 0, "delivered": 0, "producers": 0, "consumers": 0, "groups": []}
    assert again is not stream and again.describe() == figures | anew
    assert [(text(d.payload), message_annotations(d.payload)) for d in _all(net)] == before
    assert len(before) == 10
    sender = net.connect().sender("s")
    sender.link.send(encode(Data(value=b"11th")), settled=True)
    sender.link.send(encode(Data(value=b"12th")), settled=True)
    net.run()
    disk.write_all()
    assert again.range(0) == again.range(1) == (0, 6)


def _all(net: Network) -> list[IncomingDelivery]:
    reader = read(net.connect(), "s")
    return list(reader.deliveries)


def test_offsets_go_on_when_no_record_is_left() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    net.connect().sender("s").send(*numbered(5))
    disk.write_all()
    assert stream.clear() == 5
    net.broker.finish_pass()
    disk.write_all()
    disk.apply()
    assert disk.count(RECORD) == 0
    wall = net.wall
    net, disk, stream = crash(disk, POLICY)
    assert stream.range(0) == (5, 5)
    # Nor does time go back, whatever the clock says now.
    net.set_clock(-3600)
    net.connect().sender("s").send(b"next")
    disk.write_all()
    assert stream.range(0) == (5, 6)
    assert stream.partitions[0].describe()["last-time"] == wall


def test_emptying_takes_what_is_not_on_disk_yet_too() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    disk.write_all()
    link = net.connect().sender("s").link
    for body in numbered(3):
        link.send(encode(Data(value=body)), settled=True)
        net.run()
    disk.write()
    assert stream.range(0) == (0, 1)
    assert stream.clear() == 3
    link.send(encode(Data(value=b"after")), settled=True)
    net.run()
    # What is not on disk has not been here, and has not gone.
    assert stream.range(0)[1] == 1
    disk.write_all()
    assert stream.range(0) == (3, 4)
    assert read(net.connect(), "s").bodies() == [b"after"]
    disk.apply()
    assert disk.count(RECORD) == 1
    assert net.broker.agenda.held == held(stream) == len(encode(Data(value=b"after")))
    assert crash(disk, POLICY)[2].range(0) == (3, 4)


def test_retention_holds_on_disk_and_after_it() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, max_records=8, max_age=60_000)
    disk.write_all()
    sender = net.connect().sender("s")
    sender.send(*numbered(100))
    disk.write_all()
    first, after = stream.range(0)
    assert after == 100 and 8 <= after - first <= 9
    disk.write_all()
    disk.apply()
    assert disk.count(RECORD) == after - first
    net.advance(30)
    policy = StreamPolicy(max_records=8, max_age=60_000)
    net, disk, stream = crash(disk, policy)
    assert stream.range(0) == (first, after)
    net.advance(29)
    assert stream.range(0) == (first, after)
    net.advance(2)
    assert stream.range(0) == (after, after)
    disk.write_all()
    # Time has gone by while there was no broker.
    net.connect().sender("s").send(b"x")
    disk.write_all()
    disk.net.now += 100
    net, disk, stream = crash(disk, policy)
    assert stream.range(0) == (101, 101)
    disk.write_all()
    disk.apply()
    assert disk.count(RECORD) == 0


def test_times_are_those_of_the_records_whenever_others_were_dropped() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, max_records=4)
    link = net.connect().sender("s").link
    times = []
    for body in numbered(6):
        times.append(net.wall)
        link.send(encode(Data(value=body)), settled=True)
        net.run()
        disk.write_all()
        net.advance(1)
    assert stream.range(0) == (2, 6)
    net, disk, stream = crash(disk, StreamPolicy(max_records=4))
    figures = stream.partitions[0].describe()
    assert (figures["first-time"], figures["last-time"]) == (times[2], times[5])
    assert [stream.offset_at(0, time) for time in times] == [2, 2, 2, 3, 4, 5]


def test_a_partition_that_comes_later_is_stored_too() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    stream.grow(3)
    net.broker.finish_pass()
    disk.write_all()
    net.connect().sender("s::2").send(b"a", b"b")
    disk.write_all()
    net, disk, stream = crash(disk, POLICY)
    assert len(stream.partitions) == 3
    assert stream.range(2) == (0, 2)


def test_a_deleted_stream_leaves_nothing() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, partitions=2)
    net.connect().sender("s").send(*numbered(10))
    disk.write_all()
    net.connect().sender("s").link.send(encode(Data(value=b"late")), settled=True)
    net.run()
    net.space.remove(stream)
    net.broker.finish_pass()
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0
    disk.write_all()
    disk.apply()
    assert disk.records == {}
    assert not net.broker.agenda.nodes


# -- memory ---------------------------------------------------------------------------------


def test_what_is_not_in_memory_is_read_from_disk() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    squeeze(stream, 1000)
    sender = net.connect().sender("s")
    for body in numbered(500):
        sender.link.send(encode(Data(value=body.zfill(20))), settled=True)
        net.run()
        if body.endswith(b"9"):
            net.advance(1)
    disk.write_all()
    # The store cannot answer for them yet.
    assert held(stream) == net.broker.agenda.held == stream.describe()["bytes"]
    disk.apply()
    net.advance(2)
    assert held(stream) == net.broker.agenda.held <= 1000
    reader = read(net.connect(), "s", credit=70)
    behind = read(net.connect(), "s::0", ULong(3))
    assert net.broker.agenda.held == held(stream) <= 1000 + 1000 + 64 * 30
    assert offsets(behind) == list(range(3, 500))
    sender.send(b"last")
    disk.write_all()
    reader.credit(1000)
    assert [body.lstrip(b"0") or b"0" for body in reader.bodies()] == [*numbered(500), b"last"]
    assert disk.reads < 4 * 500


def test_a_segment_stays_in_memory_until_all_of_it_can_be_read() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    squeeze(stream, 1000)
    disk.write_all()
    link = net.connect().sender("s").link
    # The last segment has records of two batches, of which the second cannot be read.
    for body in (b"a", b"b"):
        disk.apply()
        link.send(encode(Data(value=body)), settled=True)
        net.run()
        disk.write_all()
    for _ in range(20):
        link.send(encode(Data(value=bytes(200))), settled=True)
        net.run()
    disk.write_all()
    net.advance(5)
    reader = read(net.connect(), "s")
    assert reader.bodies() == [b"a", b"b"] + [bytes(200)] * 20
    assert disk.reads == 0


def test_readers_at_the_same_place_share_what_is_read() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    net.connect().sender("s").send(*numbered(64))
    disk.write_all()
    net, disk, stream = crash(disk, POLICY)
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0
    for _ in range(10):
        assert len(read(net.connect(), "s").deliveries) == 64
    assert disk.reads == 64
    assert net.broker.agenda.held == held(stream) > 0


def test_a_place_in_time_is_found_with_a_few_reads() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    sender = net.connect().sender("s")
    times = []
    for body in numbered(200):
        times.append(net.wall)
        sender.link.send(encode(Data(value=body)), settled=True)
        net.run()
        net.advance(1)
    disk.write_all()
    net, disk, stream = crash(disk, POLICY)
    for offset in (0, 1, 77, 199):
        assert stream.offset_at(0, times[offset]) == offset
        assert stream.offset_at(0, times[offset] + 1) == offset + 1
    assert stream.offset_at(0, 0) == 0
    assert disk.reads < 9 * 9
    reader = read(net.connect(), "s", Timestamp(times[150]))
    assert offsets(reader) == list(range(150, 200))


def test_a_limit_on_memory_is_felt_though_nothing_happens() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    squeeze(stream, 1000)
    net.connect().sender("s").send(*[body.zfill(50) for body in numbered(100)])
    disk.write_all()
    assert held(stream) > 1000
    net.advance(5)
    assert held(stream) > 1000
    disk.apply()
    net.advance(5)
    assert held(stream) <= 1000
    net.space.remove(stream)
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0


def test_a_foreign_format_comes_back_from_disk() -> None:
    net, disk = stored_network()
    declare_stored(net)
    link = net.connect().sender("s").link
    link.send(b"\x01opaque", message_format=0xFFFF_FF00, settled=True)
    link.send(encode(Data(value=b"plain")), settled=True)
    net.run()
    disk.write_all()
    net, disk, _ = crash(disk, POLICY)
    first, second = read(net.connect(), "s").deliveries
    assert (first.payload, first.message_format) == (b"\x01opaque", 0xFFFF_FF00)
    assert (text(second.payload), second.message_format) == (b"plain", 0)


# -- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("forgiving", [False, True])
def test_who_comes_to_a_damaged_record_is_told_where(
    forgiving: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net, disk = stored_network()
    stream = declare_stored(net, partitions=2)
    net.connect().sender("s::1").send(*numbered(20))
    disk.write_all()
    disk.apply()
    id = stream.partitions[1].store_id
    disk.damaged = {(RECORD, id, 7)}
    del disk.records[RECORD, id, 12]
    net, disk, stream = crash(disk, StreamPolicy(partitions=2))
    assert stream.range(1) == (0, 20)
    properties: dict[str, object] | None = {"ferrymq:on-trim": "continue"} if forgiving else None
    with caplog.at_level(logging.ERROR, "ferrymq.broker"):
        for _ in range(3):
            reader = read(net.connect(), "s", properties=properties)
            assert offsets(reader) == [0, 1, 2, 3, 4, 5, 6]
            error = reader.error
            assert error is not None and error.condition == "ferrymq:record-damaged"
            assert "'s::1'" in (error.description or "") and "7" in (error.description or "")
            assert error.info == {"partition": 1, "offset": 7}
    assert len(caplog.records) == 1
    # Everybody else has what he came for.
    behind = read(net.connect(), "s::1", ULong(8))
    assert offsets(behind) == [8, 9, 10, 11]
    assert behind.error is not None and behind.error.info == {"partition": 1, "offset": 12}
    assert offsets(read(net.connect(), "s::1", ULong(13))) == list(range(13, 20))
    at = read(net.connect(), "s::1", ULong(7))
    assert at.error is not None and at.error.info == {"partition": 1, "offset": 7}


def test_the_last_record_is_damaged_and_its_offset_is_not_used_again() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    net.connect().sender("s").send(*numbered(3))
    disk.write_all()
    disk.damaged = {(RECORD, stream.partitions[0].store_id, 2)}
    net, disk, stream = crash(disk, POLICY)
    net.connect().sender("s").send(b"new")
    disk.write_all()
    assert stream.range(0) == (0, 4)
    assert read(net.connect(), "s::0", ULong(3)).bodies() == [b"new"]
    assert stream.offset_at(0, net.wall) in (0, 3)


def test_offsets_that_were_used_are_not_used_again_though_the_records_are_missing() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, max_records=4)
    disk.write_all()
    net.connect().sender("s").send(*numbered(10))
    disk.write_all()
    disk.apply()
    for offset in (8, 9):
        del disk.records[RECORD, stream.partitions[0].store_id, offset]
    net, disk, stream = crash(disk, StreamPolicy(max_records=4))
    assert stream.range(0) == (6, 10)
    reader = read(net.connect(), "s")
    assert offsets(reader) == [6, 7]
    assert reader.error is not None and reader.error.info == {"partition": 0, "offset": 8}


def test_what_trimming_has_taken_is_not_said_to_be_damaged() -> None:
    net, disk = stored_network()
    declare_stored(net, max_records=8)
    disk.write_all()
    sender = net.connect().sender("s")
    sender.send(*numbered(10))
    disk.write_all()
    disk.apply()
    net, disk, _ = crash(disk, StreamPolicy(max_records=8))
    reader = read(net.connect(), "s", credit=1)
    net.connect().sender("s").send(*numbered(30))
    disk.write_all()
    disk.apply()
    reader.credit(10)
    assert reader.error is not None and reader.error.condition == "ferrymq:stream-trimmed"


def test_whoever_looks_up_a_record_that_cannot_be_read_is_told_which() -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    net.connect().sender("s").send(*numbered(3))
    disk.write_all()
    disk.damaged = {(RECORD, stream.partitions[0].store_id, 1)}
    net, disk, stream = crash(disk, POLICY)
    assert stream.partitions[0].find(0).count == 1
    with pytest.raises(BrokerError, match="'s::0': the record 1 cannot be read") as caught:
        stream.partitions[0].find(1)
    assert caught.value.condition == "ferrymq:record-damaged"
    assert stream.partitions[0].find(2).first == 2


# -- without a store ------------------------------------------------------------------------


def test_nothing_is_written_for_a_stream_that_is_not_stored() -> None:
    net, disk = stored_network()
    net.space.create("s", StreamPolicy(durable=False))
    net.connect().sender("s").send(*numbered(5))
    assert read(net.connect(), "s").bodies() == numbered(5)
    disk.write_all()
    disk.apply()
    assert disk.count(RECORD) == disk.count(PARTITION) == 0


def test_a_segment_is_never_larger_than_what_may_be_in_memory() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, segment_bytes=1 << 40)
    disk.write_all()
    sender = net.connect().sender("s")
    for _ in range(10):
        sender.send(bytes(1_000_000))
        disk.write_all()
        disk.apply()
    assert held(stream) <= log_of(stream).cache_bytes + 1_100_000
