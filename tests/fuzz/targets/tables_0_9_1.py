"""Field tables of AMQP 0-9-1.

Only `DecodeError` may leave the decoder. What it gives can be encoded, and that means the same.
"""

from __future__ import annotations

from decimal import Decimal
from random import Random

from librt.strings import BytesWriter

from ferrymq_codec.errors import DecodeError
from ferrymq_codec.scalars import Byte, Float32, Short, UByte, UInt, UShort
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_codec_0_9_1.tables import read_table, write_table
from ferrymq_codec_0_9_1.timestamps import EpochSeconds
from tests.fuzz.mutation.octets import mutate_octets

_VALUES: tuple[object, ...] = (
    *(True, 1, 1 << 40, 1.5, Decimal("1.25"), "text", b"octets", None, [1, [2]], {"a": {"b": 1}}),
    *(Byte(-1), UByte(1), Short(-1), UShort(1), UInt(1), Float32(0.5)),
    *(EpochSeconds(1), EpochSeconds(1 << 63)),
)


def one(data: bytes) -> None:
    """Decode; if that works, encode and decode again."""
    reader = FieldReader(data)
    try:
        table = read_table(reader, "table")
    except DecodeError as error:
        assert 0 <= error.offset <= len(data), error
        assert error.field == "table"
        return
    assert 4 <= reader.pos <= len(data)
    assert reader.depth == 0
    first = _encoded(table)
    assert _encoded(read_table(FieldReader(first), "table")) == first
    assert len(repr(table)) >= 0


def _encoded(table: dict[str, object]) -> bytes:
    w = BytesWriter()
    write_table(w, table, "table")
    return w.getvalue()


def seeds() -> list[bytes]:
    """A value of every type, alone and together."""
    alone = [_encoded({"k": value}) for value in _VALUES]
    every = _encoded({f"k{i}": value for i, value in enumerate(_VALUES)})
    old = [b"\x00\x00\x00\x05\x01kU\x00\x01", b"\x00\x00\x00\x0b\x01kL" + bytes(8)]
    return [*alone, every, *old, bytes(4)]


def mutate(random: Random, data: bytes) -> bytes:
    """Other octets."""
    return mutate_octets(random, data)
