"""Fields with `multiple="true"`: one value or an array (AMQP 1.0 §1.4)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import DecodeError, EncodeError
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import (
    read_multiple,
    read_multiple_symbol,
    write_multiple,
    write_multiple_symbol,
)
from tests.codec.support import ITEMS, symbols

pytestmark = pytest.mark.spec("1.4")


@given(st.lists(symbols, max_size=10))
def test_symbols_round_trip(items: list[str]) -> None:
    w = BytesWriter()
    write_multiple_symbol(w, items, "open.offered-capabilities")
    r = Reader(w.getvalue())
    again = read_multiple_symbol(r, "open.offered-capabilities")
    assert again == items
    assert all(type(item) is str for item in again)
    assert (r.remaining(), r.depth) == (0, 0)


@pytest.mark.parametrize(
    ("data", "items"),
    [
        ("a3 01 61", ["a"]),
        ("b3 00000001 61", ["a"]),
        ("e0 02 00 a3", []),
        ("e0 06 02 a3 01 61 01 62", ["a", "b"]),
        ("f0 0000000a 00000001 b3 00000001 61", ["a"]),
    ],
)
def test_one_symbol_or_an_array_of_them(data: str, items: list[str]) -> None:
    encoded = bytes.fromhex(data)
    r = Reader(encoded)
    assert read_multiple_symbol(r, "field") == items
    assert r.remaining() == 0
    assert read_multiple(Reader(encoded), "symbol", "field") == items
    for size in range(len(encoded)):
        for read in (read_multiple_symbol, lambda r, f: read_multiple(r, "symbol", f)):
            with pytest.raises(DecodeError):
                read(Reader(encoded[:size]), "field")


@pytest.mark.parametrize(
    "data",
    [
        "40",
        "a1 01 61",
        "45",
        "e0 02 01 40",
        "e0 04 01 a1 01 61",
        "e0 07 01 00 53 01 a3 01 61",
        "e0 05 01 a3 01 61 61",
        "e0 04 01 a3 01 80",
        "e0 04 02 a3 01 61",
        "f0 00000005 ffffffff a3",
        "f0 00000005 ffffffff 40",
        "f0 00000009 00000001 b3 ffffffff",
    ],
)
def test_anything_but_symbols_is_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        read_multiple_symbol(Reader(bytes.fromhex(data)), "field")
    with pytest.raises(DecodeError):
        read_multiple(Reader(bytes.fromhex(data)), "symbol", "field")


def _round_trip(name: str) -> None:
    @given(st.lists(ITEMS[name], max_size=8))
    def check(items: list[Any]) -> None:
        w = BytesWriter()
        write_multiple(w, name, items, "field")
        again = read_multiple(Reader(w.getvalue()), name, "field")
        assert repr(again) == repr([plain(item) for item in items])

    check()


def plain(value: object) -> object:
    for kind in (bool, int, str, float, Decimal):
        if isinstance(value, kind):
            return kind(value)
    return value


@pytest.mark.parametrize("name", sorted(ITEMS))
def test_values_of_every_type_round_trip_as_plain_ones(name: str) -> None:
    _round_trip(name)


@pytest.mark.parametrize(
    ("name", "data", "items"),
    [
        ("uint", "43", [0]),
        ("uint", "52 07", [7]),
        ("ulong", "80 ffffffffffffffff", [2**64 - 1]),
        ("uint", "e0 02 03 43", [0, 0, 0]),
        ("string", "a1 01 61", ["a"]),
        ("list", "c0 02 01 40", [[None]]),
        ("array", "e0 06 01 e0 03 01 50 07", None),
    ],
)
def test_single_values(name: str, data: str, items: list[object] | None) -> None:
    again = read_multiple(Reader(bytes.fromhex(data)), name, "field")
    assert len(again) == (1 if items is None else len(items))
    if items is not None:
        assert again == items
        assert [type(item) for item in again] == [type(item) for item in items]


def test_a_plain_list_of_elements_without_bytes_is_bounded() -> None:
    with pytest.raises(DecodeError, match="too many elements"):
        read_multiple(Reader(bytes.fromhex("f0 00000005 ffffffff 43")), "uint", "field")


def test_illegal_values_are_refused() -> None:
    with pytest.raises(EncodeError):
        write_multiple_symbol(BytesWriter(), ["é"], "field")
    with pytest.raises(EncodeError):
        write_multiple(BytesWriter(), "ubyte", [256], "field")
