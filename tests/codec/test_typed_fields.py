"""Reading and writing a place whose type is declared: all encodings of it, and no other type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from librt.strings import BytesWriter

from ferrymq_codec import DecodeError, EncodeError, decimals, reader, writer
from ferrymq_codec.limits import MAX_CACHED_SYMBOLS
from ferrymq_codec.reader import Reader
from tests.codec.support import ITEMS
from tests.codec.test_encodings import LONGER, SHORTEST

UID = UUID(int=7)
TYPES = sorted(ITEMS)


def read(name: str, data: bytes) -> Any:
    r = Reader(data)
    if name.startswith("decimal"):
        value = getattr(decimals, f"read_{name}")(r, "open.field")
    else:
        value = getattr(r, f"read_{name}")("open.field")
    assert r.remaining() == 0
    return value


def write(name: str, value: Any) -> bytes:
    w = BytesWriter()
    module = decimals if name.startswith("decimal") else writer
    getattr(module, f"write_{name}")(w, value, "open.field")
    return w.getvalue()


CODES = {
    "boolean": {0x41, 0x42, 0x56},
    "ubyte": {0x50},
    "ushort": {0x60},
    "uint": {0x43, 0x52, 0x70},
    "ulong": {0x44, 0x53, 0x80},
    "byte": {0x51},
    "short": {0x61},
    "int": {0x54, 0x71},
    "long": {0x55, 0x81},
    "float": {0x72},
    "double": {0x82},
    "decimal32": {0x74},
    "decimal64": {0x84},
    "decimal128": {0x94},
    "char": {0x73},
    "timestamp": {0x83},
    "uuid": {0x98},
    "binary": {0xA0, 0xB0},
    "string": {0xA1, 0xB1},
    "symbol": {0xA3, 0xB3},
}


@pytest.mark.parametrize("name", TYPES)
def test_a_field_accepts_the_encodings_of_its_type_only(name: str) -> None:
    for param in SHORTEST + LONGER:
        data: Any = param.values[0]
        if data[0] in CODES[name]:
            assert read(name, data) == param.values[1], param.id
            continue
        with pytest.raises(DecodeError) as caught:
            read(name, data)
        assert caught.value.field == "open.field", param.id
        assert caught.value.offset == 0, param.id
        assert f"expected {name}" in caught.value.reason, param.id


@pytest.mark.parametrize("name", TYPES)
def test_plain_values_come_out(name: str) -> None:
    plain = {
        "boolean": bool,
        "float": float,
        "double": float,
        "uuid": UUID,
        "binary": bytes,
        **dict.fromkeys(["string", "symbol", "char"], str),
        **dict.fromkeys(["decimal32", "decimal64", "decimal128"], Decimal),
    }
    for param in SHORTEST + LONGER:
        data: bytes = param.values[0]  # type: ignore[attr-defined]
        if data[0] in CODES[name]:
            assert type(read(name, data)) is plain.get(name, int)


@pytest.mark.parametrize("name", TYPES)
def test_truncated_everywhere(name: str) -> None:
    for param in SHORTEST + LONGER:
        data: bytes = param.values[0]  # type: ignore[attr-defined]
        if data[0] in CODES[name]:
            for size in range(len(data)):
                with pytest.raises(DecodeError):
                    read(name, data[:size])


def _round_trip(name: str) -> Callable[[], None]:
    @given(ITEMS[name])
    def check(value: Any) -> None:
        again = read(name, write(name, value))
        if isinstance(value, Decimal):
            assert again.as_tuple() == value.as_tuple()
        else:
            assert again == value or value != value

    return check


@pytest.mark.parametrize("name", TYPES)
def test_round_trip(name: str) -> None:
    _round_trip(name)()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ubyte", -1),
        ("ubyte", 256),
        ("ushort", -1),
        ("ushort", 1 << 16),
        ("uint", -1),
        ("uint", 1 << 32),
        ("ulong", -1),
        ("ulong", 1 << 64),
        ("byte", -129),
        ("byte", 128),
        ("short", -(1 << 15) - 1),
        ("short", 1 << 15),
        ("int", -(1 << 31) - 1),
        ("int", 1 << 31),
        ("long", -(1 << 63) - 1),
        ("long", 1 << 63),
        ("timestamp", 1 << 63),
        ("timestamp", -(1 << 63) - 1),
        ("timestamp", datetime(2020, 1, 1)),
        ("uint", 10**40),
        ("float", 3.5e38),
        ("float", -1e300),
        ("char", ""),
        ("char", "ab"),
        ("char", "\ud800"),
        ("string", "a\udfff"),
        ("symbol", "é"),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_refused(name: str, value: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        write(name, value)
    assert caught.value.field == "open.field"
    assert str(caught.value).startswith("open.field: ")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("boolean", "56 02"),
        ("char", "73 0000d800"),
        ("char", "73 0000dfff"),
        ("char", "73 00110000"),
        ("char", "73 ffffffff"),
        ("string", "a1 01 ff"),
        ("string", "a1 02 c0 80"),
        ("string", "a1 03 ed a0 80"),
        ("symbol", "a3 01 80"),
        ("binary", "b0 7fffffff 00"),
        ("binary", "b0 80000000 00"),
        ("binary", "b0 ffffffff 00"),
        ("string", "b1 ffffffff"),
        ("symbol", "b3 ffffffff 61"),
    ],
)
def test_content_outside_the_type_is_refused(name: str, data: str) -> None:
    with pytest.raises(DecodeError):
        read(name, bytes.fromhex(data))


def test_floats_are_rounded_to_binary32_as_ieee_says() -> None:
    assert read("float", write("float", 3.4028235e38)) == 3.4028234663852886e38
    assert read("float", write("float", float("inf"))) == float("inf")
    assert read("float", write("float", 1e-60)) == 0.0


def test_a_datetime_becomes_its_millisecond() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert read("timestamp", write("timestamp", moment)) == -1
    there = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert read("timestamp", write("timestamp", there)) == 0


@pytest.mark.spec("1.6.1")
def test_null_is_taken_only_where_there_is_one() -> None:
    r = Reader(b"\x40\x41")
    assert r.take_null()
    assert not r.take_null()
    assert r.pos == 1
    assert not Reader(b"").take_null()


def test_symbols_are_kept_decoded() -> None:
    data = b"\xa3\x09x-opt-key"
    assert Reader(data).read_symbol("f") is Reader(data).read_symbol("f")


def test_the_cache_of_symbols_is_bounded() -> None:
    for i in range(10_000):
        text = b"s%07d" % i
        assert Reader(b"\xa3\x08" + text).read_symbol("f") == text.decode()
    long = b"\xa3\xf0" + b"x" * 240
    assert Reader(long).read_symbol("f") is not Reader(long).read_symbol("f")
    assert 0 < len(reader._symbols) <= MAX_CACHED_SYMBOLS


def test_reader_bounds() -> None:
    r = Reader(b"\x52\x01\x52\x02", 0, 2)
    assert r.read_uint("a") == 1
    with pytest.raises(DecodeError):
        r.read_uint("a")
    for bounds in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(ValueError):
            Reader(b"1234", *bounds)
        with pytest.raises(ValueError):
            r.reset(b"1234", *bounds)
    r.reset(b"\x41", 0, 1)
    assert r.read_boolean("a")
