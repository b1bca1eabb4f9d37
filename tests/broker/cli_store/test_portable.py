"""AMQP values in JSON: every one comes back as it was, byte for byte."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_broker.cli.store.json_values import original, portable
from ferrymq_broker.store.errors import StoreError
from ferrymq_codec.scalars import Byte, Char, Described, Float32, Symbol, Timestamp, UInt, ULong
from ferrymq_codec.value_writer import write_value

LONG = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    LONG,
    st.floats(),
    st.text(),
    st.binary(),
    st.uuids(),
    st.text(st.characters(max_codepoint=127)).map(Symbol),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-128, 127).map(Byte),
    LONG.map(Timestamp),
    st.floats(width=32).map(Float32),
    st.characters(exclude_categories=["Cs"]).map(Char),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(), st.integers(0, 9).map(UInt)), inner, max_size=4),
        st.builds(Described, st.integers(0, 99).map(ULong), inner),
    ),
    max_leaves=12,
)


def encoded(value: object) -> bytes:
    w = BytesWriter()
    write_value(w, value, "value")
    return w.getvalue()


@given(VALUES)
def test_there_and_back(value: object) -> None:
    text = json.dumps(portable(value), allow_nan=False)
    assert encoded(original(json.loads(text))) == encoded(value)


def test_what_json_has_is_written_as_it_is() -> None:
    value = {"name": "orders", "max": 5, "share": 0.5, "on": True, "none": None, "list": ["a"]}
    assert portable(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"ab", {"$binary": "YWI="}),
        (Symbol("queue"), {"$symbol": "queue"}),
        (UInt(1), {"$amqp": "UgE="}),
    ],
)
def test_what_json_has_not_is_marked(value: object, expected: dict[str, object]) -> None:
    assert portable(value) == expected


def test_a_map_that_looks_like_a_mark_is_none() -> None:
    made = portable({"$binary": "YWI="})
    assert isinstance(made, dict) and made.keys() == {"$amqp"}
    assert original(made) == {"$binary": "YWI="}


@pytest.mark.parametrize("value", [uuid.UUID(int=5), Decimal("1.5"), float("nan"), Timestamp(0)])
def test_other_types_come_back(value: object) -> None:
    assert encoded(original(portable(value))) == encoded(value)


@pytest.mark.parametrize(
    "broken",
    [{"$binary": 5}, {"$binary": "é"}, {"$amqp": "????"}, {"$amqp": ""}, {"$amqp": "QEA="}],
)
def test_what_was_changed_by_hand_and_makes_no_sense(broken: object) -> None:
    with pytest.raises(StoreError):
        original({"inner": [broken]})
