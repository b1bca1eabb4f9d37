"""The layout of a chunk: what the builder writes is what a chunk reads, and nothing else passes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.chunks import HAS_FORMATS, HAS_OFFSETS, HEAD_BYTES, Chunk, ChunkBuilder
from ferrymq_codec.errors import DecodeError

I64 = st.integers(-(2**63), 2**63 - 1)
# Payload, time, how many offsets are left out before it, message-format.
RECORDS = st.lists(
    st.tuples(
        st.binary(max_size=60),
        I64,
        st.sampled_from([0, 0, 0, 1, 1000]),
        st.sampled_from([0, 0, 0, 1, 0x464D4300, 2**32 - 1]),
    ),
    max_size=12,
)
Record = tuple[bytes, int, int, int]


def build(
    builder: ChunkBuilder, first: int, records: list[Record], behind: int, ahead: int
) -> tuple[bytes, list[tuple[bytes, int, int, int]], int]:
    """The chunk, what is in it as payload, time, offset and format, and where it ends."""
    builder.begin(first)
    offset = first
    placed = []
    for payload, time, gap, format in records:
        offset += gap
        builder.add(payload, time, offset, format)
        placed.append((payload, time, offset, format))
        offset += 1
    offset += behind
    return builder.build(offset, offset + ahead), placed, offset


@given(
    first=st.integers(0, 2**62),
    records=RECORDS,
    behind=st.integers(0, 3),
    ahead=st.integers(0, 3),
    another=RECORDS,
)
def test_what_is_written_is_read(
    first: int, records: list[Record], behind: int, ahead: int, another: list[Record]
) -> None:
    builder = ChunkBuilder()
    # A builder is used again and again.
    build(builder, 7, another, 1, 0)
    data, placed, next = build(builder, first, records, behind, ahead)
    chunk = Chunk(data)
    assert (chunk.first, chunk.next, chunk.end) == (first, next, next + ahead)
    assert chunk.count == len(chunk) == len(records)
    found = [
        (chunk.payload(i), chunk.time(i), chunk.offset(i), chunk.format(i))
        for i in range(chunk.count)
    ]
    assert found == placed
    dense = next == first + len(records)
    assert bool(chunk.flags & HAS_OFFSETS) == (not dense) == (chunk.offsets_at >= 0)
    plain = all(format == 0 for _, _, _, format in records)
    assert bool(chunk.flags & HAS_FORMATS) == (not plain) == (chunk.formats_at >= 0)
    for i in (-1, len(records)):
        with pytest.raises(IndexError):
            chunk.payload(i)


@given(first=st.integers(0, 2**40), records=RECORDS, limit=st.integers(0, 400))
def test_what_fits_is_known_before(first: int, records: list[Record], limit: int) -> None:
    builder = ChunkBuilder()
    builder.begin(first)
    offset = first
    for payload, time, gap, format in records:
        if not builder.fits(len(payload), limit):
            break
        offset += gap
        builder.add(payload, time, offset, format)
        offset += 1
    size = builder.size
    # The offsets may turn out to be needed when it ends.
    count = builder.count
    data = builder.build(offset + 1, offset + 1)
    assert len(data) in (size, size + 8 * count)
    assert count == 0 or len(data) <= limit


def test_the_layout_to_the_byte() -> None:
    """As docs/decisions/0013-spark.md lays it out."""
    builder = ChunkBuilder()
    builder.begin(5)
    builder.add(b"ab", 1000, 5, 0)
    builder.add(b"cde", -1, 6, 0)
    assert builder.build(7, 9) == (
        struct.pack("<BxxxiqqqqqIII", 0, 2, 5, 7, 9, 1000, -1, 0, 2, 5) + b"abcde"
    )
    builder.add(b"ab", 1000, 8, 0)
    builder.add(b"", 2000, 9, 0xFFFFFFFF)
    assert builder.build(11, 11) == (
        struct.pack("<BxxxiqqqqqqqiiiII", 3, 2, 7, 11, 11, 1000, 2000, 8, 9, 0, 2, 2, 0, 0xFFFFFFFF)
        + b"ab"
    )


SPARSE = struct.pack("<BxxxiqqqqqqqiiiII", 3, 2, 7, 11, 11, 1, 2, 8, 9, 0, 2, 2, 0, 1) + b"ab"
DENSE = struct.pack("<BxxxiqqqqqIII", 0, 2, 5, 7, 9, 1000, 2000, 0, 2, 5) + b"abcde"


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (0, struct.pack("<B", 4), "chunk.flags"),
        (0, struct.pack("<B", 0x80), "chunk.flags"),
        (1, b"\1", "chunk.flags"),
        (3, b"\xff", "chunk.flags"),
        (4, struct.pack("<i", -1), "chunk.count"),
        (4, struct.pack("<i", 2**31 - 1), "chunk.count"),
        (4, struct.pack("<i", 3), "chunk"),
        (4, struct.pack("<i", 1), "chunk"),
        (8, struct.pack("<q", -1), "chunk.first"),
        (8, struct.pack("<q", 6), "chunk.next"),
        (8, struct.pack("<q", 2**63 - 1), "chunk.next"),
        (16, struct.pack("<q", 8), "chunk.next"),
        (16, struct.pack("<q", -(2**63)), "chunk.next"),
        (24, struct.pack("<q", 6), "chunk.end"),
        (48, struct.pack("<i", 1), "chunk.ends"),
        (52, struct.pack("<i", -1), "chunk.ends"),
        (52, struct.pack("<i", 6), "chunk.ends"),
        (56, struct.pack("<i", 4), "chunk.ends"),
        (56, struct.pack("<i", 6), "chunk.ends"),
    ],
)
def test_what_is_wrong_is_named(at: int, value: bytes, field: str) -> None:
    Chunk(DENSE)
    with pytest.raises(DecodeError, match=field):
        Chunk(DENSE[:at] + value + DENSE[at + len(value) :])


@pytest.mark.parametrize("offsets", [(6, 9), (9, 9), (9, 8), (8, 11), (8, 2**63 - 1), (-1, 8)])
def test_offsets_rise_within_what_is_covered(offsets: tuple[int, int]) -> None:
    Chunk(SPARSE)
    with pytest.raises(DecodeError, match=r"chunk\.offsets"):
        Chunk(SPARSE[:48] + struct.pack("<qq", *offsets) + SPARSE[64:])


def test_what_is_cut_off_or_too_long_is_no_chunk() -> None:
    for whole in (DENSE, SPARSE):
        for length in range(len(whole)):
            with pytest.raises(DecodeError):
                Chunk(whole[:length])
        with pytest.raises(DecodeError):
            Chunk(whole + b"\0")


@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.tuples(st.sampled_from([DENSE, SPARSE]), st.integers(0, 80), st.binary(max_size=9)).map(
            lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :]
        ),
    )
)
def test_nothing_that_passes_goes_beyond_its_bytes(data: bytes) -> None:
    try:
        chunk = Chunk(data)
    except DecodeError:
        return
    assert len(data) >= HEAD_BYTES and chunk.first <= chunk.next <= chunk.end
    size = sum(len(chunk.payload(i)) for i in range(chunk.count))
    assert chunk.payloads_at + size == len(data)
    offsets = [chunk.offset(i) for i in range(chunk.count)]
    assert offsets == sorted(set(offsets))
    assert all(chunk.first <= offset < chunk.next for offset in offsets)
    assert all(0 <= chunk.format(i) < 2**32 for i in range(chunk.count))
