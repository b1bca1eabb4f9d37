"""`ferrymq describe`: what the specification says about a type, as text or as JSON.

The types are those of `ferrymq_types`, and of other packages that `ferrymq generate` has written.
"""

from __future__ import annotations

import difflib
import importlib
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from ferrymq_codec.type_schemas import ChoiceSchema, FieldSchema, TypeSchema
from ferrymq_types.schema import SCHEMAS

# Columns of text: no more than can be read well, and no fewer than the columns of a table need.
_WIDTH: Final = (72, 110)


class UnknownType(LookupError):
    """No type has the name; `nearest` are the names most like it."""

    def __init__(self, name: str, nearest: Sequence[str]) -> None:
        self.name = name
        self.nearest: tuple[str, ...] = tuple(nearest)
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        super().__init__(f"there is no type {name}{hint}")


class Catalogue:
    """The types of `ferrymq_types`, and of other generated packages, by everything they are called.

    Raises `ImportError` if a package cannot be imported, or is not generated.
    """

    def __init__(self, packages: Iterable[str] = ()) -> None:
        self.types: dict[str, TypeSchema] = dict(SCHEMAS)
        for package in packages:
            self.types.update(importlib.import_module(f"{package}.schema").SCHEMAS)
        self._called: dict[str, TypeSchema] = {}
        for type_ in self.types.values():
            for name in _names(type_):
                self._called.setdefault(name, type_)

    def find(self, name: str) -> TypeSchema:
        """Return the type with this name in the XML or in Python, or with this descriptor.

        Raises `UnknownType`.
        """
        wanted = self.types.get(name) or self._called.get(_plain(name))
        if wanted is not None:
            return wanted
        names = {_plain(name): name for name in [*map(_class, self.types.values()), *self.types]}
        near = difflib.get_close_matches(_plain(name), names, n=3)
        raise UnknownType(name, [names[one] for one in near])

    def providers(self, name: str) -> list[str]:
        """Return the types that provide a capability, such as `outcome`; none if there is none."""
        return [t.name for t in self.types.values() if _plain(name) in map(_plain, t.provides)]

    def base(self, name: str) -> str:
        """Return the primitive type that a type restricts, `list` for a composite, `*` for any."""
        while name in self.types and self.types[name].source is not None:
            name = self.types[name].source or name
        return name

    def as_data(self, type_: TypeSchema) -> dict[str, Any]:
        """Return a type as values that JSON has, with the choices of its fields."""
        data = _data(type_)
        data["fields"] = [
            {**_data(field), "base": self.base(field.type), "choices": self._choices(field)}
            for field in type_.fields
        ]
        data["base"] = self.base(type_.name)
        return data

    def _choices(self, field: FieldSchema) -> list[dict[str, Any]]:
        type_ = self.types.get(field.type)
        return [_data(choice) for choice in type_.choices] if type_ is not None else []

    def as_text(self, type_: TypeSchema, width: int) -> Iterator[str]:
        """Yield the lines about a type."""
        yield f"{type_.name}: {type_.label}" if type_.label else type_.name
        yield from _table(list(self._facts(type_)), width, indent=0)
        for paragraph in filter(None, type_.doc.split("\n\n")):
            yield ""
            yield from paragraph.splitlines() if "\n" in paragraph else _wrapped(paragraph, width)
        if type_.fields:
            yield from ("", "Fields:")
            yield from _table([self._field(field) for field in type_.fields], width)
        if type_.choices:
            yield from ("", "Choices; other values are legal:" if type_.open else "Choices:")
            rows = [(c.member, _value(c), " ".join(c.doc.split())) for c in type_.choices]
            yield from _table(rows, width)
        if type_.encodings:
            yield from ("", "Encodings:")
            rows = [
                (e.name or type_.name, f"{e.code:#04x}", f"{e.category} {e.width}: {e.label}")
                for e in type_.encodings
            ]
            yield from _table(rows, width)
        listed = dict.fromkeys(f.type for f in type_.fields if self._choices(f))
        for name in listed:
            choices = ", ".join(f"{c.member} ({_value(c)})" for c in self.types[name].choices)
            yield ""
            yield from _wrapped(f"Choices of {name}: {choices}", width)

    def _facts(self, type_: TypeSchema) -> Iterator[tuple[str, str]]:
        yield "in Python", type_.python
        kind = type_.kind
        if type_.kind == "restricted" and type_.source is not None:
            kind += f", source {_called(type_.source)}"
        yield "class", kind
        if type_.code is not None:
            yield "descriptor", f"{type_.symbol} ({type_.code:#04x})"
        if type_.provides:
            yield "provides", ", ".join(type_.provides)
        if type_.section:
            yield "section", type_.section

    def _field(self, field: FieldSchema) -> tuple[str, str, str, str]:
        kind = _called(field.type)
        base = self.base(field.type)
        if field.requires:
            kind = " or ".join(field.requires)
        elif base not in (field.type, "list"):
            kind += f" ({_called(base)})"
        if field.multiple:
            kind += ", several"
        default = "mandatory" if field.mandatory else f"= {field.default}" if field.default else ""
        return field.attribute, kind, default, field.label


