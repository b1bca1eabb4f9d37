"""What has to be true of a stream and its readers at rest, seen from the inside."""

from __future__ import annotations

from collections.abc import Sequence

from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.nodes.chunk_budget import ChunkBudget
from ferrymq_broker.nodes.streams.chunk_reader import ChunkStreamReader
from ferrymq_broker.nodes.streams.reader import PartitionCursor, StreamReader
from ferrymq_broker.nodes.streams.segments import ENDLESS
from ferrymq_broker.nodes.streams.stream import Stream


def check_stream(stream: Stream) -> list[ChunkStreamReader]:
    """One stream, whose readers of chunks are the answer."""
    cursors: list[PartitionCursor] = []
    for reader in stream.readers:
        check_reader(reader)
        cursors += reader.cursors
    assert not stream._parked, "a reader waits for a pass of its own, and there was none"
    for number, partition in enumerate(stream.partitions):
        here = [cursor for cursor in cursors if cursor.partition is partition]
        assert partition.number == number and partition.readers == len(here)
        waiting = [cursor for cursor in here if cursor.waiting]
        assert set(map(id, waiting)) == set(map(id, partition.waiting))
        assert len(waiting) == len(partition.waiting)
        held = [hold.offsets.get(number, ENDLESS) for hold in stream.holds._holds.values()]
        assert partition.held == min(held, default=ENDLESS)
        log = partition.log
        assert 0 <= log.first <= log.next
        assert all(log.first <= offset <= log.next for offset in held if offset != ENDLESS)
    return [reader for reader in stream.readers if isinstance(reader, ChunkStreamReader)]


def check_reader(reader: StreamReader) -> None:
    """One link: nothing keeps it from what it could have."""
    consumer = reader.consumer
    assert isinstance(consumer, ConsumerLink) and not consumer.closed
    assert consumer.node is reader and not reader.parked
    link = consumer.link
    if link.credit <= 0 or not link.usable or link.parked > 0 or consumer.output.blocked:
        return
    if link.session.outgoing.remote_window <= 0:
        return
    assert consumer.ready, "a reader with credit is taken for one without"
    for cursor in reader.cursors:
        end = min(cursor.until, cursor.partition.log.next)
        assert cursor.at() >= end, f"a reader is at {cursor.at()}, and there is more, to {end}"
        # One that has it all may still be told of what comes, once.
        assert cursor.waiting or cursor.at() >= cursor.until


def check_gathering(chunk_budget: ChunkBudget, readers: Sequence[ChunkStreamReader]) -> int:
    """All readers of chunks together; how many bytes they have gathered and not sent."""
    assert not chunk_budget.waiting, "a reader of chunks waits for a pass, and there was none"
    made = sum(int(reader._held) for reader in readers)
    sent = sum(int(reader._sent) for reader in readers)
    assert (
        chunk_budget.held == made + sent
    ), f"{chunk_budget.held} gathered, found {made} and {sent}"
    assert set(chunk_budget._sent) == {reader._maker for reader in readers if reader._sent > 0}
    for reader in readers:
        assert reader._held == 0 or reader._built is not None or not _is_free(reader)
    return made


def _is_free(reader: ChunkStreamReader) -> bool:
    consumer = reader.consumer
    assert isinstance(consumer, ConsumerLink)
    return consumer.ready and consumer.link.credit > 0 and not consumer.output.blocked
