"""The checks of single types: shape, references, values, codes, cycles."""

from __future__ import annotations

from collections.abc import Callable

from ferrymq_codegen.amqp_1_0.cycles import cycles
from ferrymq_codegen.amqp_1_0.literals import Literal, parse
from ferrymq_codegen.amqp_1_0.model import UNREAD, Choice, Descriptor, Encoding, Field, Spec, Type
from ferrymq_codegen.amqp_1_0.primitives import CATEGORIES, PRIMITIVES
from ferrymq_codegen.mistakes import Mistakes

_ALLOWED = {
    "primitive": {"encoding"},
    "composite": {"descriptor", "field"},
    "restricted": {"descriptor", "choice"},
}


def shape(type_: Type, mistakes: Mistakes) -> None:
    """Check the attributes and children that each class of type must and must not have."""
    name = type_.name
    if type_.cls not in _ALLOWED:
        mistakes.add(type_.at, f"type {name}: class {type_.cls} is reserved")
        return
    children: dict[str, tuple[Encoding | Descriptor | Field | Choice, ...]] = {
        "encoding": type_.encodings,
        "descriptor": type_.descriptors,
        "field": type_.fields,
        "choice": type_.choices,
    }
    for child, found in children.items():
        if found and child not in _ALLOWED[type_.cls]:
            what = f"type {name}: a {type_.cls} type cannot have a {child}"
            mistakes.add(found[0].at, what)
    if len(type_.descriptors) > 1:
        mistakes.add(type_.descriptors[1].at, f"type {name} has more than one descriptor")
    if type_.cls == "primitive":
        _primitive(type_, mistakes)
    elif type_.cls == "composite":
        if type_.source is None:
            mistakes.add(type_.at, f"composite type {name} has no source")
        elif type_.source != "list":
            what = f'composite type {name} has source "{type_.source}", only "list" is possible'
            mistakes.add(type_.at, what)
        if not type_.descriptors:
            mistakes.add(type_.at, f"composite type {name} has no descriptor")
    elif type_.source is None:
        mistakes.add(type_.at, f"restricted type {name} has no source")


def _primitive(type_: Type, mistakes: Mistakes) -> None:
    if type_.source is not None:
        mistakes.add(type_.at, f"primitive type {type_.name} cannot have a source")
    if not type_.encodings:
        mistakes.add(type_.at, f"primitive type {type_.name} has no encoding")
    if type_.name not in PRIMITIVES:
        mistakes.add(type_.at, f"primitive type {type_.name} is not one the codec implements")
    for encoding in type_.encodings:
        if encoding.code == UNREAD:
            continue
        expected = CATEGORIES.get(encoding.code >> 4)
        if expected is None:
            what = f"encoding code {encoding.code:#04x} is not a constructor of a primitive"
            mistakes.add(encoding.at, what)
        elif expected != (encoding.category, encoding.width):
            what = (
                f"encoding code {encoding.code:#04x} means {expected[0]} of width {expected[1]},"
                f" not {encoding.category} of width {encoding.width}"
            )
            mistakes.add(encoding.at, what)


def references(type_: Type, types: dict[str, Type], mistakes: Mistakes) -> None:
    """Check that sources and field types exist."""
    source = type_.source
    if source is not None and type_.cls != "primitive" and source != "*" and source not in types:
        mistakes.add(type_.at, f'type {type_.name} has source "{source}", an unknown type')
    for field in type_.fields:
        if field.type != "*" and field.type not in types:
            mistakes.add(field.at, f'field {field.name} has type "{field.type}", an unknown type')
        if field.type == "null":
            mistakes.add(field.at, f"field {field.name}: null is not the type of any value")


def unique_codes(spec: Spec, mistakes: Mistakes) -> None:
    """Check that encoding codes, descriptor codes and descriptor names are used once."""
    encodings: dict[int, tuple[str, Encoding]] = {}
    codes: dict[int, Type] = {}
    names: dict[str, Type] = {}
    for type_ in spec.types():
        for encoding in type_.encodings:
            if encoding.code == UNREAD:
                continue
            first = encodings.setdefault(encoding.code, (type_.name, encoding))
            if first[1] is not encoding:
                what = f"encoding code {encoding.code:#04x} is already used by {first[0]}"
                mistakes.add(encoding.at, f"{what} at {first[1].at}")
        for descriptor in type_.descriptors:
            if descriptor.code is not None:
                other = codes.setdefault(descriptor.code, type_)
                if other is not type_:
                    what = f"descriptor code {descriptor.code:#x} is already used by {other.name}"
                    mistakes.add(descriptor.at, f"{what} at {other.at}")
                if descriptor.code >= 1 << 63:
                    what = f"descriptor code {descriptor.code:#x} is out of range: below 2^63 only"
                    mistakes.add(descriptor.at, what)
            if descriptor.name is not None:
                other = names.setdefault(descriptor.name, type_)
                if other is not type_:
                    what = f"descriptor name {descriptor.name} is already used by {other.name}"
                    mistakes.add(descriptor.at, f"{what} at {other.at}")
                if not descriptor.name.isascii() or not descriptor.name:
                    what = f'descriptor name "{descriptor.name}" is not a symbol: ASCII only'
                    mistakes.add(descriptor.at, what)


