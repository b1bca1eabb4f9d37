"""Stored streams against a model: crashes, slow disks, little memory, and readers everywhere."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import ULong
from ferrymq_types.messaging import Data, MessageAnnotations
from tests.broker.harness import Receiver, encode, message_annotations, text
from tests.broker.streams.disk import (
    crash,
    declare_stored,
    held,
    log_of,
    squeeze,
    stored_network,
)
from tests.broker.streams.kit import granted, place, read, skipped

NUMBERS = st.integers(0, 1_000_000)


class Watched:
    """A reader of one partition, and the offset it is to get next."""

    def __init__(self, receiver: Receiver, partition: int, expected: int) -> None:
        self.receiver = receiver
        self.partition = partition
        self.expected = expected
        self.credit = 0


class StoredStreams(RuleBasedStateMachine):
    """Records come, go, are written, leave memory; the broker dies; what was seen stays true."""

    @initialize(
        partitions=st.integers(1, 3),
        max_records=st.sampled_from([0, 5, 40]),
        max_age=st.sampled_from([0, 10_000]),
        segment_bytes=st.sampled_from([1, 100, 10_000]),
        memory=st.sampled_from([0, 200, 100_000]),
    )
    def declare(
        self, partitions: int, max_records: int, max_age: int, segment_bytes: int, memory: int
    ) -> None:
        self.policy = StreamPolicy(
            partitions=partitions,
            max_records=max_records,
            max_age=max_age,
            segment_bytes=segment_bytes,
        )
        self.memory = memory
        self.net, self.disk = stored_network()
        self.stream = declare_stored(
            self.net,
            partitions=partitions,
            max_records=max_records,
            max_age=max_age,
            segment_bytes=segment_bytes,
        )
        self.disk.write_all()
        # Every record that may be there still, body and time by partition, in the order of offsets.
        self.records: list[list[tuple[bytes, int]]] = [[] for _ in range(partitions)]
        # How many of them are on disk, and how many were when the last batch was taken.
        self.stable = [0] * partitions
        self.sealed = [0] * partitions
        # What readers were shown: nothing else may ever be there.
        self.seen: list[dict[int, tuple[bytes, int]]] = [{} for _ in range(partitions)]
        # Records below these offsets somebody has dropped, if the broker lived to do it.
        self.purged = [0] * partitions
        self.count = 0
        self.meet()

    def meet(self) -> None:
        """Get to know a broker that has just begun."""
        squeeze(self.stream, self.memory)
        self.disk.on_taken = self.take
        self.take()
        self.link = self.net.connect().sender("s").link
        self.readers: list[Watched] = []
        self.client = self.net.connect()

    def take(self) -> None:
        self.sealed = [len(records) for records in self.records]

    @rule(where=NUMBERS, count=st.integers(1, 12))
    def publish(self, where: int, count: int) -> None:
        partition = where % len(self.records)
        for _ in range(count):
            body = b"%d" % self.count
            self.count += 1
            self.records[partition].append((body, self.net.wall))
            self.link.send(
                encode(
                    MessageAnnotations(value={"x-opt-partition": ULong(partition)}),
                    Data(value=body),
                ),
                settled=True,
            )
        self.settle()

    @rule(applied=st.booleans())
    def write_all(self, applied: bool) -> None:
        while self.disk.taken is not None:
            self.write()
        if applied:
            self.disk.apply()
            # What was only waiting for that leaves memory.
            self.wait(1.5)

    @rule()
    def write(self) -> None:
        if self.disk.taken is not None:
            self.stable = self.sealed
            self.disk.write()
        self.settle()

    @rule()
    def apply(self) -> None:
        self.disk.apply()

    @rule(seconds=st.sampled_from([0.5, 3, 20]))
    def wait(self, seconds: float) -> None:
        self.net.advance(seconds)
        self.settle()

    @rule()
    def purge(self) -> None:
        self.stream.clear()
        self.purged = [len(records) for records in self.records]
        self.net.broker.finish_pass()
        self.settle()

    @rule()
    def grow(self) -> None:
        if len(self.records) < 4:
            self.records.append([])
            self.stable = [*self.stable, 0]
            self.sealed = [*self.sealed, 0]
            self.seen.append({})
            self.purged.append(0)
            self.stream.grow(len(self.records))
            self.net.broker.finish_pass()
            # A broker that dies before knows less partitions, which is another story.
            while self.disk.taken is not None:
                self.write()
            squeeze(self.stream, self.memory)

    @rule(
        where=NUMBERS,
        start=st.sampled_from(["first", "last", "next", "offset", "time"]),
        value=NUMBERS,
        credit=st.sampled_from([0, 1, 5, 1000]),
    )
    def open(self, where: int, start: str, value: int, credit: int) -> None:
        partition = where % len(self.records)
        times = [time for _, time in self.records[partition]]
        chosen, expected = place(start, value, self.stream.range(partition), times, self.net.wall)
        receiver = read(self.client, f"s::{partition}", chosen, credit=0)
        assert granted(receiver)["ferrymq:first-offset"] == expected
        watched = Watched(receiver, partition, expected)
        self.readers.append(watched)
        self.give(watched, credit)

    @rule(which=NUMBERS, credit=st.sampled_from([1, 3, 1000]))
    def credit(self, which: int, credit: int) -> None:
        if self.readers:
            self.give(self.readers[which % len(self.readers)], credit)

    @rule()
    def look_up(self) -> None:
        """Every record there is, by its offset and by its time."""
        for number, partition in enumerate(self.stream.partitions):
            records = self.records[number]
            first, end = self.stream.range(number)
            for offset in range(first, end):
                segment = partition.find(offset)
                index = offset - segment.first
                assert 0 <= index < segment.count
                record = (text(segment.payloads[index]), segment.times[index])
                assert record == records[offset]
                found = self.stream.offset_at(number, record[1])
                assert found <= offset and (found == first or records[found - 1][1] < record[1])
                assert records[found][1] == record[1]
            assert self.stream.offset_at(number, self.net.wall + 1) == end

    @rule()
    def crash(self) -> None:
        self.look_up()
        before = [self.stream.range(p) for p in range(len(self.records))]
        if self.disk.taken is None:
            # Nothing waits to be written, so nothing is lost.
            assert self.stable == [len(records) for records in self.records]
        self.records = [r[:n] for r, n in zip(self.records, self.stable, strict=True)]
        self.net, self.disk, self.stream = crash(self.disk, self.policy)
        assert len(self.stream.partitions) == len(self.records)
        for partition, (first, end) in enumerate(before):
            again, after = self.stream.range(partition)
            # Offsets do not go back; nor is there a record more or less than there has to be.
            assert end <= after == len(self.records[partition])
            for offset in range(first, again):
                assert self.may_be_gone(partition, offset)
        self.meet()
        for partition in range(len(self.records)):
            receiver = read(self.client, f"s::{partition}")
            reader = Watched(receiver, partition, self.stream.range(partition)[0])
            self.readers.append(reader)
            reader.credit = 100_000
        self.settle()

    def may_be_gone(self, partition: int, offset: int) -> bool:
        records = self.records[partition]
        policy = self.policy
        return (
            offset < self.purged[partition]
            or 0 < policy.max_records <= len(records) - 1 - offset
            or 0 < policy.max_age <= self.net.wall - records[offset][1]
        )

    def give(self, watched: Watched, credit: int) -> None:
        if not watched.receiver.detached:
            watched.credit = credit
            watched.receiver.credit(credit)
        self.settle()

    def settle(self) -> None:
        """Check what has come; what must have come by now, has."""
        self.net.run()
        for watched in list(self.readers):
            partition = watched.partition
            first, end = self.stream.range(partition)
            for delivery in watched.receiver.take():
                watched.credit -= 1
                assert skipped(delivery.payload) is None
                annotations = message_annotations(delivery.payload)
                offset, time = annotations["x-opt-offset"], annotations["x-opt-enqueued-time"]
                assert offset == watched.expected and isinstance(time, int)
                # On disk, or it must not be seen.
                assert watched.expected < self.stable[partition]
                record = (text(delivery.payload), time)
                assert record == self.records[partition][offset]
                assert self.seen[partition].setdefault(offset, record) == record
                watched.expected += 1
            if watched.receiver.detached:
                error = watched.receiver.error
                assert error is not None and error.condition == "ferrymq:stream-trimmed"
                assert watched.expected < first
                self.readers.remove(watched)
            elif watched.credit > 0:
                assert watched.expected == end

    @invariant()
    def the_figures_are_right(self) -> None:
        if not hasattr(self, "stream"):
            return
        for number, records in enumerate(self.records):
            first, end = self.stream.range(number)
            assert 0 <= first <= end == self.stable[number] <= len(records)
            log = log_of(self.stream, number)
            assert log.end == len(records)
            figures = self.stream.partitions[number].describe()
            assert figures["records"] == end - first
            if first < end:
                times = records[first][1], records[end - 1][1]
                assert (figures["first-time"], figures["last-time"]) == times
            for offset in range(first):
                assert self.may_be_gone(number, offset)
        assert self.net.broker.agenda.held == held(self.stream)


StoredStreams.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestStoredStreams = StoredStreams.TestCase
