"""What is written is read back equal, with every type kept; and encodings are canonical."""

from __future__ import annotations

import collections
import enum
import types
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from librt.strings import BytesWriter

from ferrymq_codec import Described, EncodeError, Symbol, Timestamp, ULong
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import (
    read_list,
    read_value,
    write_list,
    write_value,
)
from tests.codec.support import decode, encode, same, scalars, values


@given(scalars)
def test_scalars(value: object) -> None:
    assert same(decode(encode(value)), value)


@given(values)
def test_nested_values(value: object) -> None:
    data = encode(value)
    again = decode(data)
    assert same(again, value)
    assert encode(again) == data


@given(values)
def test_a_value_is_skipped_by_its_size(value: object) -> None:
    data = encode(value)
    r = Reader(data + b"\x40")
    r.skip_value("value")
    assert r.pos == len(data)


@given(values)
def test_a_value_is_read_in_the_middle_of_others(value: object) -> None:
    w = BytesWriter()
    for item in (1, value, "end"):
        write_value(w, item, "value")
    r = Reader(w.getvalue())
    assert read_value(r, "a") == 1
    assert same(read_value(r, "b"), value)
    assert read_value(r, "c") == "end"


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 300


@pytest.mark.parametrize(
    ("given_value", "meaning"),
    [
        ((1, 2), [1, 2]),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (Colour.RED, "red"),
        (Level.HIGH, 300),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), Timestamp(1000)),
        (collections.OrderedDict(a=1), {"a": 1}),
        (Described(5, 1), Described(ULong(5), 1)),
        (Described("a:b", 1), Described(Symbol("a:b"), 1)),
    ],
)
def test_other_python_values_are_written_as_what_they_resemble(
    given_value: object, meaning: object
) -> None:
    assert same(decode(encode(given_value)), meaning)


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, 1j, types.SimpleNamespace(), 2**63, -(2**63) - 1, "\ud800", int, [object()]],
)
def test_values_without_an_amqp_type_are_refused(value: object) -> None:
    with pytest.raises(EncodeError):
        encode(value)


@pytest.mark.spec("1.6.22")
def test_lists_have_functions_of_their_own() -> None:
    w = BytesWriter()
    write_list(w, [1, "a"], "sequence")
    assert read_list(Reader(w.getvalue()), "sequence") == [1, "a"]


class Point(Composite):
    """A type of an application, which encodes itself."""

    def encode(self, w: BytesWriter) -> None:
        w.write(b"\x00\x53\x99\xc0\x03\x01\x55\x07")


def test_a_composite_encodes_itself_in_an_untyped_place() -> None:
    assert same(decode(encode([Point()])), [Described(ULong(0x99), [7])])


class Loop(Composite):
    """A composite that contains itself."""

    def encode(self, w: BytesWriter) -> None:
        write_value(w, [self], "loop")


def test_a_composite_inside_itself_ends_in_an_error() -> None:
    with pytest.raises(EncodeError, match="nested too deeply"):
        encode(Loop())
    assert encode([Point()])


def test_the_base_class_has_no_encoding() -> None:
    with pytest.raises(EncodeError):
        encode(Composite())


def test_containers_inside_themselves_end_in_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    ring: dict[str, Any] = {}
    ring["a"] = ring
    knot = Described(1, None)
    knot.value = knot
    for value in (loop, ring, knot):
        with pytest.raises(EncodeError, match="nested too deeply"):
            encode(value)
