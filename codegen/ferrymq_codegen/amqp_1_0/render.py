"""Stage 3: the templates, and the header and imports of each rendered module.

The body is rendered first. The imports are then those of the names that the body uses, so that no
table of the needed names has to be maintained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ferrymq_codegen import module_text
from ferrymq_codegen.amqp_1_0 import kinds, views
from ferrymq_codegen.amqp_1_0.imports import IMPORTS
from ferrymq_codegen.amqp_1_0.model import Type
from ferrymq_codegen.amqp_1_0.names import (
    class_name,
    constant_name,
    imported_module,
    imported_name,
    module_name,
    union_name,
    union_words,
    with_article,
)
from ferrymq_codegen.amqp_1_0.primitives import ISINSTANCE
from ferrymq_codegen.amqp_1_0.resolve import Resolved, described
from ferrymq_codegen.amqp_1_0.schemas import text_of
from ferrymq_codegen.docs import docstring, plain
from ferrymq_codegen.identifiers import snake_name

COMMAND: Final = "python -m codegen generate"


@dataclass(frozen=True, slots=True)
class _Row:
    """A described type in the registry."""

    symbol: str
    code: str
    cls: str
    decode: str
    constant: str
    doc: str


@dataclass(frozen=True, slots=True)
class _Plain:
    """A type without a descriptor that provides a capability."""

    test: str
    read: str
    write: str
    python: str
    cls: str


@dataclass(frozen=True, slots=True)
class _Union:
    """Types that provide a capability."""

    name: str
    snake: str
    article: str
    alias: str
    doc: str
    described: tuple[_Row, ...]
    plain: tuple[_Plain, ...]
    encoders: tuple[_Plain, ...]


def render(resolved: Resolved, package: str, command: str = COMMAND) -> dict[str, str]:
    """Return the text of every file of the output by its name, not yet formatted.

    `package` is the import name that the output will have, `command` the one that writes it again.
    """
    environment = module_text.environment(Path(__file__).with_name("templates"))
    environment.filters["plain"] = plain
    frame = _Frame(resolved, package, command)
    modules = [module_name(part.name) for part in resolved.parts()]
    everything = tuple(modules)
    refers = bool(resolved.imported_parts())
    files = {"py.typed": "", "__init__.py": frame.package_file()}
    for part in resolved.parts():
        view = views.module(resolved, part, package)
        body = environment.get_template("module.py.jinja").render(view=view)
        sources = [(view.file, view.sha256)]
        files[f"{view.module}.py"] = frame.wrap(
            body, view.doc, [*modules, "unions"], early=view.early, sources=sources
        )
    types = resolved.own_types()
    rows = _rows(types)
    template = environment.get_template("unions.py.jinja")
    body = template.render(rows=rows, unions=_unions(resolved), refers=refers)
    text = (
        "What provides each capability: an alias, a decoder and, where a value does not tell its "
        "type itself, an encoder."
    )
    files["unions.py"] = frame.wrap(body, docstring(text, 0, ""), modules, early=everything)
    body = environment.get_template("descriptors.py.jinja").render(rows=rows)
    doc = docstring("The numeric descriptor of every described type.", 0, "")
    files["descriptors.py"] = frame.wrap(body, doc, [], early=())
    places = [(t.name, module_name(t.part), class_name(t.name)) for t in types]
    template = environment.get_template("registry.py.jinja")
    body = template.render(rows=rows, types=places, refers=refers)
    doc = docstring("Every described type by code, symbol and class.", 0, "")
    files["registry.py"] = frame.wrap(body, doc, modules, early=everything)
    texts = [text_of(resolved, type_) for type_ in types]
    body = environment.get_template("schema.py.jinja").render(types=texts, package=package)
    doc = docstring("Descriptions of the types as data, from their XML.", 0, "")
    files["schema.py"] = frame.wrap(body, doc, [], early=())
    return files


class _Frame:
    """The parts around the code of every module: header, docstring, imports."""

    def __init__(self, resolved: Resolved, package: str, command: str) -> None:
        self._package = package
        self._command = command
        self._parts = resolved.parts()
        # The modules of another package by their names here, such as `amqp_transport`.
        self._imported: dict[str, tuple[str, str]] = {}
        for part, owner in resolved.imported_parts().items():
            self._imported[module_name(part)] = (owner, imported_module(part))
            for module in ("unions", "registry"):
                self._imported[module_name(imported_name(module))] = (owner, module)

    def package_file(self) -> str:
        """Return the text of `__init__.py`."""
        lines = [f"- `{module_name(p.name)}`: {p.label or p.name}" for p in self._parts]
        lines += [
            "- `unions`: what provides each capability",
            "- `registry`: types by descriptor",
            "- `descriptors`: the descriptors as constants",
            "- `schema`: what the XML says about each type, as data",
        ]
        title = "The wire types of AMQP 1.0, generated from their XML."
        if self._imported:
            owner, _ = next(iter(self._imported.values()))
            title = f"Wire types generated from their XML; those of AMQP 1.0 are in `{owner}`."
        doc = docstring("\n\n".join([title, *lines]), 0, "").replace("\n\n- ", "\n- ")
        doc = doc.replace("\n- ", "\n\n- ", 1)
        return f"""{self._header()}
{doc}

