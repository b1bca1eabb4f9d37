"""What somebody holds stays, whatever the limits say; and goes as soon as nobody does."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.streams import holds
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_types.messaging import Data
from ferrymq_types.transport import Error
from tests.broker.harness import Network, encode
from tests.broker.streams.kit import declare, numbered, offsets, read

KIB = encode(Data(value=b"x" * 1000))


def fill(net: Network, count: int, address: str = "s") -> None:
    sender = net.connect().sender(address)
    for _ in range(count):
        sender.link.send(KIB, settled=True)
    net.run()


def hold(net: Network, stream: Stream, holder: str, partition: int, offset: int) -> None:
    """In a pass of its own."""
    net.broker.begin_pass(net.now)
    stream.hold(holder, partition, offset)
    net.finish()


def release(net: Network, stream: Stream, holder: str) -> bool:
    """In a pass of its own."""
    net.broker.begin_pass(net.now)
    known = stream.release(holder)
    net.finish()
    return known


def held(stream: Stream) -> dict[object, dict[str, object]]:
    found = stream.describe()["holds"]
    assert isinstance(found, list)
    return {hold["holder"]: hold for hold in found}


def test_the_number_of_records(net: Network) -> None:
    stream = declare(net, max_records=5, segment_bytes=1)
    hold(net, stream, "copy", 0, 0)
    fill(net, 50)
    assert stream.range(0) == (0, 50)
    hold(net, stream, "copy", 0, 30)
    # At once, not with the next record.
    assert stream.range(0) == (30, 50)
    hold(net, stream, "copy", 0, 48)
    assert stream.range(0) == (45, 50)
    fill(net, 10)
    assert stream.range(0) == (48, 60)
    assert release(net, stream, "copy")
    assert stream.range(0) == (55, 60)
    assert not release(net, stream, "copy")
    fill(net, 5)
    assert stream.range(0) == (60, 65)


def test_bytes(net: Network) -> None:
    stream = declare(net, max_bytes=20_000, segment_bytes=5000)
    hold(net, stream, "copy", 0, 0)
    fill(net, 100)
    assert stream.range(0) == (0, 100)
    hold(net, stream, "copy", 0, 43)
    first, _ = stream.range(0)
    # The segment with the record stays as a whole.
    assert 43 - 5 < first <= 43
    assert offsets(read(net.connect(), "s"))[0] == first
    release(net, stream, "copy")
    assert stream.range(0)[0] > 70


def test_age(net: Network) -> None:
    stream = declare(net, max_age=10_000, segment_bytes=1)
    fill(net, 4)
    hold(net, stream, "copy", 0, 2)
    net.advance(60)
    assert stream.range(0) == (2, 4)
    fill(net, 1)
    hold(net, stream, "copy", 0, 4)
    assert stream.range(0) == (4, 5)
    release(net, stream, "copy")
    assert stream.range(0) == (4, 5)
    net.advance(11)
    assert stream.range(0) == (5, 5)


def test_one_that_is_not_too_old_yet_goes_in_its_time(net: Network) -> None:
    stream = declare(net, max_age=10_000, segment_bytes=1)
    fill(net, 4)
    hold(net, stream, "copy", 0, 0)
    net.advance(5)
    release(net, stream, "copy")
    assert stream.range(0) == (0, 4)
    net.advance(6)
    assert stream.range(0) == (4, 4)


def test_the_lowest_of_several_counts(net: Network) -> None:
    stream = declare(net, max_records=1, segment_bytes=1)
    fill(net, 1)
    for holder in ("a", "b", "c"):
        hold(net, stream, holder, 0, 0)
    fill(net, 9)
    hold(net, stream, "a", 0, 9)
    hold(net, stream, "b", 0, 4)
    assert stream.range(0) == (0, 10)
    hold(net, stream, "c", 0, 6)
    assert stream.range(0) == (4, 10)
    # It may go back to what is there.
    hold(net, stream, "a", 0, 4)
    release(net, stream, "b")
    assert stream.range(0) == (4, 10)
    release(net, stream, "a")
    assert stream.range(0) == (6, 10)
    release(net, stream, "c")
    assert stream.range(0) == (9, 10)


def test_each_partition_by_itself(net: Network) -> None:
    stream = declare(net, partitions=2, max_records=1, segment_bytes=1)
    hold(net, stream, "copy", 0, 0)
    for number in (0, 1):
        fill(net, 5, f"s::{number}")
    assert (stream.range(0), stream.range(1)) == ((0, 5), (4, 5))
    assert held(stream)["copy"]["offsets"] == [0, None]


def test_partitions_to_come_belong_to_who_holds_all(net: Network) -> None:
    stream = declare(net, partitions=2, max_records=1, segment_bytes=1)
    hold(net, stream, "part", 1, 0)
    stream.holds.move("all", {0: 0, 1: 0})
    hold(net, stream, "later", 0, 0)
    hold(net, stream, "later", 1, 0)
    stream.grow(3)
    assert {holder: hold["offsets"] for holder, hold in held(stream).items()} == {
        "part": [None, 0, None],
        "all": [0, 0, 0],
        "later": [0, 0, 0],
    }
    fill(net, 5, "s::2")
    assert stream.range(2) == (0, 5)
    release(net, stream, "all")
    hold(net, stream, "later", 2, 3)
    assert stream.range(2) == (3, 5)


@pytest.mark.parametrize("offset", [9, 21, -1])
def test_no_record_that_is_gone_or_was_never_there(net: Network, offset: int) -> None:
    stream = declare(net, partitions=2, max_records=10, segment_bytes=1)
    fill(net, 20, "s::0")
    for good in (10, 20):
        hold(net, stream, "copy", 0, good)
    with pytest.raises(BrokerError) as caught:
        stream.holds.move("copy", {1: 0, 0: offset})
    assert caught.value.condition == "amqp:precondition-failed"
    assert "'s::0' has the records from 10 to before 20" in caught.value.description
    # All of it or nothing.
    assert held(stream)["copy"]["offsets"] == [20, None]
    with pytest.raises(BrokerError, match="no partition '2'"):
        stream.holds.move("other", {0: 10, 2: 0})
    assert list(held(stream)) == ["copy"]


def test_names_and_numbers_of_holds(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = declare(net)
    for name in ("", "x" * 257):
        with pytest.raises(BrokerError, match="1 to 256 characters"):
            hold(net, stream, name, 0, 0)
    for number in range(holds.MAX_HOLDS):
        hold(net, stream, f"{number}", 0, 0)
    with pytest.raises(BrokerError, match="100 holds already") as caught:
        hold(net, stream, "more", 0, 0)
    assert caught.value.condition == "amqp:resource-limit-exceeded"
    hold(net, stream, "7", 0, 0)
    release(net, stream, "7")
    hold(net, stream, "more", 0, 0)
    assert len(stream.holds) == holds.MAX_HOLDS


def test_what_is_dropped_on_purpose_is_gone(net: Network) -> None:
    stream = declare(net, max_records=2, segment_bytes=1)
    hold(net, stream, "copy", 0, 0)
    fill(net, 10)
    assert stream.clear() == 10
    net.finish()
    assert stream.range(0) == (10, 10)
    assert held(stream)["copy"]["offsets"] == [10]
    fill(net, 10)
    assert stream.range(0) == (10, 20)
    assert held(stream)["copy"]["bytes"] == 8 * len(KIB)
    net.space.remove(stream)
    again = declare(net)
    assert len(again.holds) == 0


def test_what_they_cost_is_told(net: Network) -> None:
    stream = declare(net, max_records=10, segment_bytes=1)
    size = len(KIB)
    fill(net, 5)
    made = net.wall
    hold(net, stream, "slow", 0, 0)
    net.advance(5)
    hold(net, stream, "fast", 0, 3)
    hold(net, stream, "slow", 0, 1)
    fill(net, 3)
    found = held(stream)
    assert (found["slow"]["since"], found["fast"]["since"]) == (made, made + 5000)
    # Within the limits it would all be there without them.
    assert (found["slow"]["bytes"], found["fast"]["bytes"]) == (0, 0)
    assert stream.describe()["bytes-for-holds"] == 0
    fill(net, 12)
    found = held(stream)
    # There are 20; the last 10 stay anyway.
    assert (found["slow"]["bytes"], found["fast"]["bytes"]) == (9 * size, 7 * size)
    assert stream.describe()["bytes-for-holds"] == 9 * size
    release(net, stream, "slow")
    assert stream.describe()["bytes-for-holds"] == 7 * size
    release(net, stream, "fast")
    assert stream.describe()["bytes-for-holds"] == 0
    assert stream.describe()["bytes"] == 10 * size


def test_what_is_kept_although_it_is_too_old_is_counted(net: Network) -> None:
    stream = declare(net, max_age=10_000, segment_bytes=1)
    fill(net, 4)
    hold(net, stream, "copy", 0, 1)
    net.advance(11)
    fill(net, 2)
    assert held(stream)["copy"]["bytes"] == 3 * len(KIB)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "twice its limits" in one.getMessage()]


@pytest.mark.parametrize("limit", [{"max_records": 10}, {"max_bytes": 10 * len(KIB)}])
def test_twice_the_limit_is_told_once(
    net: Network, caplog: pytest.LogCaptureFixture, limit: dict[str, int]
) -> None:
    stream = declare(net, "s", segment_bytes=1, **limit)
    hold(net, stream, "copy", 0, 0)
    hold(net, stream, "other", 0, 0)
    hold(net, stream, "other", 0, 0)
    fill(net, 20)
    assert told(caplog) == []
    fill(net, 30)
    (line,) = told(caplog)
    assert "copy" in line and "'s'" in line
    hold(net, stream, "other", 0, 48)
    hold(net, stream, "copy", 0, 1)
    fill(net, 5)
    assert len(told(caplog)) == 1
    # It has caught up, and falls behind again.
    hold(net, stream, "copy", 0, 50)
    fill(net, 50)
    assert len(told(caplog)) == 2


def test_twice_the_age_is_told_once(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    stream = declare(net, max_age=10_000, segment_bytes=1)
    hold(net, stream, "copy", 0, 0)
    fill(net, 3)
    net.advance(15)
    assert told(caplog) == []
    net.advance(10)
    assert len(told(caplog)) == 1
    net.advance(100)
    fill(net, 3)
    net.advance(100)
    assert len(told(caplog)) == 1


def test_a_hold_that_stands_still_costs_no_passes(net: Network) -> None:
    stream = declare(net, max_age=1000, segment_bytes=1)
    hold(net, stream, "copy", 0, 0)
    fill(net, 3)
    net.advance(10)
    # Nothing is due: the next time is when the hold moves.
    assert stream.partitions[0]._expiry.due == 0


def test_a_stream_that_is_deleted_while_it_is_held(net: Network) -> None:
    stream = declare(net, max_records=1, max_age=1000, segment_bytes=1, partitions=2)
    stream.holds.move("copy", {0: 0, 1: 0})
    net.connect().sender("s").send(*numbered(20))
    stream.delete(Error(condition="amqp:resource-deleted"))
    assert stream.message_count() == 0 and len(stream.holds) == 0


def test_a_hundred_holders_of_thousands_of_partitions_are_told_without_their_bytes(
    net: Network,
) -> None:
    stream = declare(net, partitions=400, max_records=1, segment_bytes=1)
    every = dict.fromkeys(range(400), 0)
    for number in range(75):
        stream.holds.move(f"copy-{number}", every)
    assert held(stream)["copy-0"]["bytes"] == 0
    stream.holds.move("one more", every)
    # To say that takes 400 questions for each of them.
    assert {(hold["bytes"], hold["offsets"]) for hold in held(stream).values()} == {(None, None)}
    for number in range(76, holds.MAX_HOLDS):
        stream.holds.move(f"copy-{number}", every)
    with pytest.raises(BrokerError):
        stream.holds.move("too many", every)
    fill(net, 800)
    assert {stream.range(number) for number in range(400)} == {(0, 2)}
    for number in range(holds.MAX_HOLDS):
        stream.release(f"copy-{number}")
    stream.release("one more")
    assert {stream.range(number) for number in range(400)} == {(1, 2)}