def followed(types: dict[str, Type], mistakes: Mistakes) -> set[str]:
    """Return the types whose chain of sources ends, and `*`; report those whose chain is a
    cycle."""
    edges = {
        t.name: [t.source]
        for t in types.values()
        if t.cls == "restricted" and t.source is not None and t.source in types
    }
    for cycle in cycles(edges):
        mistakes.add(types[cycle[0]].at, f"cycle of sources: {' → '.join(cycle)}")
    ends = {"*"}
    ends.update(t.name for t in types.values() if t.cls != "restricted")
    while True:
        more = {t.name for t in types.values() if t.source in ends} - ends
        if not more:
            return ends
        ends |= more


def source_kind(
    type_: Type, types: dict[str, Type], base: Callable[[str], str], mistakes: Mistakes
) -> None:
    """Check that a restricted type restricts a primitive type (or `*`), directly or through
    others."""
    if type_.cls != "restricted" or type_.source is None:
        return
    source = types.get(type_.source)
    if source is not None and source.descriptors:
        what = f"type {type_.name} has source {source.name}, which carries a descriptor itself"
        mistakes.add(type_.at, what)
    elif source is not None and source.choices:
        what = f"type {type_.name} has source {source.name}, which lists choices itself"
        mistakes.add(type_.at, what)
    elif base(type_.name) == "null":
        mistakes.add(type_.at, f"type {type_.name}: null has no values to restrict")


def values(type_: Type, base: Callable[[str], str], mistakes: Mistakes) -> None:
    """Check that choices and defaults are values of their source types."""
    if type_.choices:
        primitive = base(type_.name)
        names: set[str] = set()
        held: set[Literal] = set()
        for choice in type_.choices:
            if choice.name in names:
                mistakes.add(choice.at, f"type {type_.name} has two choices named {choice.name}")
            names.add(choice.name)
            try:
                value = _literal(choice.value, primitive)
            except ValueError as error:
                mistakes.add(choice.at, f"choice {choice.name} of type {type_.name}: {error}")
                continue
            if value in held:
                what = f"type {type_.name} has two choices of value {choice.value}"
                mistakes.add(choice.at, what)
            held.add(value)


def _literal(text: str, primitive: str) -> Literal:
    if primitive == "*" or primitive not in PRIMITIVES:
        raise ValueError("only values of a primitive type can be listed")
    return parse(text, primitive)


def default(
    field: Field, types: dict[str, Type], base: Callable[[str], str], mistakes: Mistakes
) -> None:
    """Check that a default is a value of the field's type: the name of a choice, if the type has
    any."""
    if field.default is None:
        return
    if field.multiple:
        what = f"field {field.name}: a field with multiple values cannot have a default"
        mistakes.add(field.at, what)
        return
    type_ = types.get(field.type)
    if type_ is not None and type_.descriptors:
        what = f"field {field.name}: default: a value of type {type_.name} carries a descriptor"
        mistakes.add(field.at, f"{what} and cannot be written in the XML")
        return
    if type_ is not None and type_.choices:
        if not any(field.default in (choice.name, choice.value) for choice in type_.choices):
            what = f'default "{field.default}" is not a choice of type {type_.name}'
            mistakes.add(field.at, f"field {field.name}: {what}")
        return
    try:
        _literal(field.default, base(field.type))
    except ValueError as error:
        mistakes.add(field.at, f"field {field.name}: default: {error}")


def multiple(
    field: Field,
    name: str,
    types: dict[str, Type],
    base: Callable[[str], str],
    mistakes: Mistakes,
) -> None:
    """Check that a field with several values has one known type: an array has one element type."""
    if not field.multiple:
        return
    if base(name) == "*" or (field.type == "*" and types[name].descriptors):
        what = f"field {field.name}: multiple values need one type, not any"
        mistakes.add(field.at, what)


def containment(
    types: dict[str, Type], providers: Callable[[Field], tuple[Type, ...]], mistakes: Mistakes
) -> None:
    """Check that no composite contains itself: generated code is nested calls without a depth
    limit."""
    edges: dict[str, list[str]] = {}
    for type_ in types.values():
        inner = edges.setdefault(type_.name, [])
        for field in type_.fields:
            if field.type == "*":
                inner.extend(provider.name for provider in providers(field))
            else:
                inner.append(field.type)
    for cycle in cycles(edges):
        path = " → ".join(cycle)
        mistakes.add(types[cycle[0]].at, f"type {cycle[0]} contains itself: {path}")
