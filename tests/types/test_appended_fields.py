"""Fields that a later specification appends: null is read as absent, anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq.testing.strategies import composites
from ferrymq_codec import DecodeError, Described
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_value, write_value
from ferrymq_types import registry
from tests.types.specification import described_types, encode, python, spec

# All composites have the same code, from one template.
FEWER = settings(max_examples=max(10, settings().max_examples // 4))
COMPOSITES = [name for name in described_types() if spec().types[name].cls == "composite"]


def appended(value: Composite, more: list[object]) -> bytes:
    """The encoding of a composite with all its fields and `more` behind them."""
    data = encode(value)
    described = read_value(Reader(data, 0, len(data)), "value")
    assert isinstance(described, Described)
    items: Any = described.value
    name = next(
        n for n in COMPOSITES if spec().types[n].descriptors[0].code == described.descriptor
    )
    missing = len(spec().types[name].fields) - len(items)
    w = BytesWriter()
    write_value(w, Described(described.descriptor, [*items, *[None] * missing, *more]), "value")
    return w.getvalue()


@pytest.mark.spec("1.4")
@pytest.mark.parametrize("name", COMPOSITES)
@FEWER
@given(st.data(), st.integers(1, 300))
def test_nulls_behind_the_last_field_change_nothing(name: str, data: Any, more: int) -> None:
    value = data.draw(composites(python(name)))
    found = appended(value, [None] * more)
    r = Reader(found, 0, len(found))
    assert registry.decode_any(r, "value") == value
    assert r.remaining() == 0


@pytest.mark.spec("1.4")
@pytest.mark.parametrize("name", COMPOSITES)
@FEWER
@given(st.data(), st.integers(0, 300))
def test_a_value_behind_the_last_field_is_refused_by_type_and_count(
    name: str, data: Any, nulls: int
) -> None:
    found = appended(data.draw(composites(python(name))), [None] * nulls + [False])
    known = len(spec().types[name].fields)
    with pytest.raises(DecodeError) as caught:
        registry.decode_any(Reader(found, 0, len(found)), "value")
    assert caught.value.field == name
    assert caught.value.reason == (
        f"has {known + nulls + 1} fields, not at most {known}: "
        f"field {known + nulls + 1} is not null, and only {known} are known"
    )
