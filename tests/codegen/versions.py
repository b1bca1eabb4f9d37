"""Two versions of a spec as packages: what one writes, the other reads, and whether it is the same.

Each version is generated and imported under a name of its own. `breaks` tries values of all types
of the sender, each field alone and all together, and the other forms that the specification allows
for them: a symbolic descriptor, and null for a default.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

from librt.strings import BytesWriter

from ferrymq_codec import DecodeError, Described, Symbol
from ferrymq_codec.composite import Composite
from ferrymq_codec.reader import Reader
from ferrymq_codec.values import read_value, write_value
from ferrymq_codegen import output
from ferrymq_codegen.amqp_1_0.model import Field, Type
from ferrymq_codegen.amqp_1_0.names import class_name, field_name, module_name
from ferrymq_codegen.amqp_1_0.primitives import PRIMITIVES
from ferrymq_codegen.amqp_1_0.render import render
from ferrymq_codegen.amqp_1_0.resolve import Resolved, listed
from ferrymq_codegen.identifiers import snake_name


class Version:
    """One spec and the package that was generated from it."""

    def __init__(self, resolved: Resolved, folder: Path, package: str) -> None:
        self.resolved = resolved
        self.package = package
        output.write(render(resolved, package), folder / package)
        sys.path.insert(0, str(folder))
        try:
            importlib.invalidate_caches()
            self.unions = importlib.import_module(f"{package}.unions")
            self.registry = importlib.import_module(f"{package}.registry")
        finally:
            sys.path.remove(str(folder))

    def forget(self) -> None:
        """Drop the modules."""
        for name in [n for n in sys.modules if n.split(".")[0] == self.package]:
            del sys.modules[name]

    def module(self, type_: Type) -> ModuleType:
        return sys.modules[f"{self.package}.{module_name(type_.part)}"]

    def cls(self, type_: Type) -> Any:
        return getattr(self.module(type_), class_name(type_.name))

    def type_of(self, value: Composite) -> Type:
        return next(
            t for t in self.resolved.types.values() if t.descriptors and type(value) is self.cls(t)
        )

    # -- values ----------------------------------------------------------------------------

    def values(self, name: str, seed: str) -> list[Any]:
        """Values of a type; those of different seeds are different where the type has so many."""
        if name == "*":
            return [f"any {seed}", zlib.crc32(seed.encode()), [seed]]
        type_ = self.resolved.types[name]
        if type_.cls == "composite":
            return list(self.composites(type_))
        plain: list[Any] = []
        if listed(type_):
            enum = type_.descriptors and self.cls(type_).__name__ + "Choice"
            members = getattr(self.module(type_), enum) if enum else self.cls(type_)
            plain = list(members)
        else:
            plain = primitives(self.resolved.base(name), seed)
            base = self.resolved.base(name)
            if type_.choices and base in ("symbol", "string"):
                plain += [choice.value for choice in type_.choices]
        return [self.cls(type_)(value) for value in plain] if type_.descriptors else plain

    def composites(self, type_: Type) -> Iterator[Composite]:
        """The least value, one with each field alone in each way, two with all fields."""
        cls = self.cls(type_)
        choices = {field_name(f.name): self.of_field(f) for f in type_.fields}
        least = {
            field_name(f.name): choices[field_name(f.name)][0]
            for f in type_.fields
            if f.mandatory and f.default is None
        }
        yield cls(**least)
        for attribute, found in choices.items():
            for value in found:
                yield cls(**{**least, attribute: value})
        for index in (0, -1):
            yield cls(**{attribute: found[index] for attribute, found in choices.items()})

    def of_field(self, field: Field) -> list[Any]:
        """Values of a field."""
        names = [t.name for t in self.resolved.providers(field)] if field.type == "*" else []
        found = [v for name in names or [field.type] for v in self.values(name, field.name)]
        return [[found[0]], found] if field.multiple else found

    # -- the wire --------------------------------------------------------------------------

    def sent(self) -> Iterator[tuple[Type, str, Any, bytes]]:
        """What this version may send: type, the capability it is sent as, value, encoding."""
        for type_ in self.resolved.types.values():
            if type_.descriptors:
                for value in self.values(type_.name, type_.name):
                    for data in self.forms(type_, value):
                        yield type_, "", value, data
        for word, providers in self.resolved.capabilities.items():
            for type_ in providers:
                for value in self.values(type_.name, type_.name):
                    w = BytesWriter()
                    if isinstance(value, Composite):
                        value.encode(w)
                    else:
                        getattr(self.unions, f"encode_{snake_name(word)}")(w, value, word)
                    yield type_, word, value, w.getvalue()

    def forms(self, type_: Type, value: Composite) -> Iterator[bytes]:
        """The encodings of a value that the specification allows."""
        data = encoded(value)
        yield data
        described = read_value(Reader(data, 0, len(data)), "value")
        assert isinstance(described, Described)
        yield written(Described(Symbol(type_.descriptors[0].name), described.value))
        if type_.cls == "composite" and isinstance(described.value, list):
            least = [
                None if f.default is not None and self.is_default(value, f) else item
                for f, item in zip(type_.fields, described.value, strict=False)
            ]
            yield written(Described(described.descriptor, least))

    def is_default(self, value: Composite, field: Field) -> bool:
        return bool(
            getattr(value, field_name(field.name)) == self.default(self.type_of(value), field)
        )

    def default(self, type_: Type, field: Field) -> Any:
        """What an absent field is read as."""
        required = {
            field_name(f.name): None for f in type_.fields if f.mandatory and f.default is None
        }
        return getattr(self.cls(type_)(**required), field_name(field.name))

    def counterpart(self, other: Version, type_: Type) -> Type | None:
        """The type that this version takes a value of `type_` for."""
        mine = self.resolved.types.get(type_.name)
        if mine is not None:
            return mine
        code = type_.descriptors[0].code if type_.descriptors else None
        same = [
            t
            for t in self.resolved.types.values()
            if t.descriptors and t.descriptors[0].code == code
        ]
        return same[0] if same and same[0].name not in other.resolved.types else None


def encoded(value: Composite) -> bytes:
    w = BytesWriter()
    value.encode(w)
    return w.getvalue()


def written(value: object) -> bytes:
    w = BytesWriter()
    write_value(w, value, "value")
    return w.getvalue()


def primitives(base: str, seed: str) -> list[Any]:
    """Values of a primitive type."""
    number = zlib.crc32(seed.encode()) % 100
    bounds = PRIMITIVES[base].range if base in PRIMITIVES else None
    if bounds is not None:
        return [number, *bounds]
    rest: dict[str, list[Any]] = {
        "*": [seed, number],
        "boolean": [True, False],
        "string": [seed, ""],
        "symbol": [seed, ""],
        "binary": [seed.encode(), b""],
        "float": [number + 0.5],
        "double": [number + 0.25],
        "decimal32": [Decimal(number)],
        "decimal64": [Decimal(number)],
        "decimal128": [Decimal(number)],
        "uuid": [UUID(int=number)],
        "char": [chr(65 + number % 26)],
        "list": [[seed], []],
        "map": [{seed: 1}, {}],
    }
    return rest[base]


def breaks(sender: Version, reader: Version) -> str:
    """What the reader refuses or takes for something else first; empty if there is nothing."""
    for type_, word, value, data in sender.sent():
        r = Reader(data, 0, len(data))
        try:
            if word:
                decode = getattr(reader.unions, f"decode_{snake_name(word)}", None)
                if decode is None:
                    continue  # The reader asks for nothing of the kind.
                got = decode(r, "value")
            else:
                mine = reader.counterpart(sender, type_)
                if mine is None:
                    reader.registry.decode_any(r, "value")
                    continue  # Of a type that it does not know: read untyped.
                if not mine.descriptors:
                    return f"{mine.name} has no descriptor"
                got = getattr(reader.module(mine), f"read_{snake_name(mine.name)}")(r, "value")
        except DecodeError as error:
            return f"{value} is refused: {error}"
        if not same(sender, value, reader, got):
            return f"{value} is taken for {got}"
    return ""


def same(sender: Version, sent: Any, reader: Version, got: Any) -> bool:
    """Whether the reader got what was sent, for all that both know of it."""
    if isinstance(sent, Composite):
        if isinstance(got, Composite):
            return _same_composite(sender, sent, reader, got)
        return isinstance(got, Described) and written(got) == encoded(sent)
    if isinstance(sent, list) and isinstance(got, list):
        return len(sent) == len(got) and all(
            same(sender, a, reader, b) for a, b in zip(sent, got, strict=True)
        )
    if isinstance(got, list) and len(got) == 1:
        return same(sender, sent, reader, got[0])
    if isinstance(sent, list) and not isinstance(got, list):
        return list(got) == sent
    if isinstance(sent, Enum) and isinstance(got, Enum):
        if sent.name in type(got).__members__:
            return sent.name == got.name
        return got.name not in type(sent).__members__ and sent.value == got.value
    plain = [value.value if isinstance(value, Enum) else value for value in (sent, got)]
    return bool(plain[0] == plain[1])


def _same_composite(sender: Version, sent: Composite, reader: Version, got: Composite) -> bool:
    before, after = sender.type_of(sent), reader.type_of(got)
    if before.cls != "composite" or after.cls != "composite":
        return same(sender, sent.value, reader, got.value)  # type: ignore[attr-defined]
    had, has = [f.name for f in before.fields], [f.name for f in after.fields]
    for index, field in enumerate(after.fields):
        value = getattr(got, field_name(field.name))
        if field.name in had:
            origin = field.name
        elif index < len(had) and had[index] not in has:
            origin = had[index]  # Renamed: names are not on the wire.
        else:
            if value != reader.default(after, field):
                return False
            continue
        if not same(sender, getattr(sent, field_name(origin)), reader, value):
            return False
    return True
