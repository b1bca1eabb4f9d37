"""Chunks of a stream that is stored: of what left memory, of what is damaged, after a restart."""

from __future__ import annotations

import pytest

from ferrymq_broker.store.tables import RECORD
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import ULong
from ferrymq_types.messaging import Data
from tests.broker.harness import encode
from tests.broker.streams.chunk_kit import chunks, covered, read_chunks, records
from tests.broker.streams.disk import (
    crash,
    declare_stored,
    held,
    log_of,
    squeeze,
    stored_network,
)
from tests.broker.streams.kit import numbered

POLICY = StreamPolicy()


def test_records_come_when_they_are_on_disk() -> None:
    net, disk = stored_network()
    declare_stored(net)
    disk.write_all()
    client = net.connect()
    waiting = read_chunks(client)
    link = net.connect().sender("s").link
    for body in (b"0", b"1"):
        link.send(encode(Data(value=body)), settled=True)
    net.run()
    assert waiting.deliveries == []
    disk.write_all()
    assert records(waiting) == [(0, b"0"), (1, b"1")]
    assert chunks(waiting)[-1].end == 2


@pytest.mark.parametrize("most", [1, 7, 100, 1000])
def test_what_left_memory_is_the_same(most: int) -> None:
    net, disk = stored_network()
    declare_stored(net)
    sender = net.connect().sender("s")
    expected = []
    for number in range(300):
        body = b"%d" % number * (1 + number % 50)
        expected.append((number, body))
        sender.send(body)
        net.advance(0.5)
    disk.write_all()
    disk.apply()
    before = chunks(read_chunks(net.connect()))
    net, disk, stream = crash(disk, POLICY)
    squeeze(stream, 2000)
    assert log_of(stream).memory == 0
    after = read_chunks(net.connect(), records=most, until=250)
    assert records(after) == expected[:250]
    times = [chunk.time(i) for chunk in before for i in range(chunk.count)]
    assert [c.time(i) for c in chunks(after) for i in range(c.count)] == times[:250]
    assert covered(after)[-1][1] == 250


def test_reading_leaves_nothing_behind_in_memory() -> None:
    net, disk = stored_network()
    declare_stored(net)
    sender = net.connect().sender("s")
    for number in range(0, 4000, 500):
        sender.send(*[b"%d" % i * 200 for i in range(number, number + 500)])
        disk.write_all()
    disk.apply()
    net, disk, stream = crash(disk, POLICY)
    assert held(stream) == 0
    client = net.connect()
    receiver = read_chunks(client, bytes=100_000)
    assert [offset for offset, _ in records(receiver)] == list(range(4000))
    # Pages that others may want, and no more.
    assert net.broker.agenda.held == held(stream) <= 1024 * 1024
    client.lose()
    net.space.remove(stream)
    assert net.broker.agenda.held == net.broker.agenda.pinned == 0


@pytest.mark.parametrize("forgiving", [False, True])
@pytest.mark.parametrize("how", ["damaged", "missing", "short"])
def test_what_is_readable_comes_before_the_damage_is_told(how: str, forgiving: bool) -> None:
    net, disk = stored_network()
    stream = declare_stored(net)
    net.connect().sender("s").send(*numbered(20))
    disk.write_all()
    disk.apply()
    key = (RECORD, stream.partitions[0].store_id, 7)
    if how == "damaged":
        disk.damaged = {key}
    elif how == "missing":
        del disk.records[key]
    net, disk, stream = crash(disk, POLICY)
    if how == "short":
        disk.records[key] = b"short"
    reader = read_chunks(net.connect(), forgiving=forgiving)
    assert covered(reader) == [(0, 7)]
    error = reader.error
    assert error is not None and error.condition == "ferrymq:record-damaged"
    assert error.info == {"partition": 0, "offset": 7}
    # Before it, and behind it, everything can be had.
    assert covered(read_chunks(net.connect(), until=7)) == [(0, 7)]
    assert covered(read_chunks(net.connect(), start=ULong(8))) == [(8, 20)]


def test_what_goes_while_it_is_read_is_a_gap() -> None:
    net, disk = stored_network()
    stream = declare_stored(net, max_records=8)
    net.connect().sender("s").send(*numbered(10))
    disk.write_all()
    disk.apply()
    first = stream.range(0)[0]
    strict = read_chunks(net.connect(), records=3, credit=1)
    lenient = read_chunks(net.connect(), records=3, credit=1, forgiving=True)
    net.connect().sender("s").send(*numbered(30, 10))
    disk.write_all()
    disk.apply()
    strict.credit(100)
    lenient.credit(100)
    begin = stream.range(0)[0]
    assert covered(strict) == [(first, first + 3)]
    assert strict.error is not None and strict.error.condition == "ferrymq:stream-trimmed"
    assert covered(lenient)[:2] == [(first, first + 3), (begin, begin + 3)]
    assert covered(lenient)[-1][1] == 40
