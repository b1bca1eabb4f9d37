"""The forms of values in one place on the wire, and whether a reader accepts all that a writer
sends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ferrymq_codegen.amqp_1_0.literals import Literal, parse
from ferrymq_codegen.amqp_1_0.model import Field, Type
from ferrymq_codegen.amqp_1_0.names import OPEN_CAPABILITIES
from ferrymq_codegen.amqp_1_0.primitives import PRIMITIVES
from ferrymq_codegen.amqp_1_0.resolve import Resolved, described, listed

Values = frozenset[Literal] | None
"""The values that a type lists; None when it lists none."""

# Maps whose keys are restricted, each with the maps that accept its values.
_MAPS: Final = {
    "map": ("map",),
    "map of symbol keys": ("map", "map of symbol keys", "map of annotations keys"),
    "map of annotations keys": ("map", "map of annotations keys"),
    "map of string keys": ("map", "map of string keys"),
}


@dataclass(frozen=True, slots=True)
class Form:
    """Set of values that a reader accepts in one place, or that a writer may send there.

    `codes` are descriptors, `plain` the primitive types (`*` for any), each with its values.
    """

    anything: bool = False
    codes: frozenset[int] = frozenset()
    plain: frozenset[tuple[str, Values]] = frozenset()

    def takes(self, sent: Form) -> bool:
        """Return whether a reader of this form accepts every value that a writer of `sent` may
        send."""
        if self.anything or sent.anything:
            return self.anything
        return sent.codes <= self.codes and all(
            any(_covers(base, values, other, others) for base, values in self.plain)
            for other, others in sent.plain
        )


def _covers(base: str, values: Values, sent: str, sent_values: Values) -> bool:
    if base != "*" and base not in _MAPS.get(sent, (sent,)):
        return False
    if values is None or _all_values(sent, values):
        return True
    return sent_values is not None and sent_values <= values


def _all_values(base: str, values: frozenset[Literal]) -> bool:
    """Return whether the values are all those of the primitive type."""
    if base == "boolean":
        return len(values) == 2
    primitive = PRIMITIVES.get(base)
    bounds = primitive.range if primitive is not None else None
    return bounds is not None and len(values) == bounds[1] - bounds[0] + 1


def content(resolved: Resolved, type_: Type) -> Form:
    """Return the form of a type without its descriptor and its choices."""
    base = resolved.base(type_.name)
    keys = resolved.map_keys(type_.name)
    name = f"map of {keys} keys" if keys else base
    return Form(anything=True) if base == "*" else Form(plain=frozenset({(name, None)}))


def values(resolved: Resolved, type_: Type) -> dict[str, Literal]:
    """Return the value of each choice, by name."""
    base = resolved.base(type_.name)
    return {choice.name: parse(choice.value, base) for choice in type_.choices}


def of_type(resolved: Resolved, name: str) -> Form:
    """Return the form of a type, given by name."""
    if name == "*":
        return Form(anything=True)
    type_ = resolved.types[name]
    if described(type_):
        return Form(codes=frozenset({type_.descriptors[0].code or 0}))
    if listed(type_):
        held = frozenset(values(resolved, type_).values())
        return Form(plain=frozenset({(resolved.base(name), held)}))
    return content(resolved, type_)


def of_field(resolved: Resolved, field: Field) -> Form:
    """Return the form of one value of a field."""
    if field.type != "*":
        return of_type(resolved, field.type)
    providers = resolved.providers(field)
    if not providers or OPEN_CAPABILITIES.intersection(field.requires):
        return Form(anything=True)
    if len(providers) == 1:
        return of_type(resolved, providers[0].name)
    return of_union(resolved, providers)


def of_union(resolved: Resolved, providers: Iterable[Type]) -> Form:
    """Return the form of a value of any of the types, told by its descriptor or its primitive
    type."""
    codes: frozenset[int] = frozenset()
    plain: frozenset[tuple[str, Values]] = frozenset()
    for type_ in providers:
        form = of_type(resolved, type_.name)
        codes |= form.codes
        plain |= frozenset({("*", None)}) if form.anything else form.plain
    return Form(codes=codes, plain=plain)
