"""AMQP 0-9-1: its definitions in XML, and `ferrymq_types_0_9_1` made from them.

Nothing here is shared with `amqp_1_0`: 0-9-1 has methods and positions where 1.0 has described
types and constructors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ferrymq_codegen.amqp_0_9_1 import diff, reference
from ferrymq_codegen.amqp_0_9_1.read import read_documents
from ferrymq_codegen.amqp_0_9_1.render import render
from ferrymq_codegen.amqp_0_9_1.resolve import resolve
from ferrymq_codegen.changes import Change


def build(folders: Sequence[Path], dtd: Path, package: str) -> dict[str, str]:
    """Return every file of a package by name, not formatted. Raises `SpecError`."""
    return render(resolve(read_documents(folders, dtd)), package)


def compare(old: Sequence[Path], new: Sequence[Path], dtd: Path) -> list[Change]:
    """Return the differences between two lists of folders. Raises `SpecError`."""
    return diff.compare(resolve(read_documents(old, dtd)), resolve(read_documents(new, dtd)))


def pages() -> dict[str, str]:
    """Return the pages about all methods by their file names."""
    return reference.core_pages()
