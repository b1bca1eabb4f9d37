"""Chunks of a stream, and messages of any link, as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ferrymq.arrow.arrays import (
    booleans,
    entries_array,
    integers,
    map_array,
    text_array,
    times,
)
from ferrymq.arrow.schema import DEFAULT, RAW, TYPES, TextError, schema_of
from ferrymq.arrow.wire.batch import Batch
from ferrymq.arrow.wire.layout import join, offsets
from ferrymq.arrow.wire.scanner import MessageScanner
from ferrymq.chunks import Chunk

# Columns that come from the chunk or from the creator of the decoder, not from the messages.
_OUTSIDE: Final = frozenset(["address", "broker", RAW])
_POSITION: Final = frozenset(["partition", "offset", "enqueuedTime"])

_MAX_BYTES: Final = 0x7FFF_FFFF


class RecordDecoder:
    """Decoder to record batches with the `columns` named, in that order, of `schema`.

    `address` and `partition` are those of the link, and `broker` is the id of the broker; they fill
    the columns of these names. Only the
    parts of a message that the columns need are read. Raises `ColumnError` for an unknown column.

    With `verbatim` the bytes of strings and of binary stay as they are: `body` has those of a value
    instead of JSON (and null for null), `partitionKey` is binary, and `applicationProperties` is a
    list of keys with bytes, null if there are none. `texts` names columns of binary to return as
    strings; a value that is not UTF-8 then raises `TextError`.
    """

    def __init__(
        self,
        columns: Sequence[str] = DEFAULT,
        address: str | None = None,
        partition: int | None = None,
        broker: str | None = None,
        *,
        verbatim: bool = False,
        texts: Iterable[str] = (),
    ) -> None:
        self._texts = frozenset(texts)
        self.schema: pa.Schema = schema_of(columns, verbatim=verbatim, texts=self._texts)
        self.columns: tuple[str, ...] = tuple(columns)
        self.address = address
        self.partition = partition
        self.broker = broker
        # The longest columns so far that have one value: Arrow makes those of strings row by row.
        self._constants: dict[tuple[str, str | int | None], pa.Array] = {}
        inside = [name for name in self.columns if name not in _OUTSIDE]
        placed = [name for name in inside if name not in _POSITION]
        self._scanner = MessageScanner(inside, verbatim) if inside else None
        self._placed_scanner = MessageScanner(placed, verbatim) if placed else None

    def decode(self, chunk: Chunk) -> pa.RecordBatch:
        """Return a row for each record of a chunk, with the position and time of the chunk."""
        count = int(chunk.count)
        batch: Batch | None = None
        if self._placed_scanner is not None:
            batch = self._placed_scanner.scan(
                chunk.data, chunk.count, chunk.ends_at, chunk.formats_at, chunk.payloads_at
            )
        buffer = pa.py_buffer(chunk.data)
        arrays = []
        for name in self.columns:
            if name == "address":
                arrays.append(self._constant(name, self.address, count))
            elif name == "broker":
                arrays.append(self._constant(name, self.broker, count))
            elif name == "partition":
                arrays.append(self._constant(name, self.partition, count))
            elif name == "offset":
                arrays.append(_offsets(chunk, buffer))
            elif name == "enqueuedTime":
                arrays.append(times(buffer.slice(chunk.times_at, 8 * count), count))
            elif name == RAW:
                arrays.append(_raw(buffer, count, chunk.ends_at, chunk.payloads_at))
            else:
                assert batch is not None
                array = self._column(batch, name, buffer)
                if name in self._texts:
                    array = _checked(array, name, _offsets(chunk, buffer))
                arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def decode_messages(
        self, payloads: Sequence[bytes], formats: Sequence[int] | None = None
    ) -> pa.RecordBatch:
        """Return a row for each encoded message; `formats` are their message-formats, if not all
        are 0.

        The position and time of a message in its stream come from its annotations; without them,
        the partition is that of the decoder. Raises ValueError if the payloads are 2 GiB or more,
        or if the numbers of formats and payloads differ.
        """
        count = len(payloads)
        if formats is not None and len(formats) != count:
            raise ValueError(f"{len(formats)} message-formats for {count} payloads")
        size = sum(map(len, payloads))
        if size + 8 * count + 4 > _MAX_BYTES:
            raise ValueError(f"{size} bytes of payloads, 2 GiB or more: pass fewer at a time")
        plain = formats is None or not any(formats)
        data = join(list(payloads), None if plain or formats is None else list(formats))
        formats_at = -1 if plain else 4 * (count + 1)
        payloads_at = 4 * (count + 1) + (0 if plain else 4 * count)
        batch: Batch | None = None
        if self._scanner is not None:
            batch = self._scanner.scan(data, count, 0, formats_at, payloads_at)
        buffer = pa.py_buffer(data)
        arrays = []
        for name in self.columns:
            if name == "address":
                arrays.append(self._constant(name, self.address, count))
            elif name == "broker":
                arrays.append(self._constant(name, self.broker, count))
            elif name == RAW:
                arrays.append(_raw(buffer, count, 0, payloads_at))
            else:
                assert batch is not None
                array = self._column(batch, name, buffer)
                if name in self._texts:
                    array = _checked(array, name, None)
                elif name == "partition" and self.partition is not None:
                    array = pc.fill_null(array, pa.scalar(self.partition, pa.int32()))
                arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, value: str | int | None, count: int) -> pa.Array:
        """Return a column with the same value in each row."""
        known = self._constants.get((name, value))
        if known is None or len(known) < count:
            kind = TYPES[name]
            known = (
                pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)
            )
            self._constants[name, value] = known
        return known if len(known) == count else known.slice(0, count)

    def _column(self, batch: Batch, name: str, data: pa.Buffer) -> pa.Array:
        """Return a filled column as an array of its type; as binary if it is to be checked."""
        kind = pa.binary() if name in self._texts else self.schema.field(name).type
        return _array(batch, name, data, kind)


def _array(batch: Batch, name: str, data: pa.Buffer, kind: pa.DataType) -> pa.Array:
    text = batch.texts.get(name)
    if text is not None:
        return text_array(text, data, kind)
    number = batch.numbers.get(name)
    if number is not None:
        return integers(number, kind)
    boolean = batch.booleans.get(name)
    if boolean is not None:
        return booleans(boolean)
    if pa.types.is_list(kind):
        return entries_array(batch.maps[name], data, kind)
    return map_array(batch.maps[name], data, kind)


def _checked(array: pa.Array, name: str, offsets: pa.Array | None) -> pa.Array:
    """Return a column of binary as strings. Raises `TextError` if a value is not UTF-8."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        row = next(row for row, value in enumerate(array) if not _is_utf8(value.as_py()))
        raise TextError(name, row, None if offsets is None else offsets[row].as_py()) from None


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _offsets(chunk: Chunk, buffer: pa.Buffer) -> pa.Array:
    count = int(chunk.count)
    if chunk.offsets_at >= 0:
        values = buffer.slice(chunk.offsets_at, 8 * count)
    else:
        values = pa.py_buffer(offsets(chunk.first, count))
    return pa.Array.from_buffers(pa.int64(), count, [None, values], null_count=0)


def _raw(buffer: pa.Buffer, count: int, ends_at: int, payloads_at: int) -> pa.Array:
    """Return the payloads without copying them."""
    ends = buffer.slice(ends_at, 4 * (count + 1))
    return pa.Array.from_buffers(
        pa.binary(), count, [None, ends, buffer.slice(payloads_at)], null_count=0
    )
