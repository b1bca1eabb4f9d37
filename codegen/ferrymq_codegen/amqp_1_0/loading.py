"""The order in which generated modules are loaded.

Functions may refer to names of any module, but some names are needed while a module is loaded.
These early needs must not form a circle.
"""

from __future__ import annotations

from itertools import pairwise

from ferrymq_codegen.amqp_1_0.cycles import cycles
from ferrymq_codegen.amqp_1_0.model import Part, Spec, Type
from ferrymq_codegen.amqp_1_0.names import module_name
from ferrymq_codegen.mistakes import Mistakes


def early(part: Part, types: dict[str, Type]) -> tuple[str, ...]:
    """Return the modules that must be loaded before that of `part`.

    They define an enum that a default names, or a class that an annotation consists of (which
    mypyc looks up when it creates the annotated class).
    """
    return tuple(sorted({module_name(name) for name in _needs(part, types)}))


def _needs(part: Part, types: dict[str, Type]) -> dict[str, str]:
    """Return the parts needed early, each with the field that needs it."""
    needed: dict[str, str] = {}
    for type_ in part.types():
        for field in type_.fields:
            other = types.get(field.type)
            if other is None or other.part == part.name or field.multiple:
                continue
            closed = bool(other.choices) and not other.provides
            if (field.mandatory and (other.descriptors or closed)) or (field.default and closed):
                needed.setdefault(other.part, f"{type_.name}.{field.name}")
    return needed


def check(spec: Spec, types: dict[str, Type], mistakes: Mistakes) -> None:
    """Report parts of which each needs the other to be loaded first."""
    needs = {part.name: _needs(part, types) for part in spec.parts}
    places = {part.name: part.at for part in spec.parts}
    for cycle in cycles({name: list(found) for name, found in needs.items()}):
        why = ", ".join(f"{a} needs {b} for {needs[a][b]}" for a, b in pairwise(cycle))
        what = f"parts cannot be loaded before each other: {why}; make one of the fields optional"
        mistakes.add(places[cycle[0]], what)
