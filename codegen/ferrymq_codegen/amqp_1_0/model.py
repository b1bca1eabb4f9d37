"""The content of the spec files, as frozen dataclasses; every node knows its file and line.

The model mirrors the DTD one to one (`amqp`, `section`, `definition`, `type`, `encoding`,
`descriptor`, `field`, `choice`) without interpretation, which is the task of `resolve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ferrymq_codegen.mistakes import Location, Mistake

UNREAD: Final = -1
"""The code of an encoding whose attributes could not be read."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A wire encoding of a primitive type; `code` is the constructor byte."""

    name: str | None
    code: int
    category: str
    width: int
    label: str
    at: Location


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Descriptor of a described type on the wire: a symbol and a ulong code."""

    name: str | None
    code: int | None
    at: Location


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a composite type. `type` is a type's name or `*` (anything)."""

    name: str
    type: str
    requires: tuple[str, ...]
    default: str | None
    mandatory: bool
    multiple: bool
    label: str
    doc: str
    at: Location


@dataclass(frozen=True, slots=True)
class Choice:
    """A permitted value of a restricted type; `value` is the text of the XML."""

    name: str
    value: str
    doc: str
    at: Location


@dataclass(frozen=True, slots=True)
class Type:
    """A type of any class (`primitive`, `composite`, `restricted`)."""

    name: str
    cls: str
    source: str | None
    provides: tuple[str, ...]
    label: str
    doc: str
    encodings: tuple[Encoding, ...]
    descriptors: tuple[Descriptor, ...]
    fields: tuple[Field, ...]
    choices: tuple[Choice, ...]
    part: str
    at: Location

    @property
    def descriptor(self) -> Descriptor | None:
        """The descriptor, if the type has one."""
        return self.descriptors[0] if self.descriptors else None


@dataclass(frozen=True, slots=True)
class Definition:
    """A named constant."""

    name: str
    value: str
    label: str
    doc: str
    at: Location


@dataclass(frozen=True, slots=True)
class Section:
    """A group of types and definitions, in document order."""

    name: str
    title: str
    label: str
    types: tuple[Type, ...]
    definitions: tuple[Definition, ...]
    at: Location


@dataclass(frozen=True, slots=True)
class Part:
    """A file: a part of the specification. `sha256` is that of the file's bytes.

    `imported` is the package that has the types of the part, such as `ferrymq_types`; it is empty
    for a part of the package that is generated.
    """

    name: str
    label: str
    doc: str
    sections: tuple[Section, ...]
    file: str
    sha256: str
    at: Location
    imported: str = ""

    def types(self) -> Iterator[Type]:
        """Yield every type, in document order."""
        for section in self.sections:
            yield from section.types

    def definitions(self) -> Iterator[Definition]:
        """Yield every definition, in document order."""
        for section in self.sections:
            yield from section.definitions


@dataclass(frozen=True, slots=True)
class Spec:
    """Every part that was read, in the order of the folders and then of the file names.

    `mistakes` are those of single values, found while reading.
    """

    parts: tuple[Part, ...]
    mistakes: tuple[Mistake, ...] = ()

    def types(self) -> Iterator[Type]:
        """Yield every type of every part."""
        for part in self.parts:
            yield from part.types()
