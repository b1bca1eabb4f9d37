"""Every generated type comes back as it was sent, by every way of reading it."""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq.testing.strategies import composites
from ferrymq_codec.reader import Reader
from ferrymq_codegen.amqp_1_0.names import module_name
from ferrymq_codegen.identifiers import snake_name
from ferrymq_types import registry, unions
from tests.types.specification import described_types, encode, python, spec


@pytest.mark.parametrize("name", described_types())
@settings(max_examples=40)
@given(st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    value = data.draw(composites(python(name)))
    encoded = encode(value)
    r = Reader(encoded, 0, len(encoded))
    again = registry.decode_any(r, "value")
    assert again == value
    assert type(again) is type(value)
    assert (r.pos, r.end, r.depth) == (len(encoded), len(encoded), 0)
    assert encode(again) == encoded


@pytest.mark.parametrize("name", described_types())
@settings(max_examples=10)
@given(st.data())
def test_round_trip_amid_other_bytes(name: str, data: st.DataObject) -> None:
    """A decoder stops where its value ends, and reads nothing of what follows."""
    value = data.draw(composites(python(name)))
    type_ = spec().types[name]
    module = importlib.import_module(f"ferrymq_types.{module_name(type_.part)}")
    encoded = encode(value)
    padded = b"\xff\xff" + encoded + b"\xff\xff\xff"
    r = Reader(padded, 2, len(padded))
    assert getattr(module, f"read_{snake_name(name)}")(r, "value") == value
    assert r.pos == 2 + len(encoded)


@pytest.mark.parametrize("name", described_types())
@settings(max_examples=10)
@given(st.data())
def test_symbolic_descriptor_is_as_good_as_the_numeric_one(name: str, data: st.DataObject) -> None:
    value = data.draw(composites(python(name)))
    descriptor = spec().types[name].descriptors[0]
    assert descriptor.code is not None and descriptor.name is not None
    encoded = encode(value)
    prefix = 3 if descriptor.code < 256 else 10
    symbol = descriptor.name.encode("ascii")
    symbolic = b"\x00\xa3" + bytes([len(symbol)]) + symbol + encoded[prefix:]
    assert registry.decode_any(Reader(symbolic, 0, len(symbolic)), "value") == value
    for word in spec().types[name].provides:
        decode = getattr(unions, f"decode_{snake_name(word)}")
        assert decode(Reader(symbolic, 0, len(symbolic)), "value") == value
        assert decode(Reader(encoded, 0, len(encoded)), "value") == value


@pytest.mark.parametrize("name", described_types())
@settings(max_examples=10)
@given(st.data())
def test_copies_and_pickles(name: str, data: st.DataObject) -> None:
    """Also when compiled, where an object cannot be made without its arguments."""
    value = data.draw(composites(python(name)))
    for again in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert again == value
        assert type(again) is type(value)
        assert again is not value
