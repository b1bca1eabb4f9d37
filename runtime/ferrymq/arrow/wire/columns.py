"""Columns while rows are added to them: buffers as Arrow has them, filled from left to right.

Texts are views, as Arrow has them for `binary_view`: 16 bytes that say where a value is in the
payloads, so that what is long is copied once, by Arrow. What has no bytes of its own in the
payloads is rendered into a buffer beside them.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from ferrymq_codec.errors import DecodeError

# The longest value that its view contains completely.
_INLINE: Final = 12
_ZEROS: Final = bytes(_INLINE)
_ALL: Final = b"\xff"

# Limit for the text of a value: so many bytes for each byte in its message, some more, and the rest
# of a reserve that all values of a column share.
EXPANSION: Final = 16
_SMALL: Final = 64
_SPARE: Final = 1 << 20


@final
class Bits:
    """Booleans, eight to the byte: the lowest bit is the first."""

    __slots__ = ("count", "_bytes")

    def __init__(self) -> None:
        self.count: i64 = 0
        self._bytes = BytesWriter()

    def put(self, value: bool) -> None:
        """Append a value."""
        at = self.count
        bit: i64 = 1 << (at & 7)
        if at & 7 == 0:
            self._bytes.append(1 if value else 0)
        elif value:
            self._bytes[at >> 3] = u8(i64(self._bytes[at >> 3]) | bit)
        self.count = at + 1

    def fill(self, count: i64) -> None:
        """Append `count` true values to an empty column."""
        self._bytes.write(_ALL * int(count >> 3))
        if count & 7 != 0:
            self._bytes.append(u8((1 << (count & 7)) - 1))
        self.count = count

    def pop(self) -> bool:
        """Remove the last value and return it."""
        at = self.count - 1
        bit: i64 = 1 << (at & 7)
        byte = i64(self._bytes[at >> 3])
        if at & 7 == 0:
            self._bytes.truncate(at >> 3)
        else:
            self._bytes[at >> 3] = u8(byte & (255 - bit))
        self.count = at
        return byte & bit != 0

    def getvalue(self) -> bytes:
        """Return all values as bytes."""
        return self._bytes.getvalue()


@final
class Validity:
    """Bits that say which rows have a value. Uses no memory as long as all rows have one."""

    __slots__ = ("rows", "nulls", "_bits")

    def __init__(self) -> None:
        self.rows: i64 = 0
        self.nulls: i64 = 0
        self._bits: Bits | None = None

    def valid(self) -> None:
        """Append a row with a value."""
        bits = self._bits
        if bits is not None:
            bits.put(True)
        self.rows += 1

    def null(self) -> None:
        """Append a row without a value."""
        bits = self._bits
        if bits is None:
            bits = Bits()
            bits.fill(self.rows)
            self._bits = bits
        bits.put(False)
        self.rows += 1
        self.nulls += 1

    def pop(self) -> None:
        """Remove the last row."""
        bits = self._bits
        if bits is not None and not bits.pop():
            self.nulls -= 1
        self.rows -= 1

    def getvalue(self) -> bytes | None:
        """Return the bits; None if every row has a value."""
        bits = self._bits
        return None if bits is None or self.nulls == 0 else bits.getvalue()


@final
class Texts:
    """Column of strings or bytes: views of `data`, and of the rendered texts.

    Rendered texts have at most `limit` bytes in all; more raises `DecodeError`. In a `verbatim`
    column the value of an AMQP binary is its bytes, else their base64.
    """

    __slots__ = (
        "validity",
        "data",
        "limit",
        "verbatim",
        "_spare",
        "_length",
        "_views",
        "_rendered",
    )

    def __init__(self, data: bytes, limit: i64, verbatim: bool = False) -> None:
        self.validity: Validity = Validity()
        self.data: bytes = data
        self.limit: i64 = limit
        self.verbatim: bool = verbatim
        self._spare: i64 = _SPARE
        self._length: i64 = len(data)
        self._views = BytesWriter()
        self._rendered = BytesWriter()

    def null(self) -> None:
        """Append a row without a value."""
        self._views.write(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
        self.validity.null()

    def view(self, start: i64, size: i64) -> None:
        """Append the `size` bytes of `data` from `start` on, which must exist."""
        w = self._views
        data = self.data
        # The first 8 of the 16 bytes, as a number, and the last ones.
        if size > _INLINE:
            write_i64_le(w, size | i64(read_i32_le(data, start)) << 32)
            write_i64_le(w, start << 32)
        elif start + _INLINE <= self._length:
            write_i64_le(w, size | _word(data, start, size) << 32)
            low = _word(data, start + 4, size - 4) & 0xFFFFFFFF
            write_i64_le(w, low | _word(data, start + 8, size - 8) << 32)
        else:
            write_i32_le(w, i32(size))
            w.write(data[start : start + size])
            w.write(_ZEROS[size:])
        self.validity.valid()

    def text(self, value: bytes) -> None:
        """Append bytes that are not in `data`. Raises `DecodeError` if the limit is exceeded."""
        size: i64 = len(value)
        if size > _INLINE:
            mark = self.open()
            self._rendered.write(value)
            self.close(mark)
            return
        w = self._views
        write_i32_le(w, i32(size))
        w.write(value)
        if size < _INLINE:
            w.write(_ZEROS[size:])
        self.validity.valid()

    def room(self, size: i64) -> i64:
        """Return how long the text of a value may be that has so many bytes in its message: its own
        share, which no other value uses, and the shared reserve."""
        return EXPANSION * size + _SMALL + self._spare

    def spend(self, size: i64, length: i64) -> None:
        """Charge a text of this length for a value of so many bytes; also for a text that was given
        up."""
        extra = length - EXPANSION * size - _SMALL
        if extra > 0:
            self._spare = self._spare - extra if extra < self._spare else 0

    def open(self) -> i64:
        """Begin a value made of parts: call `part` for each, then `close` with the returned
        mark."""
        return len(self._rendered)

    def part(self, start: i64, size: i64) -> None:
        """Add the next part: `size` bytes of `data` from `start` on."""
        self._rendered.write(self.data[start : start + size])

    def close(self, mark: i64) -> None:
        """End a value that was begun with `open`."""
        size: i64 = len(self._rendered) - mark
        if mark + size > self.limit:
            self._rendered.truncate(mark)
            raise DecodeError(mark, "columns", f"texts of more than {self.limit} bytes")
        w = self._views
        write_i32_le(w, i32(size))
        if size > _INLINE:
            i: i64 = 0
            while i < 4:
                w.append(self._rendered[mark + i])
                i += 1
            write_i32_le(w, 1)
            write_i32_le(w, i32(mark))
        else:
            i = 0
            while i < size:
                w.append(self._rendered[mark + i])
                i += 1
            w.write(_ZEROS[size:])
            self._rendered.truncate(mark)
        self.validity.valid()

    def number(self, value: i64) -> None:
        """Append the decimal digits of a number with at most 12 characters."""
        if value > 999_999_999_999 or value < -99_999_999_999:
            self.text(str(value).encode())
            return
        rest = value if value >= 0 else -value
        digits: i64 = 1
        limit: i64 = 10
        while rest >= limit:
            digits += 1
            limit *= 10
        size = digits if value >= 0 else digits + 1
        w = self._views
        write_i32_le(w, i32(size))
        at: i64 = len(w)
        w.write(_ZEROS)
        if value < 0:
            w[at] = 45
        at += size
        while digits > 0:
            digits -= 1
            at -= 1
            w[at] = u8(48 + rest % 10)
            rest //= 10
        self.validity.valid()

    def pop(self) -> None:
        """Remove the last row."""
        self.validity.pop()
        self._views.truncate(self.validity.rows * 16)

    def views(self) -> bytes:
        """Return the views: 16 bytes a row."""
        return self._views.getvalue()

    def rendered(self) -> bytes:
        """Return the second buffer, number 1, which has the rendered texts of the views."""
        return self._rendered.getvalue()


@final
class Numbers:
    """A column of integers of 64 bits."""

    __slots__ = ("validity", "_values")

    def __init__(self) -> None:
        self.validity: Validity = Validity()
        self._values = BytesWriter()

    def null(self) -> None:
        """Append a row without a value."""
        write_i64_le(self._values, 0)
        self.validity.null()

    def put(self, value: i64) -> None:
        """Append a value."""
        write_i64_le(self._values, value)
        self.validity.valid()

    def pop(self) -> None:
        """Remove the last row."""
        self.validity.pop()
        self._values.truncate(self.validity.rows * 8)

    def values(self) -> bytes:
        """Return the values: 8 bytes a row."""
        return self._values.getvalue()


@final
class Booleans:
    """A column of booleans."""

    __slots__ = ("validity", "_values")

    def __init__(self) -> None:
        self.validity: Validity = Validity()
        self._values = Bits()

    def null(self) -> None:
        """Append a row without a value."""
        self._values.put(False)
        self.validity.null()

    def put(self, value: bool) -> None:
        """Append a value."""
        self._values.put(value)
        self.validity.valid()

    def pop(self) -> None:
        """Remove the last row."""
        self.validity.pop()
        self._values.pop()

    def values(self) -> bytes:
        """Return the values: a bit a row."""
        return self._values.getvalue()


@final
class Maps:
    """A column of maps from strings to strings: `keys` and `items` have the entries of all rows.

    Add entries to both, then `close` the row. With `verbatim` items are bytes: see `Texts`.
    """

    __slots__ = ("validity", "keys", "items", "_ends", "_last")

    def __init__(self, data: bytes, limit: i64, verbatim: bool = False) -> None:
        self.validity: Validity = Validity()
        self.keys: Texts = Texts(data, limit)
        self.items: Texts = Texts(data, limit, verbatim)
        self._ends = BytesWriter()
        self._last: i64 = 0
        write_i32_le(self._ends, 0)

    def null(self) -> None:
        """Append a row without a map; entries that were added for it are removed."""
        self.drop()
        write_i32_le(self._ends, i32(self._last))
        self.validity.null()

    def close(self) -> None:
        """Complete a row with the entries added since the last one."""
        self._last = self.items.validity.rows
        write_i32_le(self._ends, i32(self._last))
        self.validity.valid()

    def drop(self) -> None:
        """Remove the entries added since the last row."""
        last = self._last
        while self.keys.validity.rows > last:
            self.keys.pop()
        while self.items.validity.rows > last:
            self.items.pop()

    def pop(self) -> None:
        """Remove the last row, and the entries added since."""
        self.validity.pop()
        rows = self.validity.rows
        self._ends.truncate(4 * (rows + 1))
        at = 4 * rows
        self._last = (
            i64(self._ends[at])
            | i64(self._ends[at + 1]) << 8
            | i64(self._ends[at + 2]) << 16
            | i64(self._ends[at + 3]) << 24
        )
        self.drop()

    def ends(self) -> bytes:
        """Return where the entries of each row begin, and where those of the last row end: 4 bytes
        each."""
        return self._ends.getvalue()


def _word(data: bytes, at: i64, size: i64) -> i64:
    """Return the first `size` of four bytes as a number with a sign; the others count as zero."""
    if size <= 0:
        return 0
    word = i64(read_i32_le(data, at))
    return word if size >= 4 else word & ((1 << (size << 3)) - 1)
