"""Stage 2: the meaning of the model. Every mistake that the DTD cannot express is found here.

`resolve` indexes types and capabilities, follows sources to their primitive and runs the checks of
`checks` (types one by one) and `collisions` (names in Python). A `Resolved` is free of mistakes, so
rendering never fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ferrymq_codegen.amqp_1_0 import checks, collisions, loading
from ferrymq_codegen.amqp_1_0.model import Choice, Field, Part, Spec, Type
from ferrymq_codegen.amqp_1_0.names import MAP_KEYS, OPEN_CAPABILITIES
from ferrymq_codegen.mistakes import Location, Mistakes

FRAMES: Final = frozenset({"frame", "sasl-frame"})
"""Capabilities of the bodies of frames."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A spec without mistakes, with its indexes.

    `types` is by name, `capabilities` maps each word of a `provides` to its types in document
    order.
    """

    spec: Spec
    types: dict[str, Type]
    capabilities: dict[str, tuple[Type, ...]]

    def parts(self) -> list[Part]:
        """Return the parts of the package that is generated which define types or constants; an
        index file does not."""
        parts = (p for p in self.spec.parts if not p.imported)
        return [p for p in parts if any(p.types()) or any(p.definitions())]

    def own_types(self) -> list[Type]:
        """Return the types of the package that is generated."""
        return [type_ for part in self.parts() for type_ in part.types()]

    def imported_parts(self) -> dict[str, str]:
        """Return the parts of other packages by name, each with its package."""
        return {p.name: p.imported for p in self.spec.parts if p.imported}

    def is_imported(self, type_: Type) -> bool:
        """Return whether another package has the type."""
        return type_.part in self.imported_parts()

    def imports_union(self, words: tuple[str, ...]) -> bool:
        """Return whether another package has the union of all types that provide a capability."""
        providers = self.capabilities.get(words[0], ()) if len(words) == 1 else ()
        return bool(providers) and all(self.is_imported(type_) for type_ in providers)

    def base(self, name: str) -> str:
        """Follow sources from a type to a primitive, a composite or `*`. Descriptors are ignored:
        the base of `data` is `binary`."""
        while name != "*":
            type_ = self.types[name]
            if type_.cls != "restricted" or type_.source is None:
                break
            name = type_.source
        return name

    def map_keys(self, name: str) -> str | None:
        """Return the keys that a map type may have (`symbol`, `annotations`, `string`), None for
        any."""
        while name != "*":
            if name in MAP_KEYS:
                return MAP_KEYS[name]
            type_ = self.types[name]
            if type_.source is None or type_.cls != "restricted":
                return None
            name = type_.source
        return None

    def one_type(self, field: Field) -> str:
        """Return the type of a field, or the only one that its `requires` permits."""
        providers = self.providers(field)
        return providers[0].name if field.type == "*" and len(providers) == 1 else field.type

    def providers(self, field: Field) -> tuple[Type, ...]:
        """Return the types that a field's `requires` permits, without repetitions; none if it is
        open."""
        found: dict[str, Type] = {}
        for word in field.requires:
            for type_ in self.capabilities.get(word, ()):
                found[type_.name] = type_
        return tuple(found.values())

    def combinations(self) -> dict[tuple[str, ...], Location]:
        """Return the capabilities that some field of the package requires together, each with the
        first such field."""
        found: dict[tuple[str, ...], Location] = {}
        for type_ in self.own_types():
            for field in type_.fields:
                if field.type == "*" and len(field.requires) > 1 and self.providers(field):
                    found.setdefault(field.requires, field.at)
        return found


def chosen(type_: Type, text: str) -> Choice:
    """Return the choice of a default: the one of that name, or else of that value.

    Raises `LookupError` when there is none.
    """
    for choice in type_.choices:
        if choice.name == text:
            return choice
    for choice in type_.choices:
        if choice.value == text:
            return choice
    raise LookupError(text)


def described(type_: Type) -> bool:
    """Return whether values of the type carry a descriptor on the wire."""
    return bool(type_.descriptors)


def closed_choice(type_: Type) -> bool:
    """Return whether only the listed values are legal: other specs may add values to a type that
    provides a capability (an error condition, a distribution mode), but not to other types."""
    return bool(type_.choices) and not type_.provides


def listed(type_: Type) -> bool:
    """Return whether a value that is no choice is refused: of a closed choice, or of a described
    one."""
    return closed_choice(type_) or (described(type_) and bool(type_.choices))


def written_whole(type_: Type) -> bool:
    """Return whether values of the type are written with all their fields: in frames."""
    return not FRAMES.isdisjoint(type_.provides)


def resolve(spec: Spec) -> Resolved:
    """Check a spec and index it. Raises `SpecError` with every mistake."""
    mistakes = Mistakes(spec.mistakes)
    types = _index(spec, mistakes)
    capabilities: dict[str, tuple[Type, ...]] = {}
    for type_ in types.values():
        for word in dict.fromkeys(type_.provides):
            capabilities[word] = (*capabilities.get(word, ()), type_)
    for type_ in spec.types():
        checks.shape(type_, mistakes)
        checks.references(type_, types, mistakes)
        _requirements(type_, capabilities, mistakes)
    checks.unique_codes(spec, mistakes)
    # Only chains of sources that end can be followed.
    followed = checks.followed(types, mistakes)
    resolved = Resolved(spec, types, capabilities)
    for type_ in spec.types():
        if type_.name in followed:
            checks.values(type_, resolved.base, mistakes)
            checks.source_kind(type_, types, resolved.base, mistakes)
        for field in type_.fields:
            if field.type in followed:
                checks.default(field, types, resolved.base, mistakes)
            name = resolved.one_type(field)
            if name in followed:
                checks.multiple(field, name, types, resolved.base, mistakes)
    checks.containment(types, resolved.providers, mistakes)
    loading.check(spec, types, mistakes)
    collisions.check(resolved, mistakes)
    mistakes.stop_if_any()
    return resolved


def _index(spec: Spec, mistakes: Mistakes) -> dict[str, Type]:
    types: dict[str, Type] = {}
    for type_ in spec.types():
        first = types.setdefault(type_.name, type_)
        if first is not type_:
            mistakes.add(type_.at, f"type {type_.name} is already defined at {first.at}")
    return types


def _requirements(
    type_: Type, capabilities: dict[str, tuple[Type, ...]], mistakes: Mistakes
) -> None:
    for field in type_.fields:
        for word in field.requires:
            if word not in capabilities and word not in OPEN_CAPABILITIES:
                what = f'field {field.name} requires "{word}", which no type provides'
                mistakes.add(field.at, what)
