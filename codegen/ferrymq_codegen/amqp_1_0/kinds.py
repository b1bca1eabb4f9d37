"""The code that names, reads and writes a value of each type, in generated code.

A `Kind` has the annotation, the reading expression and the writing statement for one use of one
type. Templates get all their knowledge of types from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ferrymq_codegen.amqp_1_0.literals import Literal, parse
from ferrymq_codegen.amqp_1_0.model import Field, Type
from ferrymq_codegen.amqp_1_0.names import (
    OPEN_CAPABILITIES,
    WIDER_FIELDS,
    class_name,
    constant_name,
    local_name,
    module_name,
    union_name,
    union_words,
)
from ferrymq_codegen.amqp_1_0.primitives import ANYTHING, MAPS, PRIMITIVES, Primitive
from ferrymq_codegen.amqp_1_0.resolve import Resolved, chosen, closed_choice, described
from ferrymq_codegen.identifiers import snake_name

IMPORTED_UNIONS: Final = "_amqp_unions"
"""The name of the unions of another package in generated code."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A use of a type; `read` and `write` are templates over `{v}` and `{f}`.

    `composite` says that values are `Composite`s which encode themselves, `choices` names the
    enum's type if values are its members.
    """

    python: str
    read: str
    write: str
    composite: bool = False
    choices: Type | None = None

    @property
    def optional(self) -> str:
        """The annotation when None stands for an absent value."""
        return self.python if self.python == "object" else f"{self.python} | None"

    def reading(self, field: str) -> str:
        """Return the expression that reads a value of this kind for `field`."""
        return self.read.format(f=f'"{field}"')

    def writing(self, value: str, field: str) -> str:
        """Return the statement that writes `value`."""
        return self.write.format(v=value, f=f'"{field}"')


def of_primitive(primitive: Primitive) -> Kind:
    """Return the kind of a primitive type, of a map with restricted keys, or of `*`."""
    return Kind(primitive.python, primitive.read, primitive.write)


def plain(resolved: Resolved, name: str) -> Kind:
    """Return the kind of a type without a descriptor, or of a described restricted type inside
    it."""
    keys = resolved.map_keys(name)
    if keys is not None:
        return of_primitive(MAPS[keys])
    base = resolved.base(name)
    return of_primitive(ANYTHING if base == "*" else PRIMITIVES[base])


def of_type(resolved: Resolved, name: str, part: str) -> Kind:
    """Return the kind of a type, given by name, as the module of `part` uses it."""
    if name == "*":
        return of_primitive(ANYTHING)
    type_ = resolved.types[name]
    prefix = "" if type_.part == part else f"_{module_name(type_.part)}."
    python = prefix + class_name(name)
    reader = f"{prefix}read_{snake_name(name)}(r, {{f}})"
    if described(type_):
        return Kind(python, reader, f"{prefix}encode_{snake_name(name)}(w, {{v}})", composite=True)
    if closed_choice(type_):
        writer = f"{prefix}write_{snake_name(name)}(w, {{v}}, {{f}})"
        return Kind(python, reader, writer, choices=type_)
    return plain(resolved, name)


def of_field(resolved: Resolved, type_: Type, field: Field) -> Kind:
    """Return the kind of one value of a field, before `multiple` and `mandatory` are applied."""
    part = type_.part
    if field.type != "*":
        return of_type(resolved, field.type, part)
    wider = WIDER_FIELDS.get((type_.name, field.name))
    if wider is not None and wider in resolved.capabilities:
        field = replace(field, requires=(wider,))
    providers = resolved.providers(field)
    if not field.requires or not providers or OPEN_CAPABILITIES.intersection(field.requires):
        return of_primitive(ANYTHING)
    if len(providers) == 1 and not described(providers[0]):
        return plain(resolved, providers[0].name)
    module = IMPORTED_UNIONS if resolved.imports_union(field.requires) else "_unions"
    union = f"{module}.{union_name(field.requires)}"
    words = union_words(field.requires)
    read = f"{module}.decode_{words}(r, {{f}})"
    if all(described(provider) for provider in providers):
        return Kind(union, read, "{v}.encode(w)", composite=True)
    return Kind(union, read, f"{module}.encode_{words}(w, {{v}}, {{f}})")


def member(type_: Type, value: str, part: str) -> str:
    """Return the enum member for a choice's name or value, as code in the module of `part` writes
    it."""
    name = constant_name(chosen(type_, value).name)
    if type_.part == part:
        return constant(type_, name)
    return f"_{module_name(type_.part)}.{class_name(type_.name)}.{name}"


def constant(type_: Type, member_name: str) -> str:
    """Return the module constant that holds one enum member (mypyc reads it without a lookup)."""
    return f"_{constant_name(type_.name)}_{member_name}"


def default(resolved: Resolved, field: Field, part: str) -> str | None:
    """Return the Python expression of a field's default."""
    if field.default is None:
        return None
    type_ = resolved.types[field.type]
    if closed_choice(type_):
        return member(type_, field.default, part)
    text = chosen(type_, field.default).value if type_.choices else field.default
    return expression(parse(text, resolved.base(field.type)))


def expression(value: Literal) -> str:
    """Return a literal, or the call that makes the value."""
    return repr(value)


def local(attribute: str) -> str:
    """Return the local variable of a field."""
    return local_name(attribute)
