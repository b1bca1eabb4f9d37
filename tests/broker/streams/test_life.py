"""Streams come, grow, are looked at, and go."""

from __future__ import annotations

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.node import DELETE_ON_NO_LINKS
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from tests.broker.harness import Network
from tests.broker.streams.kit import declare, numbered, read


def test_what_there_is_to_know(net: Network) -> None:
    stream = declare(net, partitions=2, max_records=8)
    client = net.connect()
    read(client, "s")
    read(client, "s::1")
    start = net.wall
    client.sender("s").send(*numbered(3))
    net.advance(1)
    client.sender("s::0").send(b"last")
    figures = stream.describe()
    assert figures["name"] == "s"
    assert figures["type"] == "stream"
    assert figures["incarnation"] == str(stream.incarnation)
    assert (figures["partitions"], figures["max-records"]) == (2, 8)
    assert (figures["records"], figures["published"]) == (4, 4)
    assert (figures["consumers"], figures["producers"]) == (2, 2)
    assert figures["ranges"] == [
        {
            "partition": 0,
            "first-offset": 0,
            "next-offset": 3,
            "records": 3,
            "bytes": 6 + 6 + 9,
            "first-time": start,
            "last-time": net.wall,
        },
        {
            "partition": 1,
            "first-offset": 0,
            "next-offset": 1,
            "records": 1,
            "bytes": 6,
            "first-time": start,
            "last-time": start,
        },
    ]
    assert stream.range(1) == (0, 1)
    assert stream.offset_at(0, start + 1) == 2


def test_a_deleted_stream_ends_all_its_links(net: Network) -> None:
    stream = declare(net, partitions=2, max_age=1000)
    client, other = net.connect(), net.connect()
    links = [
        read(client, "s"),
        read(other, "s::1", credit=0),
        client.sender("s"),
        other.sender("s::0"),
    ]
    client.sender("s").send(*numbered(10))
    net.space.remove(stream)
    net.finish()
    for link in links:
        assert link.error is not None and link.error.condition == "amqp:resource-deleted"
    assert (stream.links, stream.readers, stream.message_count()) == (0, [], 0)
    net.advance(10)


def test_one_of_the_same_name_is_another(net: Network) -> None:
    first = declare(net)
    net.space.remove(first)
    assert declare(net).incarnation != first.incarnation


@pytest.mark.spec("3.5.11")
def test_links_to_partitions_keep_a_stream_alive(net: Network) -> None:
    stream = Stream("s", net.space, StreamPolicy(partitions=2), DELETE_ON_NO_LINKS)
    net.space.add(stream)
    client = net.connect()
    sender = client.sender("s::1")
    reader = read(client, "s::0")
    whole = client.sender("s")
    assert stream.links == 3
    whole.close()
    sender.close()
    assert "s" in net.space.nodes
    reader.close()
    assert "s" not in net.space.nodes


def test_readers_leave_nothing_behind(net: Network) -> None:
    stream = declare(net, partitions=2)
    client = net.connect()
    receiver = read(client, "s")
    lost = read(net.connect(), "s")
    client.sender("s::0").send(*numbered(4))
    for body in numbered(4):
        client.sender("s::0").send(body)
    assert [len(partition.waiting) for partition in stream.partitions] == [2, 2]
    receiver.close()
    lost.client.lose()
    assert stream.readers == []
    assert [(p.readers, p.waiting) for p in stream.partitions] == [(0, []), (0, [])]
    client.sender("s").send(*numbered(4))
    assert stream.message_count() == 12


def test_partitions_become_more_never_fewer(net: Network) -> None:
    stream = declare(net, partitions=3)
    with pytest.raises(BrokerError, match="3 partitions"):
        stream.grow(2)
    stream.grow(3)
    stream.grow(5)
    assert len(stream.partitions) == 5
    assert net.connect().sender("s::4").attached


@pytest.mark.parametrize("partitions", [0, -1, 10_001])
def test_a_stream_has_a_sensible_number_of_partitions(net: Network, partitions: int) -> None:
    with pytest.raises(BrokerError):
        declare(net, partitions=partitions)
    assert "s" not in net.space.nodes
