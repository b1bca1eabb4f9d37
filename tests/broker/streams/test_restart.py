"""A stream that somebody declared is there again after a restart, as a client sees it."""

from __future__ import annotations

from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import ULong
from tests.broker.harness import Network
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import granted, numbered, offsets, read


def stream_of(net: Network) -> Stream:
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream)
    return stream


def test_a_reader_goes_on_where_it_was() -> None:
    net = Network(store=ManualStore())
    net.space.create("s", StreamPolicy(partitions=2, max_records=100))
    net.connect().sender("s").send(*numbered(20))
    reader = read(net.connect(), "s::1", credit=4)
    assert offsets(reader) == [0, 1, 2, 3]
    incarnation = granted(reader)["ferrymq:incarnation"]
    net.restart()
    again = read(net.connect(), "s::1", ULong(4))
    assert offsets(again) == [4, 5, 6, 7, 8, 9]
    assert granted(again)["ferrymq:incarnation"] == incarnation
    assert stream_of(net).policy == StreamPolicy(partitions=2, max_records=100)
    net.connect().sender("s::1").send(b"new")
    assert offsets(again)[-1] == 10


def test_one_that_is_not_durable_is_not() -> None:
    net = Network(store=ManualStore())
    net.space.create("s", StreamPolicy(durable=False))
    net.connect().sender("s").send(*numbered(3))
    net.restart()
    assert "s" not in net.space.nodes


def test_one_that_was_deleted_is_not() -> None:
    net = Network(store=ManualStore())
    stream = net.space.create("s", StreamPolicy())
    net.connect().sender("s").send(*numbered(3))
    net.space.remove(stream)
    net.finish()
    net.restart()
    assert "s" not in net.space.nodes
    assert not net.store or not net.store.records
