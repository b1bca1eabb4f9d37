"""Streams against a model: whatever happens, readers get what they were promised, in order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ferrymq_codec.scalars import ULong
from ferrymq_types.messaging import Data, MessageAnnotations
from tests.broker.harness import Client, Network, Receiver, Sender, message_annotations, text
from tests.broker.streams.kit import Start, declare, granted, place, read, skipped

NUMBERS = st.integers(0, 1_000_000)


class Watched:
    """A reader, and what the model knows of it: the next offset of each partition it reads."""

    def __init__(self, receiver: Receiver, expected: dict[int, int], forgiving: bool) -> None:
        self.receiver = receiver
        self.expected = expected
        self.forgiving = forgiving
        # Where it reads all partitions: those that come later are read from their beginning.
        self.whole = len(expected) != 1
        self.credit = 0


class Streams(RuleBasedStateMachine):
    """Two clients publish, read at their own pace and leave; records go, partitions come."""

    @initialize(
        partitions=st.integers(1, 3),
        max_records=st.sampled_from([0, 3, 20]),
        max_age=st.sampled_from([0, 10_000]),
        segment_bytes=st.sampled_from([1, 40, 10_000]),
    )
    def declare(self, partitions: int, max_records: int, max_age: int, segment_bytes: int) -> None:
        self.net = Network()
        self.stream = declare(
            self.net,
            partitions=partitions,
            max_records=max_records,
            max_age=max_age,
            segment_bytes=segment_bytes,
        )
        self.max_records = max_records
        self.clients: list[Client] = [self.net.connect(), self.net.connect()]
        self.senders: list[Sender] = [client.sender("s") for client in self.clients]
        self.readers: list[Watched] = []
        # Every record ever: body and time, by partition.
        self.records: list[list[tuple[bytes, int]]] = [[] for _ in range(partitions)]
        self.count = 0

    @rule(who=st.integers(0, 1), where=NUMBERS, count=st.integers(1, 12))
    def publish(self, who: int, where: int, count: int) -> None:
        partition = where % len(self.records)
        for _ in range(count):
            body = b"%d" % self.count
            self.count += 1
            self.senders[who].send_sections(
                MessageAnnotations(value={"x-opt-partition": ULong(partition)}), Data(value=body)
            )
            self.records[partition].append((body, self.net.wall))
        self.settle()

    @rule(
        who=st.integers(0, 1),
        where=st.none() | NUMBERS,
        start=st.sampled_from(["first", "last", "next", "offset", "time"]),
        value=NUMBERS,
        forgiving=st.booleans(),
        credit=st.sampled_from([0, 1, 5, 1000]),
    )
    def open(
        self, who: int, where: int | None, start: str, value: int, forgiving: bool, credit: int
    ) -> None:
        partitions = len(self.records)
        if where is None and start == "offset":
            where = 0
        parts = list(range(partitions)) if where is None else [where % partitions]
        chosen: Start = start
        expected = {}
        for part in parts:
            times = [time for _, time in self.records[part]]
            chosen, expected[part] = place(
                start, value, self.stream.range(part), times, self.net.wall
            )
        receiver = read(
            self.clients[who],
            "s" if where is None else f"s::{parts[0]}",
            chosen,
            credit=0,
            properties={"ferrymq:on-trim": "continue"} if forgiving else None,
        )
        if where is None:
            assert granted(receiver)["ferrymq:first-offsets"] == list(expected.values())
        else:
            assert granted(receiver)["ferrymq:first-offset"] == expected[parts[0]]
        watched = Watched(receiver, expected, forgiving)
        watched.whole = where is None
        self.readers.append(watched)
        self.give(watched, credit)

    @rule(which=NUMBERS, credit=st.sampled_from([1, 3, 1000]))
    def credit(self, which: int, credit: int) -> None:
        if self.readers:
            self.give(self.readers[which % len(self.readers)], credit)

    @rule(which=NUMBERS)
    def leave(self, which: int) -> None:
        if self.readers:
            watched = self.readers.pop(which % len(self.readers))
            if not watched.receiver.detached:
                watched.receiver.close()

    @rule(seconds=st.sampled_from([0.5, 3, 20]))
    def wait(self, seconds: float) -> None:
        self.net.advance(seconds)
        self.settle()

    @rule()
    def purge(self) -> None:
        self.stream.clear()

    @rule()
    def grow(self) -> None:
        if len(self.records) < 5:
            self.stream.grow(len(self.records) + 1)
            self.net.broker.finish_pass()
            self.records.append([])
            for watched in self.readers:
                if watched.whole:
                    watched.expected[len(self.records) - 1] = 0

    def give(self, watched: Watched, credit: int) -> None:
        if not watched.receiver.detached:
            watched.credit = credit
            watched.receiver.credit(credit)
        self.settle()

    def settle(self) -> None:
        """Check what has come; what must have come by now, has."""
        self.net.run()
        for watched in list(self.readers):
            for delivery in watched.receiver.take():
                watched.credit -= 1
                self.check(watched, delivery.payload)
            if watched.receiver.detached:
                self.check_detached(watched)
                self.readers.remove(watched)
            elif watched.credit > 0:
                for partition, expected in watched.expected.items():
                    first, end = self.stream.range(partition)
                    # Of a gap with nothing behind it nobody can be told by a delivery.
                    assert expected == end or (watched.forgiving and first == end)
            assert watched.credit >= 0

    def check(self, watched: Watched, payload: bytes) -> None:
        annotations = message_annotations(payload)
        partition, offset = annotations["x-opt-partition"], annotations["x-opt-offset"]
        assert isinstance(partition, int) and isinstance(offset, int)
        body, time = self.records[partition][offset]
        assert (text(payload), annotations["x-opt-enqueued-time"]) == (body, time)
        gap = offset - watched.expected[partition]
        assert skipped(payload) == (gap or None)
        assert gap == 0 or watched.forgiving
        watched.expected[partition] = offset + 1

    def check_detached(self, watched: Watched) -> None:
        error = watched.receiver.error
        assert not watched.forgiving
        assert error is not None and error.condition == "ferrymq:stream-trimmed"
        info = error.info
        assert info is not None
        partition = info["partition"]
        assert isinstance(partition, int)
        assert info["expected"] == watched.expected[partition]
        first, end = self.stream.range(partition)
        assert watched.expected[partition] < first
        assert (info["first"], info["next"]) == (first, end)

    @invariant()
    def the_figures_are_right(self) -> None:
        if not hasattr(self, "stream"):
            return
        held = 0
        for number, records in enumerate(self.records):
            first, end = self.stream.range(number)
            assert end == len(records) and 0 <= first <= end
            held += self.stream.partitions[number].log.bytes
        assert self.net.broker.agenda.held == held


Streams.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreams = Streams.TestCase
