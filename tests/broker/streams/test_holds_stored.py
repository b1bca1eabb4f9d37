"""Holds outlive the broker, with what they hold."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ferrymq
from ferrymq_broker.cli.store.merge import moved
from ferrymq_broker.config import Config, Listener, Store
from ferrymq_broker.config import Stream as StreamSettings
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.store.tables import HELD, HOLD
from ferrymq_broker.values.policy import StreamPolicy
from tests.broker.harness import Network
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import numbered, offsets, read

POLICY = StreamPolicy(partitions=2, max_records=3, segment_bytes=1)


def stream_of(net: Network) -> Stream:
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream)
    return stream


def start(policy: StreamPolicy = POLICY) -> Network:
    net = Network(store=ManualStore())
    net.space.create("s", policy)
    net.finish()
    return net


def offsets_of(stream: Stream) -> dict[object, object]:
    return {hold["holder"]: hold["offsets"] for hold in stream.holds.describe()}


def test_a_hold_is_there_again_with_its_records() -> None:
    net = start()
    stream = stream_of(net)
    stream.holds.move("copy", {0: 0, 1: 0})
    stream.hold("other", 1, 0)
    since = stream.holds.describe()[0]["since"]
    net.finish()
    net.connect().sender("s").send(*numbered(40))
    stream.hold("copy", 0, 7)
    net.finish()
    net.advance(100)
    net.restart()
    stream = stream_of(net)
    assert (stream.range(0), stream.range(1)) == ((7, 20), (0, 20))
    assert offsets_of(stream) == {"copy": [7, 0], "other": [None, 0]}
    assert stream.holds.describe()[0]["since"] == since
    assert offsets(read(net.connect(), "s::0")) == list(range(7, 20))
    # And it goes on as before: it moves, covers what is new, is gone for ever.
    stream.holds.move("copy", {0: 12, 1: 15})
    stream.release("other")
    stream.grow(3)
    net.finish()
    net.restart()
    stream = stream_of(net)
    assert (stream.range(0), stream.range(1)) == ((12, 20), (15, 20))
    assert offsets_of(stream) == {"copy": [12, 15, 0]}
    stream.release("copy")
    net.finish()
    net.restart()
    assert offsets_of(stream_of(net)) == {}
    assert stream_of(net).range(0) == (17, 20)
    assert net.store is not None and net.store.count(HOLD) + net.store.count(HELD) == 0


def test_what_is_not_on_disk_has_not_happened() -> None:
    net = start()
    stream = stream_of(net)
    stream.hold("copy", 0, 0)
    net.finish()
    net.connect().sender("s::0").send(*numbered(20))
    store = net.store
    assert store is not None
    store.held = True
    stream.hold("copy", 0, 15)
    net.broker.finish_pass()
    assert stream.range(0) == (15, 20)
    net.restart()
    # Neither has the hold moved, nor is anything gone.
    stream = stream_of(net)
    assert offsets_of(stream) == {"copy": [0, None]}
    assert stream.range(0) == (0, 20)


def test_a_purge_takes_what_is_not_on_disk_yet_along() -> None:
    net = start()
    stream = stream_of(net)
    stream.hold("copy", 0, 0)
    net.finish()
    net.connect().sender("s::0").send(*numbered(10))
    store = net.store
    assert store is not None
    writer = net.connect().sender("s::0")
    store.held = True
    for _ in range(5):
        writer.link.send(b"\x00\x53\x75\xa0\x01x", settled=True)
    net.run()
    assert stream.range(0) == (0, 10)
    stream.clear()
    # One that is moved while that is not on disk yet does not fall behind.
    stream.hold("late", 0, 10)
    stream.hold("copy", 0, 10)
    store.release()
    net.finish()
    assert stream.range(0) == (15, 15)
    assert offsets_of(stream) == {"copy": [15, None], "late": [15, None]}
    net.restart()
    assert offsets_of(stream_of(net)) == {"copy": [15, None], "late": [15, None]}


def test_of_a_stream_that_is_deleted_nothing_stays() -> None:
    net = start()
    stream = stream_of(net)
    stream.holds.move("copy", {0: 0, 1: 0})
    net.finish()
    net.connect().sender("s").send(*numbered(20))
    net.space.remove(stream)
    net.finish()
    assert net.store is not None and not net.store.records
    net.space.create("s", POLICY)
    net.finish()
    net.restart()
    assert offsets_of(stream_of(net)) == {}


def test_a_stream_in_memory_has_holds_too() -> None:
    net = start()
    stream = net.space.create("m", StreamPolicy(durable=False, max_records=1, segment_bytes=1))
    assert isinstance(stream, Stream)
    stream.hold("copy", 0, 0)
    net.finish()
    net.connect().sender("m").send(*numbered(10))
    assert stream.range(0) == (0, 10)
    assert net.store is not None and net.store.count(HOLD) == 0


def test_into_another_store_they_go_with_their_stream() -> None:
    hold = {"table": "hold", "id": 7, "number": 0, "value": {"stream": 3, "holder": "copy"}}
    assert moved(hold, 100) == {
        "table": "hold",
        "id": 107,
        "number": 0,
        "value": {"stream": 103, "holder": "copy"},
    }
    held = {"table": "held", "id": 7, "number": 1, "value": {"offset": 5}}
    assert moved(held, 100) == {**held, "id": 107}


async def test_on_a_disk(tmp_path: Path) -> None:
    config = Config(
        listener=[Listener(url="amqp://127.0.0.1:0")],
        store=Store(path=tmp_path, segment_bytes=64 * 1024),
        stream=[StreamSettings(name="s", partitions=2, max_records=8)],
    )
    before = 0
    for start, hold in ((0, 0), (40, 37), (80, 80)):
        async with (
            BrokerServer(config) as server,
            ferrymq.connect(server.url) as connection,
            connection.management() as management,
        ):
            found = (await management.request("RANGES", "stream", "s")).map()["streams"]
            assert isinstance(found, list)
            places = [(p["first-offset"], p["next-offset"]) for p in found[0]["partitions"]]
            assert places == [(before, start), (0, 0)]
            items = [{"partition": 0, "offset": hold}, {"partition": 1, "offset": 0}]
            body = {"holder": "copy", "offsets": items}
            await management.request("HOLD", "stream", "s", body)
            async with connection.sender("s::0") as sender:
                for number in range(40):
                    await sender.send(ferrymq.Message(body=number, durable=True))
            before = hold


class Held(RuleBasedStateMachine):
    """A stream with segments of one record, and what it must have: from the lowest of the holds,
    or of the last three, on; over all restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.net = start()
        self.first = [0, 0]
        self.next = [0, 0]
        self.holds: dict[str, dict[int, int]] = {}
        self.whole: set[str] = set()

    def trim(self) -> None:
        for part, end in enumerate(self.next):
            lowest = min((h[part] for h in self.holds.values() if part in h), default=end)
            self.first[part] = max(self.first[part], min(lowest, max(0, end - 3)))

    @rule(part=st.integers(0, 3), count=st.integers(1, 6))
    def publish(self, part: int, count: int) -> None:
        part %= len(self.next)
        self.net.connect().sender(f"s::{part}").send(*numbered(count))
        self.next[part] += count

    @rule(
        holder=st.sampled_from("abc"),
        part=st.integers(0, 3),
        where=st.integers(-2, 12),
        rest=st.booleans(),
    )
    def hold(self, holder: str, part: int, where: int, rest: bool) -> None:
        part %= len(self.next)
        asked = {part: self.first[part] + where}
        if rest:
            asked |= {p: self.next[p] for p in range(len(self.next)) if p != part}
        good = self.first[part] <= asked[part] <= self.next[part]
        try:
            stream_of(self.net).holds.move(holder, asked)
        except BrokerError as error:
            assert not good and error.condition == "amqp:precondition-failed"
        else:
            assert good
            held = self.holds.setdefault(holder, {})
            held |= asked
            if len(held) == len(self.next):
                self.whole.add(holder)
        self.net.finish()

    @rule(holder=st.sampled_from("abc"))
    def release(self, holder: str) -> None:
        was = self.holds.pop(holder, None)
        self.whole.discard(holder)
        assert stream_of(self.net).release(holder) == (was is not None)
        self.net.finish()

    @rule()
    @precondition(lambda self: len(self.next) < 4)
    def grow(self) -> None:
        self.next.append(0)
        self.first.append(0)
        stream_of(self.net).grow(len(self.next))
        for holder in self.whole:
            self.holds[holder][len(self.next) - 1] = 0
        self.net.finish()

    @rule()
    def purge(self) -> None:
        stream_of(self.net).clear()
        self.net.finish()
        self.first = list(self.next)
        for held in self.holds.values():
            for part in held:
                held[part] = max(held[part], self.first[part])

    @rule()
    def restart(self) -> None:
        self.net.restart()

    @invariant()
    def what_there_is(self) -> None:
        self.trim()
        stream = stream_of(self.net)
        ranges = [stream.range(part) for part in range(len(self.next))]
        assert ranges == list(zip(self.first, self.next, strict=True))
        expected = {
            holder: [held.get(part) for part in range(len(self.next))]
            for holder, held in self.holds.items()
        }
        assert offsets_of(stream) == expected


Held.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestHeld = Held.TestCase
