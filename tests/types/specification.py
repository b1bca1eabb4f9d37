"""The types of the XML, as the reader of the generator sees them, and their classes."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from librt.strings import BytesWriter

from ferrymq_codec.composite import Composite
from ferrymq_codegen.amqp_1_0.read import read_spec
from ferrymq_codegen.amqp_1_0.resolve import Resolved, resolve
from ferrymq_types import registry

ROOT = Path(__file__).resolve().parents[2]


@cache
def spec() -> Resolved:
    """The project's spec with its extensions."""
    return resolve(read_spec([ROOT / "spec", ROOT / "spec" / "extensions"]))


def described_types() -> list[str]:
    """The names of all types with a descriptor, in document order."""
    return [name for name, type_ in spec().types.items() if type_.descriptors]


def python(name: str) -> Any:
    """The generated class, enum or alias of a type."""
    module, attribute = registry.TYPES[name]
    return getattr(importlib.import_module(f"ferrymq_types.{module}"), attribute)


def encode(value: Composite) -> bytes:
    """The encoding of one composite, with its descriptor."""
    w = BytesWriter()
    value.encode(w)
    return w.getvalue()
