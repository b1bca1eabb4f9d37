"""Chunks of a stream, as clients read them: `DecodeError`, or columns that lie within the bytes."""

from __future__ import annotations

from random import Random

from ferrymq.chunks import Chunk, ChunkBuilder
from ferrymq_codec.errors import DecodeError
from tests.fuzz.mutation.plain import NUMBERS, mutate_bytes
from tests.fuzz.pool import MESSAGES


def one(data: bytes) -> None:
    """Read it, and write what was read."""
    try:
        chunk = Chunk(data)
    except DecodeError:
        return
    builder = ChunkBuilder()
    builder.begin(chunk.first)
    for i in range(chunk.count):
        offset = chunk.offset(i)
        assert chunk.first <= offset < chunk.next
        builder.add(chunk.payload(i), chunk.time(i), offset, chunk.format(i))
    again = Chunk(builder.build(chunk.next, chunk.end))
    # Columns that say nothing may have gone.
    assert len(again.data) <= len(data)
    assert (again.first, again.next, again.end) == (chunk.first, chunk.next, chunk.end)
    for i in range(chunk.count):
        assert again.payload(i) == chunk.payload(i) and again.format(i) == chunk.format(i)
        assert again.time(i) == chunk.time(i) and again.offset(i) == chunk.offset(i)


def seeds() -> list[bytes]:
    """Chunks with and without offsets and formats, and one without records."""
    found = []
    for step in (1, 3):
        for format in (0, 5):
            builder = ChunkBuilder()
            builder.begin(10)
            for i, message in enumerate(MESSAGES[:4]):
                builder.add(message, 1000 + i, 10 + step * i, format)
            found.append(builder.build(10 + step * 4, 50))
    return [*found, ChunkBuilder().build(5, 9)]


def mutate(random: Random, data: bytes) -> bytes:
    """Another number in the head or the columns, or other bytes."""
    if random.random() < 0.5 or len(data) < 8:
        return mutate_bytes(random, data)
    at = 4 * random.randrange(min(len(data), 200) // 4)
    size = random.choice((4, 8))
    number = random.choice((*NUMBERS, -1, 2**63 - 1, len(data)))
    value = (number & (256**size - 1)).to_bytes(size, "little")
    return data[:at] + value + data[at + size :]
