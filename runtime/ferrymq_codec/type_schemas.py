"""Descriptions of types as data: the content of a specification's XML for each type.

The module `schema` of a generated package has a `TypeSchema` for each of its types. Programs that
show types or make values of them read it: `ferrymq describe`, `ferrymq.testing.strategies`.
"""

from __future__ import annotations

from typing import NamedTuple


class FieldSchema(NamedTuple):
    """A field of a composite type."""

    name: str
    """Name in the XML, such as `max-frame-size`."""
    attribute: str
    """Attribute of the class, such as `max_frame_size`."""
    type: str
    """Name of the type, or `*` for a value of any type."""
    annotation: str
    """Type in Python, such as `int | None`."""
    requires: tuple[str, ...]
    """Capabilities of which a value must provide one; for fields of the type `*`."""
    default: str | None
    """Default as the XML writes it, the name of a choice if the type has choices."""
    mandatory: bool
    """Whether the field must have a value."""
    multiple: bool
    """Whether the field may have several values."""
    label: str
    """A description of the field in a few words."""
    doc: str
    """Documentation; paragraphs are separated by blank lines."""


class ChoiceSchema(NamedTuple):
    """A value of a type that lists its values."""

    name: str
    """Name in the XML, such as `second`."""
    member: str
    """Member of the enum, such as `SECOND`."""
    value: object
    """Value on the wire."""
    doc: str
    """Documentation."""


class EncodingSchema(NamedTuple):
    """An encoding of a primitive type."""

    name: str
    """Name in the XML, such as `smalluint`; empty if the type has only one encoding."""
    code: int
    """Constructor byte."""
    category: str
    """`fixed`, `variable`, `compound` or `array`."""
    width: int
    """Bytes of the value, or of its size (AMQP 1.0 §1.2)."""
    label: str
    """A description of the encoding in a few words."""


class TypeSchema(NamedTuple):
    """A type."""

    name: str
    """Name in the XML, such as `attach`."""
    kind: str
    """`primitive`, `composite` or `restricted`."""
    python: str
    """Class, enum or alias with its package, such as `ferrymq_types.transport.Attach`."""
    source: str | None
    """Type that this type restricts, `*` for any; `list` for composites, None for primitives."""
    keys: str | None
    """Keys of a map: `symbol`, `string`, `annotations` (symbols and ulongs), or None for any."""
    open: bool
    """Whether values other than the choices are legal."""
    provides: tuple[str, ...]
    """Capabilities of the type, which fields of other types require."""
    symbol: str | None
    """Symbolic descriptor, such as `amqp:attach:list`."""
    code: int | None
    """Numeric descriptor."""
    section: str
    """Section of the specification, such as `AMQP 1.0 §2.7.3`; empty if it is not known."""
    label: str
    """A description of the type in a few words."""
    doc: str
    """Documentation; paragraphs are separated by blank lines."""
    fields: tuple[FieldSchema, ...] = ()
    """Fields of a composite type, in the order of the wire."""
    choices: tuple[ChoiceSchema, ...] = ()
    """Choices of a type that lists its values."""
    encodings: tuple[EncodingSchema, ...] = ()
    """Encodings of a primitive type."""
