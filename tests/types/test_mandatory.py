"""What no value may lack on the wire: its mandatory fields, and a descriptor of a legal kind."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrymq.testing.strategies import composites
from ferrymq_codec.errors import EncodeError
from ferrymq_codec.reader import Reader
from ferrymq_codegen.amqp_1_0.names import field_name
from ferrymq_types import registry
from tests.types.specification import described_types, encode, python, spec

MANDATORY = [
    (name, field.name)
    for name in described_types()
    for field in spec().types[name].fields
    if field.mandatory
]


def test_the_specification_has_mandatory_fields() -> None:
    assert ("open", "container-id") in MANDATORY
    assert len(MANDATORY) > 20


@pytest.mark.spec("1.3.4")
@pytest.mark.parametrize(("name", "field"), MANDATORY, ids=[".".join(pair) for pair in MANDATORY])
@settings(max_examples=5)
@given(st.data())
def test_a_mandatory_field_without_a_value_is_not_encoded(
    name: str, field: str, data: st.DataObject
) -> None:
    value = data.draw(composites(python(name)))
    assert encode(value)
    # None is a mistake that type checkers find. Compiled, the attribute itself refuses it.
    with pytest.raises((EncodeError, TypeError, AttributeError)):
        setattr(value, field_name(field), None)
        encode(value)


@pytest.mark.spec("1.5")
@pytest.mark.parametrize("name", described_types())
@settings(max_examples=3)
@given(st.data())
def test_every_descriptor_we_write_is_an_unsigned_long(name: str, data: st.DataObject) -> None:
    encoded = encode(data.draw(composites(python(name))))
    assert encoded[0] == 0 and encoded[1] in (0x44, 0x53, 0x80)
    code = Reader(encoded, 0, len(encoded)).read_descriptor("value")
    assert registry.CLASSES[code] is python(name)
