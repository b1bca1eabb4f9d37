"""The content of the XML files, as frozen dataclasses; every node knows its file and line.

The model mirrors the DTD (`amqp`, `constant`, `domain`, `class`, `method`, `field`, `assert`)
without interpretation, which is the task of `resolve`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrymq_codegen.mistakes import Location


@dataclass(frozen=True, slots=True)
class Constant:
    """A number with a name; `cls` is `soft-error`, `hard-error` or empty."""

    name: str
    value: int
    cls: str
    label: str
    at: Location


@dataclass(frozen=True, slots=True)
class Assert:
    """What a value must fulfil. `value` is a length, a pattern or empty."""

    check: str
    value: str
    at: Location


@dataclass(frozen=True, slots=True)
class Domain:
    """A type of fields; `type` is the elementary domain."""

    name: str
    type: str
    asserts: tuple[Assert, ...]
    replaces: bool
    label: str
    at: Location


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a method, or a property of a class."""

    name: str
    domain: str
    reserved: bool
    asserts: tuple[Assert, ...]
    label: str
    at: Location


@dataclass(frozen=True, slots=True)
class Method:
    """A method. `sides` are those that may receive it: `server`, `client`."""

    name: str
    index: int
    synchronous: bool
    content: bool
    deprecated: bool
    replaces: bool
    sides: tuple[str, ...]
    responses: tuple[str, ...]
    fields: tuple[Field, ...]
    label: str
    at: Location


@dataclass(frozen=True, slots=True)
class Class:
    """A class: its methods, and its properties if its methods carry a content."""

    name: str
    index: int
    handler: str
    fields: tuple[Field, ...]
    methods: tuple[Method, ...]
    label: str
    at: Location


@dataclass(frozen=True, slots=True)
class Document:
    """One file. `version` is major, minor and revision."""

    version: tuple[str, str, str]
    constants: tuple[Constant, ...]
    domains: tuple[Domain, ...]
    classes: tuple[Class, ...]
    file: str
    sha256: str
    at: Location
