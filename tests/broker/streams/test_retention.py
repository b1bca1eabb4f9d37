"""What goes, and when: by size, by number, by age; and what readers are told of it."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.node import DELETE_ON_NO_MESSAGES
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import ULong
from ferrymq_types.messaging import Data
from tests.broker.harness import Network, encode
from tests.broker.streams.kit import (
    coloured,
    declare,
    granted,
    numbered,
    offsets,
    read,
    skipped,
)

KIB = encode(Data(value=b"x" * 1000))


def fill(net: Network, count: int) -> None:
    sender = net.connect().sender("s")
    for _ in range(count):
        sender.link.send(KIB, settled=True)
    net.run()


def test_without_limits_everything_stays(net: Network) -> None:
    stream = declare(net, segment_bytes=5000)
    fill(net, 100)
    net.advance(10_000_000)
    assert stream.range(0) == (0, 100)


def test_by_bytes(net: Network) -> None:
    stream = declare(net, max_bytes=20_000, segment_bytes=5000)
    fill(net, 100)
    first, after = stream.range(0)
    assert after == 100
    # At least what was asked for, and at most a segment and a record more.
    assert 20_000 <= (after - first) * len(KIB) < 20_000 + 5000 + len(KIB)


def test_by_number(net: Network) -> None:
    stream = declare(net, max_records=16)
    fill(net, 100)
    first, after = stream.range(0)
    assert after == 100
    assert 16 <= after - first < 16 + 2


def test_whichever_limit_comes_first(net: Network) -> None:
    stream = declare(net, max_records=50, max_bytes=10_000, segment_bytes=1)
    fill(net, 100)
    assert stream.range(0) == (90, 100)


def test_each_partition_keeps_as_much(net: Network) -> None:
    stream = declare(net, max_records=8, partitions=2)
    fill(net, 100)
    assert [stream.range(0), stream.range(1)] == [(42, 50), (42, 50)]


def test_by_age(net: Network) -> None:
    stream = declare(net, max_age=60_000)
    start = net.wall
    sender = net.connect().sender("s")
    for number in range(120):
        sender.send(b"%d" % number)
        net.advance(1)
    first, after = stream.range(0)
    assert after == 120
    # Segments last an eighth of the age.
    assert 60 <= after - first <= 60 + 60 / 8 + 1
    net.advance(30)
    assert 30 <= after - stream.range(0)[0] <= 30 + 60 / 8 + 1
    net.advance(30)
    assert stream.range(0) == (120, 120)
    assert stream.message_count() == 0
    sender.send(b"next")
    assert stream.range(0) == (120, 121)
    assert net.wall - start > 120_000


def test_the_bytes_are_accounted_for(net: Network) -> None:
    agenda = net.broker.agenda
    before = agenda.held
    stream = declare(net, max_bytes=20_000, segment_bytes=5000, max_age=60_000)
    fill(net, 100)
    first, after = stream.range(0)
    assert agenda.held - before == (after - first) * len(KIB) == stream.describe()["bytes"]
    net.advance(60)
    assert agenda.held == before
    fill(net, 10)
    net.space.remove(stream)
    assert agenda.held == before


def test_time_does_not_go_back_with_the_clock(net: Network) -> None:
    stream = declare(net)
    sender = net.connect().sender("s")
    sender.send(b"a")
    wall = net.wall
    net.set_clock(-3600)
    sender.send(b"b")
    assert stream.partitions[0].describe()["last-time"] == wall
    assert stream.offset_at(0, wall) == 0
    assert stream.offset_at(0, wall + 1) == 2


def test_a_reader_that_was_overtaken_is_detached_and_told(net: Network) -> None:
    declare(net, max_records=4)
    client = net.connect()
    fill(net, 4)
    receiver = read(client, "s", credit=2)
    fill(net, 10)
    assert not receiver.detached
    receiver.credit(10)
    error = receiver.error
    assert offsets(receiver) == [0, 1]
    assert error is not None and error.condition == "ferrymq:stream-trimmed"
    assert error.info == {"partition": 0, "expected": 2, "first": 10, "next": 14}
    again = read(client, "s::0", ULong(2))
    assert granted(again)["ferrymq:first-offset"] == 10
    assert offsets(again) == [10, 11, 12, 13]


def test_a_reader_may_go_on_and_is_told_what_it_missed(net: Network) -> None:
    declare(net, max_records=4)
    client = net.connect()
    fill(net, 4)
    receiver = read(client, "s", credit=2, properties={"ferrymq:on-trim": "continue"})
    assert granted(receiver)["ferrymq:on-trim"] == "continue"
    fill(net, 10)
    receiver.credit(100)
    assert offsets(receiver) == [0, 1, 10, 11, 12, 13]
    told = [skipped(delivery.payload) for delivery in receiver.deliveries]
    assert told == [None, None, 8, None, None, None]


def test_what_was_missed_is_told_with_the_first_record_that_passes_the_filter(
    net: Network,
) -> None:
    declare(net, max_records=4)
    client = net.connect()
    sender = client.sender("s")
    receiver = read(
        client,
        "s",
        credit=1,
        selector="colour = 'red'",
        properties={"ferrymq:on-trim": "continue"},
    )
    for colour in ("red", "red", "blue", "blue", "blue", "blue", "red"):
        sender.send_sections(*coloured(colour, b""))
    receiver.credit(10)
    assert offsets(receiver) == [0, 6]
    assert [skipped(delivery.payload) for delivery in receiver.deliveries] == [None, 2]


def test_a_word_on_gaps_that_means_nothing_is_refused(net: Network) -> None:
    declare(net)
    receiver = read(net.connect(), "s", properties={"ferrymq:on-trim": "perhaps"})
    assert receiver.error is not None and receiver.error.condition == "amqp:invalid-field"


def test_a_reader_at_the_end_misses_nothing(net: Network) -> None:
    declare(net, max_records=1, max_age=1000)
    client = net.connect()
    receiver = read(client, "s")
    sender = client.sender("s")
    for body in numbered(20):
        sender.send(body)
    net.advance(10)
    sender.send(b"20")
    assert receiver.bodies() == numbered(21)
    assert not receiver.detached


def test_emptying_a_stream_keeps_its_offsets(net: Network) -> None:
    stream = declare(net, partitions=2)
    client = net.connect()
    held = net.broker.agenda.held
    waiting = read(client, "s")
    behind = read(client, "s::0", credit=1)
    client.sender("s").send(*numbered(6))
    assert stream.clear() == 6
    assert net.broker.agenda.held == held
    assert [stream.range(0), stream.range(1)] == [(3, 3), (3, 3)]
    client.sender("s").send(b"6", b"7")
    assert waiting.bodies() == numbered(8)
    behind.credit(10)
    assert behind.error is not None and behind.error.condition == "ferrymq:stream-trimmed"


def test_another_policy_applies_at_once(net: Network) -> None:
    stream = declare(net)
    fill(net, 50)
    stream.change_policy(StreamPolicy(max_age=5000, partitions=2))
    net.broker.finish_pass()
    assert len(stream.partitions) == 2
    net.advance(6)
    assert stream.range(0) == (50, 50)
    fill(net, 50)
    stream.change_policy(StreamPolicy(partitions=2))
    net.broker.finish_pass()
    net.advance(60)
    assert stream.message_count() == 50


@pytest.mark.spec("3.5.12")
def test_a_stream_that_lives_by_its_messages_goes_with_the_last(net: Network) -> None:
    stream = Stream("s", net.space, StreamPolicy(max_age=1000), DELETE_ON_NO_MESSAGES)
    net.space.add(stream)
    client = net.connect()
    sender = client.sender("s")
    sender.send(b"a")
    net.advance(5)
    assert "s" not in net.space.nodes
    assert sender.error is not None and sender.error.condition == "amqp:resource-deleted"