from __future__ import annotations

# The modules need each other: this one loads them in an order that works.
from {self._package} import unions as _unions  # noqa: F401
"""

    def wrap(
        self,
        body: str,
        doc: str,
        modules: list[str],
        *,
        early: tuple[str, ...],
        sources: list[tuple[str, str]] | None = None,
    ) -> str:
        """Add header, docstring and the needed imports to `body`.

        Modules of types import each other at their end: by then their own names exist, so the
        cycle between a union and its members is harmless. `early` are the modules that the body
        needs while it is loaded. Modules of another package never need those of this one.
        """
        used = module_text.used_names(body)
        froms: dict[str, list[str]] = {}
        for name in sorted(used.intersection(IMPORTS)):
            froms.setdefault(IMPORTS[name], []).append(name)
        if "CODES" in used and "CODES: " not in body:
            froms[f"{self._package}.unions"] = ["CODES as CODES"]
        if "_containers" in used:
            froms["ferrymq_codec"] = ["containers as _containers"]
        for name, (owner, module) in self._imported.items():
            if f"_{name}" in used:
                froms.setdefault(owner, []).append(f"{module} as _{name}")
        imports = module_text.import_lines(froms)
        needed = [m for m in sorted(modules) if f"_{m}" in used]
        mine = {m: f"from {self._package} import {m} as _{m}" for m in needed}
        imports += [line for module, line in mine.items() if module in early]
        own = [line for module, line in mine.items() if module not in early]
        header = self._header(sources)
        head = [header, doc, "", "from __future__ import annotations", "", *imports, "", ""]
        if own:
            own.insert(
                0, "# At the end, where every name above exists: the modules need each other."
            )
        tail = "\n".join(line + "  # noqa: E402" if line[0] != "#" else line for line in own)
        return "\n".join(head) + body + "\n\n" + tail + "\n"

    def _header(self, sources: list[tuple[str, str]] | None = None) -> str:
        """Return the header of a module that is made from these files, or from all."""
        if sources is None:
            sources = [(part.file, part.sha256) for part in self._parts]
        return module_text.header(sources, self._command)


def _row(type_: Type) -> _Row:
    descriptor = type_.descriptor
    assert descriptor is not None and descriptor.code is not None and descriptor.name is not None
    prefix = f"_{module_name(type_.part)}."
    return _Row(
        symbol=descriptor.name,
        code=f"{descriptor.code:#04x}",
        cls=prefix + class_name(type_.name),
        decode=f"{prefix}decode_{snake_name(type_.name)}",
        constant=constant_name(type_.name),
        doc=docstring(f"Descriptor of the type {type_.name}: {descriptor.name}.", 0, ""),
    )


def _rows(types: Iterable[Type]) -> list[_Row]:
    """Return the described types among `types`, by ascending code."""
    chosen = [t for t in types if described(t)]
    chosen.sort(key=lambda t: t.descriptors[0].code or 0)
    return [_row(t) for t in chosen]


def _unions(resolved: Resolved) -> list[_Union]:
    """Return a union for each capability, and for each combination that some field requires.

    Capabilities that only types of another package provide have their unions there.
    """
    single = {(word,) for word in resolved.capabilities}
    wanted = {words for words in single if not resolved.imports_union(words)}
    return [_union(resolved, words) for words in sorted(wanted.union(resolved.combinations()))]


def _union(resolved: Resolved, words: tuple[str, ...]) -> _Union:
    found = {t.name: t for word in words for t in resolved.capabilities.get(word, ())}
    rows = _rows(found.values())
    plain = [_plain(resolved, t) for t in found.values() if not described(t)]
    members = dict.fromkeys([*(row.cls for row in rows), *(p.python for p in plain)])
    encoders: dict[str, _Plain] = {}
    for provider in plain:
        encoders.setdefault(provider.cls, provider)
    ordered = sorted(encoders.values(), key=lambda p: (p.cls == "object", p.cls != "bool"))
    what = " or ".join(words)
    article = with_article(what)
    return _Union(
        name=union_name(words),
        snake=union_words(words),
        article=article,
        alias=" | ".join(members),
        doc=docstring(f"{article[0].upper()}{article[1:]}: {', '.join(found)}.", 0, ""),
        described=tuple(rows),
        plain=tuple(plain),
        encoders=tuple(ordered),
    )


def _plain(resolved: Resolved, type_: Type) -> _Plain:
    kind = kinds.plain(resolved, type_.name)
    base = resolved.base(type_.name)
    encodings = resolved.types[base].encodings if base != "*" else ()
    codes = [f"code == {e.code:#04x}" for e in encodings]
    return _Plain(
        test=" or ".join(codes) or "code != 0",
        read=kind.read.format(f="field"),
        write=kind.write.format(v="value", f="field"),
        python=kind.python,
        cls=ISINSTANCE.get(kind.python, "object"),
    )
