"""The maps of a message as columns: annotations, application properties, the footer."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from ferrymq.arrow.wire.columns import Maps, Numbers, Texts
from ferrymq.arrow.wire.values import (
    add_text,
    check_ascii,
    check_utf8,
    enter_variable,
    skip,
)
from ferrymq_codec import codes
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Timestamp
from ferrymq_codec.values import read_value

PARTITION_KEY: Final = b"x-opt-partition-key"
PARTITION: Final = b"x-opt-partition"
SEQUENCE_NUMBER: Final = b"x-opt-sequence-number"
OFFSET: Final = b"x-opt-offset"
ENQUEUED_TIME: Final = b"x-opt-enqueued-time"

_POSITION_KEYS: Final = frozenset(
    [PARTITION_KEY, PARTITION, SEQUENCE_NUMBER, OFFSET, ENQUEUED_TIME]
)
# The first byte of each position key, and the range of their lengths.
_X: Final = 120
_SHORTEST: Final = 12
_LONGEST: Final = 21

# The times in ms that are within 64 bits in µs.
_MAX_TIME: Final = 9_223_372_036_854_775
_MAX_PARTITION: Final = 0x7FFF_FFFF
_MAX_OFFSET: Final = 0x7FFF_FFFF_FFFF_FFFF
# Digits of a number that is certainly less than 2**63.
_DIGITS: Final = 18


@final
class EntryPlaces:
    """Columns with the position of a message, filled from its annotations.

    A partition is 0 to 2**31 - 1 and an offset 0 to 2**63 - 1, both integers of any type or decimal
    digits; the sequence number is the offset if the message has one. A time is a timestamp. Any
    other value becomes null.
    """

    __slots__ = ("partition_key", "partition", "offset", "time", "_sequence_number", "_offset")

    def __init__(self) -> None:
        self.partition_key: Texts | None = None
        self.partition: Numbers | None = None
        self.offset: Numbers | None = None
        self.time: Numbers | None = None
        self._sequence_number: i64 = -1
        self._offset: i64 = -1

    def begin(self) -> None:
        """Begin the annotations of the next message."""
        self._sequence_number = -1
        self._offset = -1

    def take(self, r: Reader, name: bytes, field: str) -> None:
        """Read the value of a position key. Raises `DecodeError`."""
        key = self.partition_key
        if key is not None and name == PARTITION_KEY:
            add_text(r, key, field)
            return
        value = read_value(r, field)
        time = self.time
        partition = self.partition
        if name == ENQUEUED_TIME:
            if time is not None and isinstance(value, Timestamp):
                moment = int(value)
                if -_MAX_TIME <= moment <= _MAX_TIME:
                    time.put(moment * 1000)
        elif name == PARTITION:
            number = _number(value)
            if partition is not None and 0 <= number <= _MAX_PARTITION:
                partition.put(number)
        elif name == SEQUENCE_NUMBER:
            self._sequence_number = _number(value)
        elif name == OFFSET:
            self._offset = _number(value)

    def end(self) -> None:
        """Finish the annotations of a message."""
        offset = self._sequence_number if self._sequence_number >= 0 else self._offset
        column = self.offset
        if column is not None and offset >= 0:
            column.put(offset)


def _number(value: object) -> i64:
    """Return a number that is not negative, given as an integer or in digits; -1 for any other
    value."""
    if isinstance(value, str):
        if len(value) <= _DIGITS and value.isascii() and value.isdigit():
            return int(value)
        return -1
    if isinstance(value, (bool, Timestamp)):
        return -1
    if isinstance(value, int):
        return value if 0 <= value <= _MAX_OFFSET else -1
    return -1


def add_properties(r: Reader, column: Maps) -> None:
    """Add application properties (AMQP 1.0 §3.2.5) as a row of the column. Raises `DecodeError`."""
    field = "application-properties"
    outer = r.end
    count = r.enter_map(field)
    r.charge(count, field)
    first = r.pos
    seen: i64 = 0
    twice = False
    i: i64 = 0
    while i < count:
        size = enter_variable(r, codes.STRING8, codes.STRING32, field)
        start = r.pos
        check_utf8(r, start, size, field)
        column.keys.view(start, size)
        bit = _bit(r.data, start, size)
        twice = twice or seen & bit != 0
        seen |= bit
        r.pos = start + size
        code = r.peek_code(field)
        if code >= codes.COMPOUND_1 or code == codes.DESCRIBED or code == codes.LIST0:
            r.fail(field, f"a value is not simple: {codes.describe_code(code)}")
        add_text(r, column.items, field)
        i += 2
    if twice:
        _check_keys(r, first, count, field)
    r.leave(outer, field)
    column.close()


def add_annotations(r: Reader, column: Maps | None, places: EntryPlaces | None, field: str) -> None:
    """Add annotations (AMQP 1.0 §3.2.10) as a row of the column, if given. Raises `DecodeError`.

    With `places` the position keys go there, and not into the column.
    """
    outer = r.end
    count = r.enter_map(field)
    r.charge(count, field)
    if places is not None:
        places.begin()
    data = r.data
    first = r.pos
    seen: i64 = 0
    twice = False
    i: i64 = 0
    while i < count:
        i += 2
        code = r.peek_code(field)
        if code == codes.STRING8 or code == codes.STRING32:
            # The key is read as a symbol, as `read_annotations` does; it may repeat another key.
            twice = True
            size = enter_variable(r, codes.STRING8, codes.STRING32, field)
        elif code == codes.SYMBOL8 or code == codes.SYMBOL32:
            size = enter_variable(r, codes.SYMBOL8, codes.SYMBOL32, field)
        else:
            # Such a key is not in real use, so it is compared with the others by the slow method.
            twice = True
            _add_number(r, column, field)
            continue
        start = r.pos
        check_ascii(r, start, size, field)
        bit = _bit(data, start, size)
        twice = twice or seen & bit != 0
        seen |= bit
        r.pos = start + size
        if places is not None and _SHORTEST <= size <= _LONGEST and i64(data[start]) == _X:
            name = data[start : start + size]
            if name in _POSITION_KEYS:
                places.take(r, name, field)
                continue
        if column is None:
            skip(r, field)
        else:
            column.keys.view(start, size)
            add_text(r, column.items, field)
    if twice:
        _check_keys(r, first, count, field)
    r.leave(outer, field)
    if places is not None:
        places.end()
    if column is not None:
        column.close()


def _add_number(r: Reader, column: Maps | None, field: str) -> None:
    """Add an entry whose key is a ulong."""
    code = r.peek_code(field)
    if code != codes.SMALL_ULONG and code != codes.ULONG and code != codes.ULONG0:
        r.fail(field, f"a key is a symbol or a ulong, not {codes.describe_code(code)}")
    key = r.read_ulong(field)
    if column is None:
        skip(r, field)
    else:
        column.keys.text(str(key).encode("ascii"))
        add_text(r, column.items, field)


def _bit(data: bytes, start: i64, size: i64) -> i64:
    """Return one of 62 bits, the same for the same key."""
    if size == 0:
        return 1
    middle = i64(data[start + size // 2])
    number = size + 3 * i64(data[start]) + 7 * i64(data[start + size - 1]) + 13 * middle
    return 1 << (number % 62)


def _check_keys(r: Reader, first: i64, count: i64, field: str) -> None:
    """Raise `DecodeError` if a map has a repeated key; its first key is at `first`."""
    after = r.pos
    r.pos = first
    seen: set[object] = set()
    i: i64 = 0
    while i < count:
        key: object
        code = r.peek_code(field)
        if code == codes.STRING8 or code == codes.STRING32:
            key = r.read_string(field)
        elif code == codes.SYMBOL8 or code == codes.SYMBOL32:
            key = r.read_symbol(field)
        else:
            key = r.read_ulong(field)
        if key in seen:
            r.fail(field, f"duplicate key {key!r:.80}")
        seen.add(key)
        skip(r, field)
        i += 2
    r.pos = after
