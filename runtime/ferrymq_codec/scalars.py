"""Python values that remember their AMQP type where no field declares one (AMQP 1.0 §1.6).

In an untyped place `int` stands for long, `float` for double, `str` for string and `Decimal` for
decimal128. The classes here stand for the other types; each is a subclass of the builtin that it
resembles, so reading code may ignore the difference. They are interpreted even in a compiled
build, because they derive from builtins.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import ClassVar, Self

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class _Integer(int):
    """An int whose range is that of one AMQP type."""

    __slots__ = ()
    _minimum: ClassVar[int]
    _maximum: ClassVar[int]

    def __new__(cls, value: int) -> Self:
        """Check the range; raises ValueError outside it."""
        if not cls._minimum <= value <= cls._maximum:
            raise ValueError(
                f"{value} is out of range for {cls.__name__}: {cls._minimum} to {cls._maximum}"
            )
        return int.__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    def __str__(self) -> str:
        return int.__repr__(self)


class UByte(_Integer):
    """A ubyte: 0 to 255 (AMQP 1.0 §1.6.3)."""

    __slots__ = ()
    _minimum, _maximum = 0, (1 << 8) - 1


class UShort(_Integer):
    """A ushort: 0 to 65 535 (AMQP 1.0 §1.6.4)."""

    __slots__ = ()
    _minimum, _maximum = 0, (1 << 16) - 1


class UInt(_Integer):
    """A uint: 0 to 2**32 - 1 (AMQP 1.0 §1.6.5)."""

    __slots__ = ()
    _minimum, _maximum = 0, (1 << 32) - 1


class ULong(_Integer):
    """A ulong: 0 to 2**64 - 1 (AMQP 1.0 §1.6.6)."""

    __slots__ = ()
    _minimum, _maximum = 0, (1 << 64) - 1


class Byte(_Integer):
    """A byte: -128 to 127 (AMQP 1.0 §1.6.7)."""

    __slots__ = ()
    _minimum, _maximum = -(1 << 7), (1 << 7) - 1


class Short(_Integer):
    """A short: -32 768 to 32 767 (AMQP 1.0 §1.6.8)."""

    __slots__ = ()
    _minimum, _maximum = -(1 << 15), (1 << 15) - 1


class Int(_Integer):
    """An int of 32 bits: -2**31 to 2**31 - 1 (AMQP 1.0 §1.6.9)."""

    __slots__ = ()
    _minimum, _maximum = -(1 << 31), (1 << 31) - 1


class Timestamp(_Integer):
    """Milliseconds since the Unix epoch, signed 64 bits (AMQP 1.0 §1.6.17)."""

    __slots__ = ()
    _minimum, _maximum = -(1 << 63), (1 << 63) - 1

    @classmethod
    def from_datetime(cls, value: datetime) -> Self:
        """Convert an aware datetime, rounding down; raises ValueError for a naive one."""
        if value.utcoffset() is None:
            raise ValueError("a datetime needs a time zone to become a timestamp")
        return cls((value - _EPOCH) // _MILLISECOND)

    def to_datetime(self) -> datetime:
        """Return an aware datetime in UTC; raises OverflowError outside the years 1 to 9999."""
        return _EPOCH + timedelta(milliseconds=int(self))


class Float32(float):
    """A float: rounded to IEEE 754 binary32 when it is made (AMQP 1.0 §1.6.11).

    Raises ValueError for a finite number too large for binary32.
    """

    __slots__ = ()

    def __new__(cls, value: float) -> Self:
        """Round to binary32. A NaN stays as it is: rounding would quieten it."""
        if value != value:
            return float.__new__(cls, value)
        try:
            rounded: float = struct.unpack(">f", struct.pack(">f", value))[0]
        except OverflowError:
            raise ValueError(f"{value} is out of range for Float32") from None
        return float.__new__(cls, rounded)

    def __repr__(self) -> str:
        return f"Float32({float.__repr__(self)})"

    def __str__(self) -> str:
        return float.__repr__(self)


class Decimal32(Decimal):
    """A decimal32: up to 7 digits (AMQP 1.0 §1.6.13). Whether it fits is checked on encoding."""

    __slots__ = ()


class Decimal64(Decimal):
    """A decimal64: up to 16 digits (AMQP 1.0 §1.6.14). Whether it fits is checked on encoding."""

    __slots__ = ()


class Char(str):
    """A char: one Unicode scalar value (AMQP 1.0 §1.6.16); raises ValueError for anything else."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Check that `value` is one character and not a surrogate."""
        if len(value) != 1 or "\ud800" <= value <= "\udfff":
            raise ValueError(f"{value!r} is not one Unicode character")
        return str.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"

    def __str__(self) -> str:
        return str.__str__(self)


class Symbol(str):
    """A symbol: a str of ASCII characters (AMQP 1.0 §1.6.21); raises ValueError for others."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Check that `value` is ASCII."""
        if not value.isascii():
            raise ValueError(f"{value!r} is not ASCII")
        return str.__new__(cls, value)

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"

    def __str__(self) -> str:
        return str.__str__(self)


def equal_values(a: object, b: object) -> bool:
    """Return whether two values are equal on the wire, where the order of a map counts (§1.6.23).

    Python compares plain dicts without regard to order.
    """
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and len(a) == len(b)
            and all(
                equal_values(key, other) and equal_values(a[key], b[other])
                for key, other in zip(a, b, strict=True)
            )
        )
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return (
            isinstance(a, list) == isinstance(b, list)
            and len(a) == len(b)
            and all(equal_values(one, other) for one, other in zip(a, b, strict=True))
        )
    return a is b or bool(a == b)


class Described:
    """A value with the descriptor that defines its meaning.

    A plain int or str given as `descriptor` becomes ULong or Symbol, the two kinds of descriptor in
    use; descriptors of other types are reserved, but survive a round trip. Treat as immutable.
    Raises ValueError for an int outside ulong or a str outside ASCII.
    """

    __slots__ = ("descriptor", "value")
    __match_args__ = ("descriptor", "value")

    descriptor: object
    value: object

    def __init__(self, descriptor: object, value: object) -> None:
        if type(descriptor) is int:
            descriptor = ULong(descriptor)
        elif type(descriptor) is str:
            descriptor = Symbol(descriptor)
        self.descriptor = descriptor
        self.value = value

    @classmethod
    def reserved(cls, descriptor: object, value: object) -> Described:
        """Make a described value whose descriptor keeps exactly its type, for example long."""
        described = cls(None, value)
        described.descriptor = descriptor
        return described

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return equal_values(self.descriptor, other.descriptor) and equal_values(
            self.value, other.value
        )

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"
