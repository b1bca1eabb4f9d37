"""Reads primitive values out of a byte buffer, one method for each type (AMQP 1.0 §1.6).

Every method accepts all legal encodings of its type and nothing else. Nothing is allocated before
the size it needs has been checked against the bytes that remain. After a DecodeError the Reader's
position is undefined: drop it, or reset it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, final
from uuid import UUID

from librt.strings import read_f64_be, read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from ferrymq_codec import codes
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.floats import read_float32
from ferrymq_codec.limits import (
    MAX_CACHED_SYMBOL_LENGTH,
    MAX_CACHED_SYMBOLS,
    MAX_DEPTH,
    MAX_ELEMENTS,
)

if TYPE_CHECKING:
    from ferrymq_codec.described_types import DescribedTypes

U32: Final = 0xFFFFFFFF
_symbols: Final[dict[bytes, str]] = {}


@final
class Reader:
    """A position in `data`, bounded by `end` (both in bytes), with the limits spent so far.

    `depth` counts the containers that are open, `budget` the untyped elements that may still be
    decoded, `symbol` holds the text of the last symbolic descriptor. `converted` is true once a
    string was read in place of a symbol, as the key of a map. `types` are the described types that
    become instances of their classes where any value may be; the others become `Described`. Without
    `end` the Reader covers all of `data`. Raises ValueError if the bounds lie outside `data`.
    """

    __slots__ = ("budget", "converted", "data", "depth", "end", "pos", "symbol", "types")

    def __init__(self, data: bytes, pos: i64 = 0, end: i64 = -1) -> None:
        size: i64 = len(data)
        if end < 0:
            end = size
        if pos < 0 or pos > end or end > size:
            raise ValueError("the bounds lie outside the data")
        self.data: bytes = data
        self.pos: i64 = pos
        self.end: i64 = end
        self.depth: i64 = 0
        self.budget: i64 = MAX_ELEMENTS
        self.converted: bool = False
        self.symbol: str = ""
        self.types: DescribedTypes | None = None

    def reset(self, data: bytes, pos: i64, end: i64) -> None:
        """Start again on other bytes, with all limits restored; bounds as in the constructor."""
        if pos < 0 or pos > end or end > len(data):
            raise ValueError("the bounds lie outside the data")
        self.data = data
        self.pos = pos
        self.end = end
        self.depth = 0
        self.budget = MAX_ELEMENTS
        self.converted = False
        self.symbol = ""

    # ── Errors and limits ──────────────────────────────────────────────────────────────────────

    def fail(self, field: str, reason: str) -> NoReturn:
        """Raise DecodeError at the current position."""
        raise DecodeError(self.pos, field, reason)

    def unexpected(self, field: str, wanted: str) -> NoReturn:
        """Raise DecodeError because no whole `wanted` starts at the current position."""
        pos = self.pos
        if pos < self.end:
            code: int = self.data[pos]
            if codes.TYPE_NAMES.get(code) != wanted:
                self.fail(field, f"expected {wanted}, found {codes.describe_code(code)}")
        self.fail(field, f"truncated {wanted}")

    def charge(self, cost: i64, field: str) -> None:
        """Spend `cost` elements of the budget; raises DecodeError when it is exhausted."""
        if cost > self.budget:
            self.fail(field, "too many elements")
        self.budget -= cost

    def remaining(self) -> i64:
        """Return the number of bytes between the position and `end`."""
        return self.end - self.pos

    def finish(self, field: str) -> None:
        """Raise DecodeError if bytes are left."""
        if self.pos != self.end:
            self.fail(field, f"{self.end - self.pos} bytes follow the value")

    # ── Constructors ───────────────────────────────────────────────────────────────────────────

    def take_null(self) -> bool:
        """Consume a null if it is next, and return whether it was (AMQP 1.0 §1.6.1)."""
        pos = self.pos
        if pos < self.end and self.data[pos] == codes.NULL:
            self.pos = pos + 1
            return True
        return False

    def peek_code(self, field: str) -> i64:
        """Return the next constructor code without consuming it."""
        pos = self.pos
        if pos >= self.end:
            self.fail(field, "truncated")
        return self.data[pos]

    def read_descriptor(self, field: str) -> i64:
        """Consume 0x00 and a descriptor (AMQP 1.0 §1.2), and return its numeric code.

        Returns -1 for a symbolic descriptor, whose text is then in `symbol`. Returns -2 for a code
        above 2**63 - 1 and for a descriptor of a reserved type: no known type has one.
        """
        pos = self.pos
        data = self.data
        if pos + 2 > self.end or data[pos] != codes.DESCRIBED:
            if pos < self.end and data[pos] != codes.DESCRIBED:
                found = codes.describe_code(data[pos])
                self.fail(field, f"expected a described value, found {found}")
            self.fail(field, "truncated descriptor")
        code: i64 = data[pos + 1]
        if code == codes.SMALL_ULONG:
            if pos + 3 > self.end:
                self.fail(field, "truncated descriptor")
            self.pos = pos + 3
            return data[pos + 2]
        self.pos = pos + 1
        if code == codes.ULONG:
            if pos + 10 > self.end:
                self.fail(field, "truncated descriptor")
            self.pos = pos + 10
            number = read_i64_be(data, pos + 2)
            return number if number >= 0 else -2
        if code == codes.ULONG0:
            self.pos = pos + 2
            return 0
        if code == codes.SYMBOL8 or code == codes.SYMBOL32:
            self.symbol = self.read_symbol(field)
            return -1
        self.skip_value(field)
        return -2

    # ── Fixed width ────────────────────────────────────────────────────────────────────────────

    def read_boolean(self, field: str) -> bool:
        """Read a boolean (AMQP 1.0 §1.6.2)."""
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            if code == codes.TRUE:
                self.pos = pos + 1
                return True
            if code == codes.FALSE:
                self.pos = pos + 1
                return False
            if code == codes.BOOLEAN and pos + 2 <= self.end:
                value: i64 = self.data[pos + 1]
                if value > 1:
                    self.fail(field, f"boolean byte 0x{value:02x} is neither 0 nor 1")
                self.pos = pos + 2
                return value == 1
        self.unexpected(field, "boolean")

    def read_ubyte(self, field: str) -> i64:
        """Read a ubyte (AMQP 1.0 §1.6.3)."""
        pos = self.pos
        if pos + 2 <= self.end and self.data[pos] == codes.UBYTE:
            self.pos = pos + 2
            return self.data[pos + 1]
        self.unexpected(field, "ubyte")

    def read_ushort(self, field: str) -> i64:
        """Read a ushort (AMQP 1.0 §1.6.4)."""
        pos = self.pos
        if pos + 3 <= self.end and self.data[pos] == codes.USHORT:
            self.pos = pos + 3
            return i64(read_i16_be(self.data, pos + 1)) & 0xFFFF
        self.unexpected(field, "ushort")

    def read_uint(self, field: str) -> i64:
        """Read a uint (AMQP 1.0 §1.6.5)."""
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            if code == codes.SMALL_UINT and pos + 2 <= self.end:
                self.pos = pos + 2
                return self.data[pos + 1]
            if code == codes.UINT0:
                self.pos = pos + 1
                return 0
            if code == codes.UINT and pos + 5 <= self.end:
                self.pos = pos + 5
                return i64(read_i32_be(self.data, pos + 1)) & U32
        self.unexpected(field, "uint")

    def read_ulong(self, field: str) -> int:
        """Read a ulong, up to 2**64 - 1 (AMQP 1.0 §1.6.6)."""
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            if code == codes.SMALL_ULONG and pos + 2 <= self.end:
                self.pos = pos + 2
                return self.data[pos + 1]
            if code == codes.ULONG0:
                self.pos = pos + 1
                return 0
            if code == codes.ULONG and pos + 9 <= self.end:
                self.pos = pos + 9
                value = read_i64_be(self.data, pos + 1)
                if value >= 0:
                    return value
                return int(value) + (1 << 64)
        self.unexpected(field, "ulong")

    def read_byte(self, field: str) -> i64:
        """Read a byte (AMQP 1.0 §1.6.7)."""
        pos = self.pos
        if pos + 2 <= self.end and self.data[pos] == codes.BYTE:
            self.pos = pos + 2
            return self._signed(pos + 1)
        self.unexpected(field, "byte")

    def read_short(self, field: str) -> i64:
        """Read a short (AMQP 1.0 §1.6.8)."""
        pos = self.pos
        if pos + 3 <= self.end and self.data[pos] == codes.SHORT:
            self.pos = pos + 3
            return i64(read_i16_be(self.data, pos + 1))
        self.unexpected(field, "short")

    def read_int(self, field: str) -> i64:
        """Read an int (AMQP 1.0 §1.6.9)."""
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            if code == codes.SMALL_INT and pos + 2 <= self.end:
                self.pos = pos + 2
                return self._signed(pos + 1)
            if code == codes.INT and pos + 5 <= self.end:
                self.pos = pos + 5
                return i64(read_i32_be(self.data, pos + 1))
        self.unexpected(field, "int")

    def read_long(self, field: str) -> i64:
        """Read a long (AMQP 1.0 §1.6.10)."""
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            if code == codes.SMALL_LONG and pos + 2 <= self.end:
                self.pos = pos + 2
                return self._signed(pos + 1)
            if code == codes.LONG and pos + 9 <= self.end:
                self.pos = pos + 9
                return read_i64_be(self.data, pos + 1)
        self.unexpected(field, "long")

    def read_float(self, field: str) -> float:
        """Read a float, an IEEE 754 binary32 (AMQP 1.0 §1.6.11)."""
        pos = self.pos
        if pos + 5 <= self.end and self.data[pos] == codes.FLOAT:
            self.pos = pos + 5
            return read_float32(self.data, pos + 1)
        self.unexpected(field, "float")

    def read_double(self, field: str) -> float:
        """Read a double, an IEEE 754 binary64 (AMQP 1.0 §1.6.12)."""
        pos = self.pos
        if pos + 9 <= self.end and self.data[pos] == codes.DOUBLE:
            self.pos = pos + 9
            return read_f64_be(self.data, pos + 1)
        self.unexpected(field, "double")

    def read_char(self, field: str) -> str:
        """Read a char: one Unicode scalar value, hence no surrogate (AMQP 1.0 §1.6.16)."""
        pos = self.pos
        if pos + 5 <= self.end and self.data[pos] == codes.CHAR:
            point = i64(read_i32_be(self.data, pos + 1)) & U32
            if point > 0x10FFFF or (0xD800 <= point <= 0xDFFF):
                self.fail(field, f"0x{point:x} is not a Unicode character")
            self.pos = pos + 5
            return chr(point)
        self.unexpected(field, "char")

    def read_timestamp(self, field: str) -> i64:
        """Read a timestamp: milliseconds since the Unix epoch (AMQP 1.0 §1.6.17)."""
        pos = self.pos
        if pos + 9 <= self.end and self.data[pos] == codes.TIMESTAMP:
            self.pos = pos + 9
            return read_i64_be(self.data, pos + 1)
        self.unexpected(field, "timestamp")

    def read_uuid(self, field: str) -> UUID:
        """Read a uuid (AMQP 1.0 §1.6.18)."""
        pos = self.pos
        if pos + 17 <= self.end and self.data[pos] == codes.UUID:
            self.pos = pos + 17
            return UUID(bytes=self.data[pos + 1 : pos + 17])
        self.unexpected(field, "uuid")

    def _signed(self, pos: i64) -> i64:
        value: i64 = self.data[pos]
        return value if value < 128 else value - 256

    # ── Variable width ─────────────────────────────────────────────────────────────────────────

    def read_binary(self, field: str) -> bytes:
        """Read a binary (AMQP 1.0 §1.6.19)."""
        size = self._enter_variable(codes.BINARY8, codes.BINARY32, field, "binary")
        start = self.pos
        self.pos = start + size
        return self.data[start : start + size]

    def read_string(self, field: str) -> str:
        """Read a string, which is UTF-8 on the wire (AMQP 1.0 §1.6.20)."""
        size = self._enter_variable(codes.STRING8, codes.STRING32, field, "string")
        start = self.pos
        text = self.data[start : start + size]
        self.pos = start + size
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(field, "string is not UTF-8")

    def read_symbol(self, field: str) -> str:
        """Read a symbol, which is ASCII on the wire, as a plain str (AMQP 1.0 §1.6.21)."""
        size = self._enter_variable(codes.SYMBOL8, codes.SYMBOL32, field, "symbol")
        start = self.pos
        text = self.data[start : start + size]
        self.pos = start + size
        return self.intern_symbol(text, field)

    def read_symbol_key(self, field: str) -> str:
        """Read the key of a map whose keys are symbols; an ASCII string is read as a symbol.

        Some clients write strings there; `converted` is true then.
        """
        pos = self.pos
        if pos < self.end and (self.data[pos] == codes.STRING8 or self.data[pos] == codes.STRING32):
            size = self._enter_variable(codes.STRING8, codes.STRING32, field, "string")
            start = self.pos
            self.pos = start + size
            self.converted = True
            return self.intern_symbol(self.data[start : start + size], field)
        return self.read_symbol(field)

    def intern_symbol(self, text: bytes, field: str) -> str:
        """Decode the bytes of a symbol, or return its text from the cache; short symbols are
        cached."""
        known = _symbols.get(text)
        if known is not None:
            return known
        try:
            symbol = text.decode("ascii")
        except UnicodeDecodeError:
            self.fail(field, "symbol is not ASCII")
        if len(text) <= MAX_CACHED_SYMBOL_LENGTH:
            if len(_symbols) >= MAX_CACHED_SYMBOLS:
                _symbols.clear()
            _symbols[text] = symbol
        return symbol

    def _enter_variable(self, narrow: i64, wide: i64, field: str, wanted: str) -> i64:
        # Move to the first byte of the content, after checking that all of the content is there.
        pos = self.pos
        if pos + 2 > self.end:
            self.unexpected(field, wanted)
        code: i64 = self.data[pos]
        size: i64
        if code == narrow:
            size = self.data[pos + 1]
            pos += 2
        elif code == wide and pos + 5 <= self.end:
            size = i64(read_i32_be(self.data, pos + 1)) & U32
            pos += 5
        else:
            self.unexpected(field, wanted)
        if size > self.end - pos:
            self.fail(field, f"{wanted} of {size} bytes, only {self.end - pos} are left")
        self.pos = pos
        return size

    # ── Compound ───────────────────────────────────────────────────────────────────────────────

    def enter_list(self, field: str) -> i64:
        """Open a list and return its element count (AMQP 1.0 §1.6.22).

        Narrows `end` to the end of the list; call `leave` with the previous `end` after the last
        element.
        """
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            self.pos = pos + 1
            if code == codes.LIST8:
                return self.enter_narrow(field)
            if code == codes.LIST0:
                if self.depth >= MAX_DEPTH:
                    self.fail(field, "nested too deeply")
                self.depth += 1
                self.end = pos + 1
                return 0
            if code == codes.LIST32:
                return self.enter_wide(field)
            self.pos = pos
        self.unexpected(field, "list")

    def enter_map(self, field: str) -> i64:
        """Open a map and return the count of its keys and values together, which is even.

        AMQP 1.0 §1.6.23. `end` behaves as for `enter_list`.
        """
        pos = self.pos
        if pos < self.end:
            code: i64 = self.data[pos]
            if code == codes.MAP8 or code == codes.MAP32:
                self.pos = pos + 1
                count = self.enter_narrow(field) if code == codes.MAP8 else self.enter_wide(field)
                if count & 1 != 0:
                    self.fail(field, f"map of {count} items: a key has no value")
                return count
        self.unexpected(field, "map")

    def enter_narrow(self, field: str) -> i64:
        """Open a compound value whose constructor has been read and whose sizes are one byte."""
        pos = self.pos
        if pos + 2 > self.end:
            self.fail(field, "truncated size")
        size: i64 = self.data[pos]
        count: i64 = self.data[pos + 1]
        limit = pos + 1 + size
        if size < 1 or limit > self.end:
            self.fail(field, f"size {size} does not fit the {self.end - pos - 1} bytes left")
        if count > size - 1:
            self.fail(field, f"count {count} exceeds the {size - 1} bytes of content")
        if self.depth >= MAX_DEPTH:
            self.fail(field, "nested too deeply")
        self.depth += 1
        self.pos = pos + 2
        self.end = limit
        return count

    def enter_wide(self, field: str) -> i64:
        """Open a compound value whose constructor has been read and whose sizes are four bytes."""
        pos = self.pos
        if pos + 8 > self.end:
            self.fail(field, "truncated size")
        size = i64(read_i32_be(self.data, pos)) & U32
        count = i64(read_i32_be(self.data, pos + 4)) & U32
        limit = pos + 4 + size
        if size < 4 or limit > self.end:
            self.fail(field, f"size {size} does not fit the {self.end - pos - 4} bytes left")
        if count > size - 4:
            self.fail(field, f"count {count} exceeds the {size - 4} bytes of content")
        if self.depth >= MAX_DEPTH:
            self.fail(field, "nested too deeply")
        self.depth += 1
        self.pos = pos + 8
        self.end = limit
        return count

    def skip_appended(self, count: i64, known: i64, field: str) -> None:
        """Skip the fields of a composite after the `known` ones, which must all be null.

        Trailing nulls may be written or left out (AMQP 1.0 §1.4), so they have no meaning. Raises
        DecodeError for any other value, because its meaning is unknown.
        """
        left = count - known
        while left > 0:
            if not self.take_null():
                reason = f"field {count - left + 1} is not null, and only {known} are known"
                self.fail(field, f"has {count} fields, not at most {known}: {reason}")
            left -= 1

    def leave(self, outer_end: i64, field: str) -> None:
        """Close a list or map: its content must end here. `outer_end` is the `end` around it."""
        if self.pos != self.end:
            self.fail(field, f"{self.end - self.pos} bytes are left after the last element")
        self.end = outer_end
        self.depth -= 1

    # ── Skipping ───────────────────────────────────────────────────────────────────────────────

    def skip_value(self, field: str) -> None:
        """Skip one value of any type; a compound value is skipped by its stated size.

        Checks constructors and sizes, but not the content of a compound value.
        """
        wanted: i64 = 1
        nested: i64 = 0
        while wanted > 0:
            wanted -= 1
            pos = self.pos
            if pos >= self.end:
                self.fail(field, "truncated")
            code: i64 = self.data[pos]
            if code == codes.DESCRIBED:
                nested += 1
                if nested > MAX_DEPTH:
                    self.fail(field, "nested too deeply")
                # A descriptor and the value it describes.
                wanted += 2
                self.pos = pos + 1
                continue
            if code not in codes.TYPE_NAMES:
                self.fail(field, f"0x{code:02x} is not a constructor")
            size: i64
            if code < codes.VARIABLE_1:
                size = 1 if code < codes.FIXED_1 else 1 + (1 << ((code - codes.FIXED_1) >> 4))
            elif code & codes.WIDER == 0:
                if pos + 2 > self.end:
                    self.fail(field, "truncated size")
                size = 2 + i64(self.data[pos + 1])
            else:
                if pos + 5 > self.end:
                    self.fail(field, "truncated size")
                size = 5 + (i64(read_i32_be(self.data, pos + 1)) & U32)
            if size > self.end - pos:
                self.fail(field, f"value of {size} bytes, only {self.end - pos} are left")
            self.pos = pos + size
