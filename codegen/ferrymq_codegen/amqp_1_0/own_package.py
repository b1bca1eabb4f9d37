"""A package with a user's own types, which refers to `ferrymq_types` for the types of AMQP 1.0."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ferrymq_codegen import output
from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.render import render
from ferrymq_codegen.amqp_1_0.resolve import resolve
from ferrymq_codegen.format import format_files
from ferrymq_codegen.identifiers import is_name
from ferrymq_codegen.mistakes import Location, Mistake, SpecError, shown
from ferrymq_codegen.specification import CORE, FOLDERS
from ferrymq_codegen.verify import verify as verify_output


def build(specs: Sequence[Path], package: str) -> dict[str, str]:
    """Return every file of the package by name. Raises `SpecError`."""
    resolved = resolve(read_spec(specs, imported=FOLDERS, package=CORE))
    names = " ".join(path.name for path in specs)
    command = f"ferrymq generate {names} --package {package}"
    return format_files(render(resolved, package, command))


def place(out: Path, package: str | None) -> tuple[Path, str]:
    """Return the folder of the package and its import name.

    `out` is this folder, or the folder in which the package lies. Without a name, `out` is the
    folder of the package and has its name. Raises `SpecError` for a name that Python cannot import.
    """
    name = out.resolve().name if package is None else package
    parts = name.split(".")
    if not all(map(is_name, parts)):
        what = f'"{name}" cannot be imported: give the name of the package with --package'
        raise SpecError([Mistake(Location(shown(out), 0), what)])
    if parts[0] in sys.stdlib_module_names or parts[0] == CORE:
        what = f"a package {parts[0]} exists: give another name with --package"
        raise SpecError([Mistake(Location(shown(out), 0), what)])
    inside = package is not None and out.resolve().parts[-len(parts) :] != tuple(parts)
    return (out.joinpath(*parts) if inside else out), name


def generate(
    specs: Sequence[Path], out: Path, package: str | None, *, check: bool, verify: bool
) -> int:
    """Write the package, or compare it; return the exit status and print what happened."""
    try:
        folder, name = place(out, package)
        files = build(specs, name)
        if check:
            return output.check(files, folder)
        if verify:
            verify_output(files, name)
        output.replace(files, folder)
    except SpecError as error:
        for mistake in error.mistakes:
            print(mistake, file=sys.stderr)
        return 1
    print(f"{shown(folder)}: {len(files)} files of the package {name}")
    return 0
