"""The checks of names: names that differ in the spec must differ in Python too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_codegen.amqp_1_0.imports import IMPORTS
from ferrymq_codegen.amqp_1_0.model import Encoding, Type
from ferrymq_codegen.amqp_1_0.names import (
    RESERVED_MODULES,
    class_name,
    constant_name,
    field_name,
    module_name,
    union_name,
    union_words,
)
from ferrymq_codegen.identifiers import Scope, is_quotable, snake_name
from ferrymq_codegen.mistakes import Location, Mistakes

if TYPE_CHECKING:
    from ferrymq_codegen.amqp_1_0.resolve import Resolved


def check(resolved: Resolved, mistakes: Mistakes) -> None:
    """Report names that cannot become identifiers and names that collide."""
    modules = Scope(mistakes, RESERVED_MODULES)
    descriptors = Scope(mistakes, ["Final"])
    seen: dict[str, Location] = {}
    for part in resolved.spec.parts:
        if part.name in seen:
            mistakes.add(part.at, f"part {part.name} is already defined at {seen[part.name]}")
            continue
        seen[part.name] = part.at
        modules.take(module_name(part.name), f"part {part.name}", part.at)
        if part.imported:
            continue
        scope = Scope(mistakes, [*IMPORTS, "CODES"])
        for definition in part.definitions():
            what = f"definition {definition.name}"
            if constant_name(definition.name) in scope.taken:
                mistakes.add(definition.at, f"{what} is already defined")
            scope.take(constant_name(definition.name), what, definition.at)
        for type_ in part.types():
            _type(type_, scope, mistakes)
            if type_.descriptors:
                # This scope has the types of all parts.
                descriptors.take(constant_name(type_.name), f"type {type_.name}", type_.at)
            for field in type_.fields:
                other = resolved.types.get(field.type)
                if field.multiple and other is not None and resolved.is_imported(other):
                    # The module has the functions for several values of the other package's type.
                    for verb in ("read_multiple", "write_multiple"):
                        what = f"type {other.name}"
                        scope.take(f"{verb}_{snake_name(other.name)}", what, field.at)
    aliases = Scope(mistakes, [*IMPORTS, "CODES"])
    for word, providers in resolved.capabilities.items():
        if resolved.imports_union((word,)):
            continue
        at = providers[0].at
        aliases.take(class_name(word), f"capability {word}", at)
        aliases.take("decode_" + snake_name(word), f"capability {word}", at)
        aliases.take("encode_" + snake_name(word), f"capability {word}", at)
    for words, at in resolved.combinations().items():
        what = f"capability {' or '.join(words)}"
        aliases.take(union_name(words), what, at)
        aliases.take("decode_" + union_words(words), what, at)


def code_name(type_: Type, encoding: Encoding) -> str:
    """Return the name of the constant for one encoding of a primitive type."""
    name = f"{type_.name}-{encoding.name}" if encoding.name else type_.name
    return "CODE_" + constant_name(name)


def _type(type_: Type, scope: Scope, mistakes: Mistakes) -> None:
    what = f"type {type_.name}"
    if type_.cls != "primitive":
        scope.take(class_name(type_.name), what, type_.at)
    if type_.descriptors or type_.choices:
        for verb in ("decode", "encode", "read", "write", "read_multiple", "write_multiple"):
            scope.take(f"{verb}_{snake_name(type_.name)}", what, type_.at)
    for descriptor in type_.descriptors:
        if not is_quotable(descriptor.name or ""):
            text = f"descriptor {descriptor.name} has a character that no name may have"
            mistakes.add(descriptor.at, text)
    for encoding in type_.encodings:
        scope.take(code_name(type_, encoding), f"an encoding of {what}", encoding.at)
    if type_.descriptors and type_.choices:
        scope.take(class_name(type_.name) + "Choice", what, type_.at)
    for choice in type_.choices:
        name = f"_{constant_name(type_.name)}_{constant_name(choice.name)}"
        scope.take(name, f"choice {choice.name} of {what}", choice.at)
    fields = Scope(mistakes)
    names: set[str] = set()
    for field in type_.fields:
        if field.name in names:
            mistakes.add(field.at, f"type {type_.name} has two fields named {field.name}")
            continue
        names.add(field.name)
        label = f"field {field.name} of {what}"
        fields.take(field_name(field.name), label, field.at)
    members = Scope(mistakes)
    for choice in type_.choices:
        label = f"choice {choice.name} of {what}"
        members.take(constant_name(choice.name), label, choice.at)
