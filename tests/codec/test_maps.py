"""Maps: any keys, the keys that sections allow, duplicates and collisions (AMQP 1.0 §1.6.23)."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import (
    Array,
    DecodeError,
    Described,
    EncodeError,
    PairMap,
    Symbol,
    UInt,
    ULong,
)
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import (
    read_annotations,
    read_map,
    read_string_map,
    read_symbol_map,
    write_annotations,
    write_map,
    write_string_map,
    write_symbol_map,
)
from tests.codec.support import decode, encode, integers, same, scalars, symbols, texts, values

pytestmark = pytest.mark.spec("1.6.23")

DISTINCT = [
    [(1, "a"), (True, "b")],
    [(0, "a"), (False, "b"), (0.0, "c"), (-0.0, "d")],
    [(Symbol("a"), 1), ("a", 2)],
    [(1, "a"), (UInt(1), "b"), (ULong(1), "c"), (1.0, "d"), (Decimal(1), "e")],
    [([1], "a"), ([1, 2], "b")],
    [({1: 2}, "a"), (None, "b")],
    [(Array("uint", [UInt(1)]), "a")],
    [(float("nan"), 1)],
    [(Decimal("sNaN"), 1), (Decimal("NaN"), 2)],
    [(Described(ULong(1), [1]), "a")],
    [(PairMap([([], 1)]), "a")],
]


@pytest.mark.parametrize("pairs", DISTINCT)
def test_keys_that_a_dict_cannot_hold_make_a_pair_map(pairs: list[tuple[object, object]]) -> None:
    value = PairMap(pairs)
    again = decode(encode(value))
    assert same(again, value)
    assert encode(again) == encode(value)


@given(st.lists(st.tuples(values, scalars), max_size=6))
def test_any_pairs_round_trip_unless_a_key_comes_twice(
    pairs: list[tuple[object, object]],
) -> None:
    identities = {encode(key) for key, _ in pairs}
    if len(identities) < len(pairs):
        with pytest.raises(EncodeError, match="duplicate key"):
            encode(PairMap(pairs))
        return
    again = decode(encode(PairMap(pairs)))
    assert isinstance(again, (dict, PairMap))
    assert same(PairMap(again.items()), PairMap(pairs))


def test_most_maps_are_dicts_in_the_order_of_the_wire() -> None:
    value = {"b": 1, "a": 2, 5: 3, UUID(int=1): 4, None: 5, b"x": 6, True: 7, Symbol("s"): 8}
    again = decode(encode(value))
    assert isinstance(again, dict)
    assert same(again, value)
    assert list(again) == list(value)


@pytest.mark.parametrize(
    "data",
    [
        "c1 07 04 a1 01 61 40 a1 01 61 40",
        "c1 07 04 55 01 40 55 01 40",
        # The same long in its short and in its long encoding.
        "c1 0e 04 55 01 40 81 0000000000000001 40",
        "c1 05 04 40 40 40 40",
        "c1 09 04 a3 01 61 40 a3 01 61 40",
        "c1 05 04 45 40 45 40",
        "c1 06 04 41 40 56 01 40",
        "c1 09 06 45 40 55 01 40 45 40",
        # 1 and true differ, but 1 comes twice.
        "c1 0a 06 55 01 40 41 40 55 01 40",
    ],
)
def test_a_key_that_comes_twice_is_refused(data: str) -> None:
    content = bytes.fromhex(data)
    fixed = content[:1] + bytes([len(content) - 2]) + content[2:]
    with pytest.raises(DecodeError, match="duplicate key"):
        decode(fixed)


def crafted_uuids(count: int) -> bytes:
    """A map of UUIDs whose integers, and so whose hashes, are equal modulo 2**61 - 1."""
    w = BytesWriter()
    content = b"".join(
        b"\x98" + (7 + i * (2**61 - 1)).to_bytes(16, "big") + b"\x40" for i in range(count)
    )
    w.write(b"\xd1" + (len(content) + 4).to_bytes(4, "big") + (2 * count).to_bytes(4, "big"))
    w.write(content)
    return w.getvalue()


def test_crafted_keys_do_not_take_quadratic_time() -> None:
    data = crafted_uuids(30_000)
    started = time.process_time()
    with pytest.raises(DecodeError, match="too many elements"):
        decode(data)
    # Inserted into a dict, these keys take half a minute.
    assert time.process_time() - started < 5


def test_a_few_colliding_keys_are_accepted() -> None:
    again = decode(crafted_uuids(20))
    assert isinstance(again, dict)
    assert len(again) == 20


@pytest.mark.spec("1.6.23")
def test_keys_of_one_hash_are_no_attack() -> None:
    # Python gives -1 and -2 one hash, and 1 and True; so it does for some powers of two.
    pairs = {-1: "a", -2: "b"}
    powers = {2.0**n: n for n in range(0, 1020, 61)}
    both = PairMap([(1, "a"), (True, "b")])
    for value in ([pairs] * 1000, [powers] * 1000, [both] * 1000):
        assert decode(encode(value)) == value


def test_many_honest_keys_are_accepted() -> None:
    for value in ({UUID(int=i * 0x10001): i for i in range(30_000)}, dict.fromkeys(range(30_000))):
        assert decode(encode(value)) == value


def test_a_typed_map_is_a_dict_or_an_error() -> None:
    w = BytesWriter()
    write_map(w, {1: "a", "b": None}, "field")
    assert read_map(Reader(w.getvalue()), "field") == {1: "a", "b": None}
    with pytest.raises(DecodeError, match="dict"):
        read_map(Reader(encode(PairMap([(1, 1), (True, 2)]))), "field")
    with pytest.raises(DecodeError):
        read_map(Reader(b"\x45"), "field")


@given(st.dictionaries(symbols, values, max_size=5))
def test_symbol_maps_round_trip(value: dict[str, object]) -> None:
    w = BytesWriter()
    write_symbol_map(w, value, "open.properties")
    r = Reader(w.getvalue())
    again = read_symbol_map(r, "open.properties")
    assert r.remaining() == 0
    assert same(again, value)
    assert all(type(key) is str for key in again)


@given(st.dictionaries(symbols | integers(64, False), values, max_size=5))
def test_annotations_round_trip(value: dict[str | int, object]) -> None:
    w = BytesWriter()
    write_annotations(w, value, "footer")
    again = read_annotations(Reader(w.getvalue()), "footer")
    assert same(again, value)
    assert all(type(key) in (str, int) for key in again)


@given(st.dictionaries(texts, scalars, max_size=5))
def test_string_maps_round_trip(value: dict[str, object]) -> None:
    w = BytesWriter()
    write_string_map(w, value, "application-properties")
    assert same(read_string_map(Reader(w.getvalue()), "application-properties"), value)


READERS = [read_symbol_map, read_annotations, read_string_map]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "data",
    [
        "",
        "40",
        "45",
        "c1",
        "c1 01",
        "c1 02 01 40",
        "c1 03 02 40 40",
        "c1 04 02 45 40",
        "c1 02 02 40",
    ],
)
def test_wrong_keys_and_no_maps_are_refused(read: object, data: str) -> None:
    assert callable(read)
    with pytest.raises(DecodeError):
        read(Reader(bytes.fromhex(data)), "field")


@pytest.mark.parametrize(
    ("read", "key"),
    [
        (read_symbol_map, "a1 02 c3 a9"),
        (read_symbol_map, "a0 01 61"),
        (read_symbol_map, "53 01"),
        (read_annotations, "a1 02 c3 a9"),
        (read_annotations, "a0 01 61"),
        (read_annotations, "55 01"),
        (read_annotations, "40"),
        (read_string_map, "a3 01 61"),
        (read_string_map, "53 01"),
    ],
)
def test_keys_of_another_type_are_refused(read: object, key: str) -> None:
    assert callable(read)
    content = bytes.fromhex(key) + b"\x40"
    with pytest.raises(DecodeError):
        read(Reader(b"\xc1" + bytes([len(content) + 1, 2]) + content), "field")


@pytest.mark.spec("2.8.13", "3.2.10")
@pytest.mark.parametrize(
    ("read", "write"),
    [(read_symbol_map, write_symbol_map), (read_annotations, write_annotations)],
)
@pytest.mark.parametrize("key", ["a1 01 61", "b1 00 00 00 01 61"])
def test_string_keys_are_taken_as_symbols_and_never_written(
    read: object, write: object, key: str
) -> None:
    assert callable(read) and callable(write)
    content = bytes.fromhex(key) + b"\x40"
    r = Reader(b"\xc1" + bytes([len(content) + 1, 2]) + content)
    value = read(r, "field")
    assert value == {"a": None} and r.converted
    w = BytesWriter()
    write(w, value, "field")
    assert w.getvalue() == bytes.fromhex("c1 05 02 a3 01 61 40")
    again = Reader(w.getvalue())
    assert read(again, "field") == value and not again.converted
    # It is the same key as the symbol.
    content += bytes.fromhex("a3 01 61 40")
    with pytest.raises(DecodeError, match="duplicate key"):
        read(Reader(b"\xc1" + bytes([len(content) + 1, 4]) + content), "field")


@pytest.mark.parametrize(
    ("read", "key"),
    [(read_symbol_map, "a3 01 61"), (read_annotations, "53 01"), (read_string_map, "a1 01 61")],
)
def test_typed_keys_that_come_twice_are_refused(read: object, key: str) -> None:
    assert callable(read)
    content = (bytes.fromhex(key) + b"\x40") * 2
    with pytest.raises(DecodeError, match="duplicate key"):
        read(Reader(b"\xc1" + bytes([len(content) + 1, 4]) + content), "field")


@pytest.mark.spec("3.2.5")
@pytest.mark.parametrize("value", [[], [1], {}, {"a": 1}, Array("uint", [1]), Described(1, 1)])
def test_application_properties_hold_simple_values_only(value: object) -> None:
    with pytest.raises(EncodeError, match="not simple"):
        write_string_map(BytesWriter(), {"a": value}, "application-properties")
    content = b"\xa1\x01a" + encode(value)
    with pytest.raises(DecodeError, match="not simple"):
        read_string_map(Reader(b"\xc1" + bytes([len(content) + 1, 2]) + content), "field")


def test_illegal_keys_are_refused_on_writing() -> None:
    for write, key in (
        (write_symbol_map, "é"),
        (write_annotations, "é"),
        (write_annotations, -1),
        (write_annotations, 2**64),
        (write_string_map, "\ud800"),
    ):
        with pytest.raises(EncodeError):
            write(BytesWriter(), {key: 1}, "field")  # type: ignore[dict-item]


def test_pair_maps_look_up_by_value_and_type() -> None:
    value = PairMap([(1, "a"), (True, "b"), ([1], "c")])
    assert (value[1], value[True], value[[1]]) == ("a", "b", "c")
    assert (len(value), list(value), list(value.values())) == (3, [1, True, [1]], ["a", "b", "c"])
    assert 1 in value
    assert 1.0 not in value
    assert (value.get(1.0, "d"), value.get(1)) == ("d", "a")
    with pytest.raises(KeyError):
        value[2]
    assert value == PairMap(value.items())
    assert PairMap([(1, "a")]) != PairMap([(True, "a")])
    assert value != {1: "a"}
    assert repr(PairMap([(1, 2)])) == "PairMap([(1, 2)])"
    with pytest.raises(TypeError):
        hash(value)


@pytest.mark.spec("1.6.23")
@pytest.mark.parametrize(
    "value",
    [
        PairMap([(1, "a"), (1, "b")]),
        PairMap([("a", 1), (True, 2), ("a", 3)]),
        PairMap([([1], 1), ([1], 2)]),
        PairMap([(Symbol("a"), 1), ("a", 2), (Symbol("a"), 3)]),
        {float("nan"): 1, float("nan") + 0: 2},
        {datetime(2026, 1, 1, tzinfo=UTC): 1, datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC): 2},
    ],
    ids=["number", "text", "list", "symbol", "nan", "time"],
)
def test_a_key_is_written_once(value: object) -> None:
    with pytest.raises(EncodeError, match="duplicate key"):
        encode(value)
    encode(PairMap([(1, "a"), (True, "b"), (UInt(1), "c")]))
