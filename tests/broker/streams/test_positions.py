"""Where a reader begins."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Described, Symbol, Timestamp, ULong
from ferrymq_types.messaging import Source, Target
from tests.broker.harness import Network
from tests.broker.streams.kit import POSITION, Start, declare, granted, numbered, offsets, read


@pytest.fixture
def ten(net: Network) -> Network:
    """Ten records, one a second, and a reader's worth of time behind them."""
    declare(net)
    sender = net.connect().sender("s")
    for body in numbered(10):
        sender.send(body)
        net.advance(1)
    return net


def at(net: Network, seconds: float) -> Timestamp:
    """A time, counted from the first record."""
    return Timestamp(net.wall - 10_000 + int(seconds * 1000))


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (None, 10),
        ("first", 0),
        ("last", 9),
        ("next", 10),
        (ULong(0), 0),
        (ULong(7), 7),
        (ULong(10), 10),
    ],
)
@pytest.mark.parametrize("address", ["s", "s::0"])
def test_a_place(ten: Network, address: str, start: Start | None, first: int) -> None:
    client = ten.connect()
    receiver = read(client, address, start)
    assert receiver.bodies() == numbered(10 - first, first)
    client.sender("s").send(b"10")
    assert receiver.bodies() == numbered(11 - first, first)
    told = granted(receiver)
    if address == "s":
        assert told["ferrymq:first-offsets"] == [first]
    else:
        assert told["ferrymq:first-offset"] == first


@pytest.mark.spec("3.5.8")
def test_the_answer_lists_the_place(ten: Network) -> None:
    receiver = read(ten.connect(), "s::0", ULong(3))
    assert receiver.remote_source.filter == {POSITION: Described(Symbol(POSITION), ULong(3))}


@pytest.mark.parametrize(
    ("seconds", "first"), [(-100, 0), (0, 0), (0.001, 1), (1, 1), (8.5, 9), (9, 9), (9.001, 10)]
)
def test_a_time(ten: Network, seconds: float, first: int) -> None:
    receiver = read(ten.connect(), "s", at(ten, seconds))
    assert receiver.bodies() == numbered(10 - first, first)


@pytest.mark.parametrize(
    ("selector", "first"),
    [
        ("amqp.annotation.x-opt-offset > '3'", 4),
        ("amqp.annotation.x-opt-offset >= '3'", 3),
        ("amqp.annotation.x-opt-offset > '9'", 10),
        ("amqp.annotation.x-opt-offset > '-1'", 0),
        ("amqp.annotation.x-opt-offset > '@latest'", 10),
        ("amqp.annotation.x-opt-sequence-number > '6'", 7),
        ("amqp.annotation.x-opt-enqueued-time > '{}'", 6),
        ("amqp.annotation.x-opt-enqueued-time >= '{}'", 5),
    ],
)
def test_the_words_of_event_hubs(ten: Network, selector: str, first: int) -> None:
    receiver = read(ten.connect(), "s::0", None, selector=selector.format(int(at(ten, 5))))
    assert granted(receiver)["ferrymq:first-offset"] == first
    assert receiver.bodies() == numbered(10 - first, first)


@pytest.mark.parametrize("name", ["x-opt-offset", "x-opt-enqueued-time"])
def test_the_greatest_number_is_beyond_the_end(ten: Network, name: str) -> None:
    receiver = read(ten.connect(), "s", None, selector=f"amqp.annotation.{name} > '{2**63 - 1}'")
    if name == "x-opt-offset":
        assert receiver.error is not None
        assert receiver.error.condition == "amqp:precondition-failed"
    else:
        assert not receiver.detached and receiver.bodies() == []


def test_a_time_to_come_begins_with_the_next_record(ten: Network) -> None:
    client = ten.connect()
    receiver = read(client, "s", at(ten, 3600))
    client.sender("s").send(b"10")
    assert receiver.bodies() == [b"10"]


@pytest.mark.parametrize("start", [None, "first", "last", "next", ULong(0), Timestamp(0)])
def test_an_empty_stream(net: Network, start: Start | None) -> None:
    declare(net)
    client = net.connect()
    receiver = read(client, "s", start)
    assert receiver.bodies() == []
    client.sender("s").send(b"a")
    assert receiver.bodies() == [b"a"]


def test_an_offset_that_is_gone_begins_at_the_first_and_says_so(net: Network) -> None:
    declare(net, max_records=4)
    client = net.connect()
    client.sender("s").send(*numbered(10))
    receiver = read(client, "s::0", ULong(2))
    assert granted(receiver)["ferrymq:first-offset"] == 6
    assert offsets(receiver) == [6, 7, 8, 9]


def test_an_offset_beyond_the_end_is_refused_with_what_there_is(net: Network) -> None:
    declare(net, max_records=4)
    client = net.connect()
    client.sender("s").send(*numbered(10))
    receiver = read(client, "s::0", ULong(11))
    error = receiver.error
    assert receiver.detached and error is not None
    assert error.condition == "amqp:precondition-failed"
    assert error.info == {"partition": 0, "expected": 11, "first": 6, "next": 10}


def test_one_offset_does_not_serve_several_partitions(net: Network) -> None:
    declare(net, partitions=2)
    client = net.connect()
    receiver = read(client, "s", ULong(0))
    assert receiver.error is not None and receiver.error.condition == "amqp:invalid-field"
    assert not read(client, "s::1", ULong(0)).detached


def test_the_answer_tells_the_incarnation_and_the_partitions(net: Network) -> None:
    stream = declare(net, partitions=2)
    told = granted(read(net.connect(), "s::1"))
    assert told["ferrymq:incarnation"] == stream.incarnation
    assert told["ferrymq:partitions"] == 2


@pytest.mark.spec("3.5.7")
def test_streams_are_read_by_copy_only(net: Network) -> None:
    declare(net)
    client = net.connect()
    assert read(client, "s", None).remote_source.distribution_mode == "copy"
    assert read(client, "s", None, mode="copy").remote_source.distribution_mode == "copy"
    receiver = read(client, "s", None, mode="move")
    assert receiver.error is not None and receiver.error.condition == "amqp:not-implemented"


def test_a_capability_is_granted(net: Network) -> None:
    declare(net)
    client = net.connect()
    source = Source(address="s", capabilities=["stream"])
    assert client.receiver(None, source=source).remote_source.capabilities == ["stream"]
    target = Target(address="s::0", capabilities=["stream"])
    assert client.sender(None, target=target).remote_target.capabilities == ["stream"]
