"""`ferrymq_types.schema` says what the XML says, and leads to the classes."""

from __future__ import annotations

import dataclasses
import enum
import importlib

import pytest
from lxml import etree

from ferrymq_codec.type_schemas import TypeSchema
from ferrymq_types import registry
from ferrymq_types.schema import SCHEMAS
from tests.types.specification import ROOT

ELEMENTS = {
    element.get("name"): element
    for path in [*ROOT.glob("spec/*.xml"), *ROOT.glob("spec/extensions/*.xml")]
    for element in etree.parse(str(path)).iter("{*}type")
}


def thing(schema: TypeSchema) -> object:
    module, _, name = schema.python.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_type_has_a_schema() -> None:
    assert set(SCHEMAS) == set(ELEMENTS) == set(registry.TYPES)


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_says_what_the_xml_says(name: str) -> None:
    schema, element = SCHEMAS[name], ELEMENTS[name]
    assert schema.name == name
    assert (schema.kind, schema.source) == (element.get("class"), element.get("source"))
    assert schema.label == element.get("label", "")
    descriptors = element.findall("{*}descriptor")
    assert schema.symbol == (descriptors[0].get("name") if descriptors else None)
    fields = element.findall("{*}field")
    assert [f.name for f in schema.fields] == [f.get("name") for f in fields]
    for field, found in zip(schema.fields, fields, strict=True):
        assert (field.type, field.default) == (found.get("type"), found.get("default"))
        assert field.mandatory == (found.get("mandatory") == "true")
        assert field.multiple == (found.get("multiple") == "true")
    assert [c.name for c in schema.choices] == [c.get("name") for c in element.findall("{*}choice")]
    codes = [int(e.get("code"), 16) for e in element.findall("{*}encoding")]
    assert [e.code for e in schema.encodings] == codes
    assert schema.section.startswith(("AMQP", "Apache"))


@pytest.mark.parametrize("name", SCHEMAS)
def test_it_leads_to_the_class(name: str) -> None:
    schema = SCHEMAS[name]
    found = thing(schema)
    if schema.code is not None:
        assert isinstance(found, type)
        assert registry.CLASSES[schema.code] is found
        assert registry.DESCRIPTORS[found] == (schema.symbol, schema.code)
    if schema.kind == "composite":
        attributes = [field.name for field in dataclasses.fields(found)]  # type: ignore[arg-type]
        assert [field.attribute for field in schema.fields] == attributes
    if schema.choices and schema.code is None:
        assert isinstance(found, type) and issubclass(found, enum.Enum)
        values = {c.member: c.value for c in schema.choices}
        assert values == {m.name: m.value for m in found}
