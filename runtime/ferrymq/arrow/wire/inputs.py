"""Input columns: the buffers of Arrow, cut to the rows of the batch."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter, read_i32_le, read_i64_le
from mypy_extensions import i32, i64, u8

from ferrymq_codec import codes
from ferrymq_codec.compound import write_u32


@final
class BitInput:
    """Bits, eight to the byte, of which the first is number `first`."""

    __slots__ = ("_bits", "_first")

    def __init__(self, bits: bytes, first: i64) -> None:
        self._bits = bits
        self._first: i64 = first

    def get(self, row: i64) -> bool:
        """Return the bit of a row."""
        at = self._first + row
        return i64(self._bits[at >> 3]) >> (at & 7) & 1 == 1


@final
class TextInput:
    """Strings or binary: `ends` has the positions of the values in `data`, counted from `base`.

    `valid` says which rows have a value; None if all have. In a `mixed` column some values are not
    UTF-8: written as strings, these become AMQP binaries.
    """

    __slots__ = ("valid", "data", "mixed", "_ends", "_base")

    def __init__(
        self, valid: BitInput | None, ends: bytes, data: bytes, base: i64, mixed: bool = False
    ) -> None:
        self.valid: BitInput | None = valid
        self.data: bytes = data
        self.mixed: bool = mixed
        self._ends = ends
        self._base: i64 = base

    def has(self, row: i64) -> bool:
        """Return whether the row has a value."""
        valid = self.valid
        return valid is None or valid.get(row)

    def start(self, row: i64) -> i64:
        """Return the position at which the value of a row begins in `data`."""
        return i64(read_i32_le(self._ends, row * 4)) - self._base

    def end(self, row: i64) -> i64:
        """Return the position at which the value of a row ends in `data`."""
        return i64(read_i32_le(self._ends, row * 4 + 4)) - self._base

    def get(self, row: i64) -> bytes:
        """Return the value of a row that has one."""
        return self.data[self.start(row) : self.end(row)]

    def write(self, w: BytesWriter, row: i64, narrow: u8) -> None:
        """Write the value of a row that has one, with the constructor `narrow` or the wide one."""
        start = self.start(row)
        end = self.end(row)
        size = end - start
        if self.mixed and narrow == codes.STRING8 and not _is_utf8(self.data[start:end]):
            narrow = codes.BINARY8
        if size < 256:
            w.append(narrow)
            w.append(u8(size))
        else:
            w.append(narrow + codes.WIDER)
            write_u32(w, size)
        w.write(self.data[start:end])


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@final
class NumberInput:
    """Integers of 64 bits."""

    __slots__ = ("_valid", "_values")

    def __init__(self, valid: BitInput | None, values: bytes) -> None:
        self._valid = valid
        self._values = values

    def has(self, row: i64) -> bool:
        """Return whether the row has a value."""
        valid = self._valid
        return valid is None or valid.get(row)

    def get(self, row: i64) -> i64:
        """Return the value of a row that has one."""
        return read_i64_le(self._values, row * 8)


@final
class BooleanInput:
    """Booleans."""

    __slots__ = ("_valid", "_values")

    def __init__(self, valid: BitInput | None, values: BitInput) -> None:
        self._valid = valid
        self._values = values

    def get(self, row: i64, default: bool) -> bool:
        """Return the value of a row, or the default."""
        valid = self._valid
        return self._values.get(row) if valid is None or valid.get(row) else default


@final
class MapInput:
    """Maps of strings: `ends` has the positions of each row's entries in `keys` and `items`."""

    __slots__ = ("keys", "items", "_valid", "_ends", "_base")

    def __init__(
        self, valid: BitInput | None, ends: bytes, base: i64, keys: TextInput, items: TextInput
    ) -> None:
        self.keys: TextInput = keys
        self.items: TextInput = items
        self._valid = valid
        self._ends = ends
        self._base: i64 = base

    def start(self, row: i64) -> i64:
        """Return the first entry of a row."""
        return i64(read_i32_le(self._ends, row * 4)) - self._base

    def end(self, row: i64) -> i64:
        """Return the entry after the last one of a row; it is the first one if the row has no
        map."""
        valid = self._valid
        if valid is not None and not valid.get(row):
            return self.start(row)
        return i64(read_i32_le(self._ends, row * 4 + 4)) - self._base


def unsigned(value: i64) -> i32:
    """Return the 32 bits of a number from 0 to 2**32 - 1."""
    return i32(value if value < 0x8000_0000 else value - 0x1_0000_0000)
