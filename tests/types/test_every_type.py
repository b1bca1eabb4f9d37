"""All 96 types of AMQP 1.0 are in the generated package, and nothing calls itself one beside."""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import types as python_types
import typing
from functools import cache

import pytest
from lxml import etree

from ferrymq_codec.composite import Composite
from ferrymq_codegen.amqp_1_0.names import class_name, constant_name, field_name, module_name
from ferrymq_codegen.amqp_1_0.primitives import PRIMITIVES
from ferrymq_types import registry, types
from tests.types.specification import ROOT, python, spec

CORE = ("types", "transport", "messaging", "transactions", "security")


def xml_types() -> list[tuple[str, str, str]]:
    """Part, name and class of every type element, read without the generator."""
    found = []
    for part in CORE:
        tree = etree.parse(str(ROOT / "spec" / f"{part}.xml"))
        for element in tree.iter("{*}type"):
            found.append((part, element.get("name"), element.get("class")))
    return found


@cache
def docstrings(part: str) -> dict[str, str]:
    """The docstring of every class of a module; compiled classes do not keep theirs."""
    path = ROOT / "generated" / "ferrymq_types" / f"{part}.py"
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def test_the_specification_has_96_types_and_so_have_we() -> None:
    names = [name for _, name, _ in xml_types()]
    assert len(names) == len(set(names)) == 96
    extensions = {t.name for t in spec().types.values() if t.part not in CORE}
    assert set(registry.TYPES) - extensions == set(names)


@pytest.mark.parametrize(("part", "name", "cls"), xml_types(), ids=lambda value: value)
def test_type_is_importable_from_the_module_of_its_part(part: str, name: str, cls: str) -> None:
    assert registry.TYPES[name] == (module_name(part), class_name(name))
    module = importlib.import_module(f"ferrymq_types.{part}")
    thing = getattr(module, class_name(name))
    type_ = spec().types[name]
    if type_.descriptors:
        assert issubclass(thing, Composite)
        docs = docstrings(part)[class_name(name)]
        assert f"Descriptor: {type_.descriptors[0].name} " in docs
        names = [field_name(f.name) for f in type_.fields] if cls == "composite" else ["value"]
        assert [f.name for f in dataclasses.fields(thing)] == names
    elif type_.choices:
        assert issubclass(thing, enum.Enum)
        assert [m.name for m in thing] == [constant_name(c.name) for c in type_.choices]
    elif name == "null":
        assert thing is None
    else:
        assert isinstance(thing, type | python_types.GenericAlias) or thing is object


def test_every_primitive_of_the_table_is_in_the_xml() -> None:
    assert {name for _, name, cls in xml_types() if cls == "primitive"} == set(PRIMITIVES)


def test_every_encoding_has_its_constant() -> None:
    found = {name: value for name, value in vars(types).items() if name.startswith("CODE_")}
    codes = [e.code for t in spec().types.values() for e in t.encodings]
    assert sorted(found.values()) == sorted(codes)
    assert found["CODE_UINT_SMALLUINT"] == 0x52
    assert found["CODE_BOOLEAN_TRUE"] == 0x41
    assert found["CODE_MAP_MAP32"] == 0xD1


def test_every_definition_has_its_constant() -> None:
    for part in spec().parts():
        module = importlib.import_module(f"ferrymq_types.{module_name(part.name)}")
        for definition in part.definitions():
            assert getattr(module, constant_name(definition.name)) == int(definition.value, 0)


def test_registry_covers_every_described_type() -> None:
    described = [t for t in spec().types.values() if t.descriptors]
    codes = {t.descriptors[0].code for t in described}
    assert len(described) == len(codes)
    assert set(registry.DECODERS) == set(registry.CLASSES) == codes
    for type_ in described:
        [descriptor] = type_.descriptors
        cls = python(type_.name)
        assert registry.CLASSES[descriptor.code] is cls
        assert registry.DESCRIPTORS[cls] == (descriptor.name, descriptor.code)
        assert registry.CODES[descriptor.name] == descriptor.code


def test_annotations_can_be_resolved() -> None:
    """By tools that ask at run time, such as documentation generators."""
    for cls in registry.DESCRIPTORS:
        assert set(typing.get_type_hints(cls)) == {f.name for f in dataclasses.fields(cls)}
