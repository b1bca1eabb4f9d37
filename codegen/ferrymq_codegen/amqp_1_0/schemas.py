"""The description of each type in a specification, as plain values: for the module `schema` of the
output and for the pages of the reference.

Texts are results of `docs.text_of`, in which lines that keep their breaks are marked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ferrymq_codegen.amqp_1_0 import views
from ferrymq_codegen.amqp_1_0.kinds import expression
from ferrymq_codegen.amqp_1_0.literals import parse
from ferrymq_codegen.amqp_1_0.model import Choice, Encoding, Field, Type
from ferrymq_codegen.amqp_1_0.names import class_name, constant_name, field_name, module_name
from ferrymq_codegen.amqp_1_0.resolve import Resolved, listed

# The section at the end of a text: (AMQP 1.0 §2.7.3).
_SECTION: Final = re.compile(r"\(([^()]*§[^()]*)\)\s*$")
# The module in front of a name in an annotation: _transport.Error.
_MODULE: Final = re.compile(r"\b_[a-z_]\w*\.")


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field of a composite type, as `FieldSchema` of the codec has it."""

    name: str
    attribute: str
    type: str
    annotation: str
    requires: tuple[str, ...]
    default: str | None
    mandatory: bool
    multiple: bool
    label: str
    doc: str


@dataclass(frozen=True, slots=True)
class ChoiceText:
    """A choice, as `ChoiceSchema` of the codec has it; `value` is a Python expression."""

    name: str
    member: str
    value: str
    doc: str


@dataclass(frozen=True, slots=True)
class EncodingText:
    """An encoding, as `EncodingSchema` of the codec has it."""

    name: str
    code: str
    category: str
    width: int
    label: str


@dataclass(frozen=True, slots=True)
class TypeText:
    """A type, as `TypeSchema` of the codec has it."""

    name: str
    kind: str
    module: str
    python: str
    source: str | None
    keys: str | None
    open: bool
    provides: tuple[str, ...]
    symbol: str | None
    code: str
    section: str
    label: str
    doc: str
    fields: tuple[FieldText, ...]
    choices: tuple[ChoiceText, ...]
    encodings: tuple[EncodingText, ...]


def text_of(resolved: Resolved, type_: Type) -> TypeText:
    """Return what the specification says about a type."""
    descriptor = type_.descriptor
    code = descriptor.code if descriptor is not None else None
    section = _SECTION.search(type_.doc)
    primitive = resolved.base(type_.name)
    return TypeText(
        name=type_.name,
        kind=type_.cls,
        module=module_name(type_.part),
        python=class_name(type_.name),
        source=type_.source,
        keys=resolved.map_keys(type_.name),
        open=bool(type_.choices) and not listed(type_),
        provides=type_.provides,
        symbol=descriptor.name if descriptor is not None else None,
        code="None" if code is None else f"{code:#04x}",
        section=" ".join(section[1].split()) if section else "",
        label=type_.label,
        doc=type_.doc,
        fields=tuple(_field(resolved, type_, field) for field in type_.fields),
        choices=tuple(_choice(choice, primitive) for choice in type_.choices),
        encodings=tuple(_encoding(encoding) for encoding in type_.encodings),
    )


def _field(resolved: Resolved, type_: Type, field: Field) -> FieldText:
    return FieldText(
        name=field.name,
        attribute=field_name(field.name),
        type=field.type,
        annotation=_MODULE.sub("", views.field_view(resolved, type_, field).annotation),
        requires=field.requires,
        default=field.default,
        mandatory=field.mandatory,
        multiple=field.multiple,
        label=field.label,
        doc=field.doc,
    )


def _choice(choice: Choice, primitive: str) -> ChoiceText:
    value = expression(parse(choice.value, primitive))
    return ChoiceText(choice.name, constant_name(choice.name), value, choice.doc)


def _encoding(encoding: Encoding) -> EncodingText:
    return EncodingText(
        name=encoding.name or "",
        code=f"{encoding.code:#04x}",
        category=encoding.category,
        width=encoding.width,
        label=encoding.label,
    )