def describe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="TYPE",
            help="Name in the specification (attach), in Python (Attach), or descriptor (0x12). "
            "Without it, all types are listed.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--types",
            metavar="PACKAGE",
            help="Package that `ferrymq generate` has written; may be repeated.",
        ),
    ] = None,
) -> None:
    """Say what the specification says about a type: descriptor, section, fields, choices."""
    # A package of one's own is usually in the current folder.
    sys.path.insert(0, "")
    try:
        catalogue = Catalogue(packages or ())
    except (ImportError, AttributeError) as error:
        typer.echo(f"ferrymq: --types: {_not_generated(error)}", err=True)
        raise typer.Exit(1) from None
    width = min(max(shutil.get_terminal_size().columns, _WIDTH[0]), _WIDTH[1])
    if name is None:
        labels = {t.name: t.label for t in catalogue.types.values()}
        lines = [json.dumps(labels, indent=2)] if as_json else _table(list(labels.items()), width)
    else:
        lines = _answer(catalogue, name, as_json, width)
    for line in lines:
        typer.echo(line)


def _not_generated(error: ImportError | AttributeError) -> str:
    """Return why a package has no types."""
    name = getattr(error, "name", None) or ""
    if isinstance(error, ModuleNotFoundError) and not name.endswith(".schema"):
        return (
            f"there is no package {name} in this folder or on Python's path: set PYTHONPATH to "
            "the folder that it is in"
        )
    return f"not a package that ferrymq generate has written: {error}"


def _answer(catalogue: Catalogue, name: str, as_json: bool, width: int) -> Iterator[str]:
    try:
        type_ = catalogue.find(name)
    except UnknownType as error:
        providers = catalogue.providers(name)
        if not providers:
            hint = "" if error.nearest else "; ferrymq describe lists all types"
            typer.echo(f"ferrymq: {error}{hint}", err=True)
            raise typer.Exit(1) from None
        if as_json:
            yield json.dumps({"name": name, "kind": "capability", "types": providers}, indent=2)
        else:
            yield from _wrapped(f"{name}: a capability of {', '.join(providers)}", width)
        return
    if as_json:
        yield json.dumps(catalogue.as_data(type_), indent=2, ensure_ascii=False, default=str)
    else:
        yield from catalogue.as_text(type_, width)


def _plain(name: str) -> str:
    """Return a name without what differs between XML and Python: `maxframesize`."""
    return "".join(filter(str.isalnum, name)).lower()


def _class(type_: TypeSchema) -> str:
    return type_.python.rpartition(".")[2]


def _names(type_: TypeSchema) -> Iterator[str]:
    """Yield everything that a type is called."""
    yield _plain(type_.name)
    yield _plain(_class(type_))
    yield _plain(type_.python)
    if type_.symbol is not None:
        yield _plain(type_.symbol)
    if type_.code is not None:
        yield f"{type_.code:#x}"
        yield f"{type_.code:#04x}"
        yield str(type_.code)


def _called(name: str) -> str:
    return "any" if name == "*" else name


def _value(choice: ChoiceSchema) -> str:
    if isinstance(choice.value, bool):
        return str(choice.value).lower()
    return str(choice.value)


def _data(value: FieldSchema | ChoiceSchema | TypeSchema) -> dict[str, Any]:
    """Return a tuple with names as a dict, and so those in it."""
    return {
        name: (
            [_data(one) if hasattr(one, "_asdict") else one for one in part]
            if isinstance(part, tuple)
            else part
        )
        for name, part in value._asdict().items()
    }


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _table(rows: Sequence[tuple[str, ...]], width: int, indent: int = 2) -> Iterator[str]:
    """Yield rows as aligned columns, of which the last is wrapped."""
    sizes = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    margin = indent + sum(sizes) + 2 * len(sizes)
    for row in rows:
        head = "".join(f"{cell:<{size}}  " for cell, size in zip(row, sizes, strict=False))
        last = _wrapped(row[-1], max(width - margin, 24)) or [""]
        yield (" " * indent + head + last[0]).rstrip()
        for line in last[1:]:
            yield " " * margin + line
