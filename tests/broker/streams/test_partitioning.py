"""Which partition a message goes to."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_codec.scalars import Byte, Int, Symbol, Timestamp, UInt, ULong
from ferrymq_types.messaging import Accepted, Data, MessageAnnotations, Properties, Rejected
from tests.broker.harness import Network
from tests.broker.streams.kit import declare, keyed, read


def counts(stream: Stream) -> list[int]:
    return [stream.range(number)[1] for number in range(len(stream.partitions))]


def test_without_a_key_partitions_take_turns(net: Network) -> None:
    stream = declare(net, partitions=3)
    net.connect().sender("s").send(*[b"x"] * 7)
    assert counts(stream) == [3, 2, 2]


# Computed once and for all: a key must find its partition again after any restart.
@pytest.mark.parametrize(
    ("key", "partition"), [("", 0), ("d", 2), ("customer-1", 3), ("customer-17", 4), ("Zürich", 5)]
)
def test_a_key_has_its_partition_for_ever(net: Network, key: str, partition: int) -> None:
    stream = declare(net, partitions=7)
    net.connect().sender("s").send_sections(*keyed(key))
    assert [n for n, count in enumerate(counts(stream)) if count] == [partition]


@given(key=st.text(max_size=40), partitions=st.integers(1, 20))
def test_the_partition_is_the_crc_of_the_key(key: str, partitions: int) -> None:
    net = Network()
    stream = declare(net, partitions=partitions)
    sender = net.connect().sender("s")
    sender.send_sections(*keyed(key))
    sender.send_sections(*keyed(key.encode()))
    sender.send_sections(Properties(group_id=key), Data(value=b""))
    assert counts(stream)[crc32(key.encode()) % partitions] == 3


def test_a_symbol_is_as_good_a_key_as_a_string(net: Network) -> None:
    stream = declare(net, partitions=7)
    net.connect().sender("s").send_sections(*keyed(Symbol("customer-17")))
    assert counts(stream)[4] == 1


def test_the_key_goes_before_the_group_and_the_partition_before_both(net: Network) -> None:
    stream = declare(net, partitions=7)
    sender = net.connect().sender("s")
    group = Properties(group_id="customer-17")
    both: dict[str | int, object] = {"x-opt-partition-key": "d", "x-opt-partition": UInt(6)}
    sender.send_sections(group, Data(value=b""))
    sender.send_sections(
        MessageAnnotations(value={"x-opt-partition-key": "d"}), group, Data(value=b"")
    )
    sender.send_sections(MessageAnnotations(value=both), group, Data(value=b""))
    assert counts(stream) == [0, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("number", [UInt(2), Int(2), ULong(2), Byte(2), 2])
def test_a_partition_may_be_any_integer(net: Network, number: object) -> None:
    stream = declare(net, partitions=3)
    net.connect().sender("s").send_sections(
        MessageAnnotations(value={"x-opt-partition": number}), Data(value=b"")
    )
    assert counts(stream) == [0, 0, 1]


@pytest.mark.parametrize(
    "annotations",
    [
        {"x-opt-partition": UInt(3)},
        {"x-opt-partition": Int(-1)},
        {"x-opt-partition": ULong(2**63)},
        {"x-opt-partition": "1"},
        {"x-opt-partition": True},
        {"x-opt-partition": Timestamp(1)},
        {"x-opt-partition-key": 17},
        {"x-opt-partition-key": ["a"]},
    ],
)
def test_what_names_no_partition_is_rejected(
    net: Network, annotations: dict[str | int, object]
) -> None:
    stream = declare(net, partitions=3)
    delivery = (
        net.connect()
        .sender("s")
        .send_sections(MessageAnnotations(value=annotations), Data(value=b""))
    )
    state = delivery.remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:invalid-field"
    assert counts(stream) == [0, 0, 0]


def test_a_stream_of_one_partition_looks_too(net: Network) -> None:
    declare(net)
    delivery = (
        net.connect()
        .sender("s")
        .send_sections(MessageAnnotations(value={"x-opt-partition": UInt(1)}), Data(value=b""))
    )
    assert isinstance(delivery.remote_state, Rejected)


def test_the_address_of_a_partition_goes_before_all(net: Network) -> None:
    stream = declare(net, partitions=7)
    delivery = net.connect().sender("s::2").send_sections(*keyed("a"))
    assert isinstance(delivery.remote_state, Accepted)
    assert counts(stream) == [0, 0, 1, 0, 0, 0, 0]


def test_the_anonymous_terminus_reaches_partitions(net: Network) -> None:
    stream = declare(net, partitions=2)
    sender = net.connect().sender(None)
    sender.send_sections(Properties(to="s::1"), Data(value=b""))
    assert counts(stream) == [0, 1]
    delivery = sender.send_sections(Properties(to="s::2"), Data(value=b""))
    assert isinstance(delivery.remote_state, Rejected)


@pytest.mark.parametrize("part", ["2", "-1", "01", "1 ", "x", "٣", "1" * 30])
def test_there_is_one_way_to_write_a_partition(net: Network, part: str) -> None:
    declare(net, partitions=2)
    client = net.connect()
    for endpoint in (client.sender(f"s::{part}"), read(client, f"s::{part}")):
        assert endpoint.error is not None and endpoint.error.condition == "amqp:not-found"


def test_more_partitions_at_run_time(net: Network) -> None:
    stream = declare(net, partitions=1)
    client = net.connect()
    whole = read(client, "s")
    single = read(client, "s::0")
    sender = client.sender("s")
    sender.send(b"a")
    stream.grow(3)
    sender.send(b"b", b"c", b"d")
    assert counts(stream) == [2, 1, 1]
    assert sorted(whole.bodies()) == [b"a", b"b", b"c", b"d"]
    assert len(single.bodies()) == 2


def test_a_virtual_host_may_have_another_partitioner(net: Network) -> None:
    asked: list[tuple[bytes, int]] = []

    def last(key: bytes, partitions: int) -> int:
        asked.append((key, partitions))
        return partitions - 1

    net.space.partitioner = last
    stream = declare(net, partitions=3)
    sender = net.connect().sender("s")
    sender.send_sections(*keyed("a"))
    sender.send_sections(*keyed(b"b"))
    sender.send_sections(Properties(group_id="c"), Data(value=b""))
    assert asked == [(b"a", 3), (b"b", 3), (b"c", 3)]
    assert counts(stream) == [0, 0, 3]
    # It is for keys only.
    sender.send(b"x", b"y")
    assert counts(stream) == [1, 1, 3]


@pytest.mark.parametrize("number", [-1, 3])
def test_a_partitioner_that_leaves_the_stream(net: Network, number: int) -> None:
    net.space.partitioner = lambda key, partitions: number
    stream = declare(net, partitions=3)
    sender = net.connect().sender("s")
    outcome = sender.send_sections(*keyed("a")).remote_state
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == "amqp:internal-error"
    assert counts(stream) == [0, 0, 0]
