"""AMQP 1.0: its types in XML, and `ferrymq_types`, or a package of a user's own types, made from
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ferrymq_codegen.amqp_1_0 import diff, reference
from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.render import render
from ferrymq_codegen.amqp_1_0.resolve import resolve
from ferrymq_codegen.changes import Change


def build(folders: Sequence[Path], dtd: Path, package: str) -> dict[str, str]:
    """Return every file of a package by name, not formatted. Raises `SpecError`."""
    return render(resolve(read_spec(folders, dtd)), package)


def compare(old: Sequence[Path], new: Sequence[Path], dtd: Path) -> list[Change]:
    """Return the differences between two lists of folders. Raises `SpecError`."""
    return diff.compare(resolve(read_spec(old, dtd)), resolve(read_spec(new, dtd)))


def pages() -> dict[str, str]:
    """Return the pages about all types by their file names."""
    return reference.core_pages()
