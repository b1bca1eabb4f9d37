"""Views for the templates: names and code fragments, without open decisions.

`views` turns one part of a resolved spec into a `ModuleView`, and the whole into `UnionView`s and
the registry's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ferrymq_codegen.amqp_1_0 import kinds
from ferrymq_codegen.amqp_1_0.collisions import code_name
from ferrymq_codegen.amqp_1_0.literals import number, parse
from ferrymq_codegen.amqp_1_0.loading import early
from ferrymq_codegen.amqp_1_0.model import Definition, Encoding, Field, Part, Type
from ferrymq_codegen.amqp_1_0.names import (
    class_name,
    constant_name,
    field_name,
    local_name,
    module_name,
    with_article,
)
from ferrymq_codegen.amqp_1_0.resolve import (
    Resolved,
    closed_choice,
    described,
    listed,
    written_whole,
)
from ferrymq_codegen.docs import docstring
from ferrymq_codegen.identifiers import snake_name
from ferrymq_codegen.specification import CORE

# Binary fields of these types are credentials, which the repr leaves out.
_SECRETIVE = "sasl-frame"
# Types that may contain maps of the application.
_ANYTHING = ("object", "list[object]", "dict[object, object]")


@dataclass(frozen=True, slots=True)
class FieldView:
    """A field of a composite class."""

    attr: str
    local: str
    path: str
    annotation: str
    value: str
    default: str | None
    mandatory: bool
    multiple: bool
    read: str
    write: str
    absent: str
    wide: str
    doc: str
    secret: bool = False

    @property
    def declared(self) -> str:
        """The annotation in the class body.

        mypyc looks a single class up in the module's globals, where `object` is not; in a union it
        does not.
        """
        return "object | None" if self.annotation == "object" else self.annotation


@dataclass(frozen=True, slots=True)
class CompositeView:
    """A composite type, or a restricted one with a descriptor (`single` is then its field)."""

    name: str
    cls: str
    snake: str
    code: str
    symbol: str
    doc: str
    fields: tuple[FieldView, ...]
    complete: bool
    single: bool
    element: str
    multiple: bool
    prefix: str = ""

    @property
    def article(self) -> str:
        """The type's name after `a` or `an`."""
        return with_article(self.name)

    @property
    def secretive(self) -> bool:
        """Whether the type has a field that its repr leaves out."""
        return any(field.secret for field in self.fields)

    @property
    def ordered(self) -> bool:
        """Whether the value is the application's, so that the order of maps counts."""
        return self.single and self.fields[0].value in _ANYTHING

    @property
    def shown(self) -> str:
        """The expression for a repr that leaves out secret fields."""
        parts = [
            f"{field.attr}=" + ("<hidden>" if field.secret else f"{{self.{field.attr}!r}}")
            for field in self.fields
        ]
        formatted = any(not field.secret for field in self.fields)
        return ("f" if formatted else "") + f'"{self.cls}({", ".join(parts)})"'


@dataclass(frozen=True, slots=True)
class MemberView:
    """A choice."""

    name: str
    literal: str
    doc: str

    @property
    def test(self) -> str:
        """The condition under which a value that was read is this one."""
        whether = {"True": "value", "False": "not value"}
        return whether.get(self.literal, f"value == {self.literal}")


@dataclass(frozen=True, slots=True)
class EnumView:
    """A restricted type with choices."""

    name: str
    cls: str
    snake: str
    base: str
    constant: str
    python: str
    read: str
    write: str
    closed: bool
    multiple: str
    doc: str
    members: tuple[MemberView, ...]
    prefix: str = ""

    @property
    def article(self) -> str:
        """The type's name after `a` or `an`."""
        return with_article(self.name)

    def member(self, literal: str) -> MemberView:
        """Return the choice of one value."""
        return next(m for m in self.members if m.literal == literal)


@dataclass(frozen=True, slots=True)
class AliasView:
    """A name for a Python type or a constant, with its documentation."""

    name: str
    value: str
    doc: str


@dataclass(frozen=True, slots=True)
class ModuleView:
    """A module of the output."""

    module: str
    file: str
    sha256: str
    doc: str
    constants: tuple[AliasView, ...]
    encodings: tuple[AliasView, ...]
    aliases: tuple[AliasView, ...]
    enums: tuple[EnumView, ...]
    composites: tuple[CompositeView, ...]
    imported_enums: tuple[EnumView, ...]
    imported_composites: tuple[CompositeView, ...]
    early: tuple[str, ...]


def module(resolved: Resolved, part: Part, package: str) -> ModuleView:
    """Return the view of one module, types in document order."""
    types = list(part.types())
    imported = imported_multiples(resolved, part)
    return ModuleView(
        module=module_name(part.name),
        file=part.file,
        sha256=part.sha256,
        doc=docstring(_module_doc(part, package), 0, ""),
        constants=tuple(_definition(d) for d in part.definitions()),
        encodings=tuple(_encoding(t, e) for t in types for e in t.encodings),
        aliases=tuple(_alias(resolved, t) for t in types if _is_alias(t)),
        enums=tuple(_enum(resolved, t) for t in types if t.choices),
        composites=tuple(_composite(resolved, t) for t in types if described(t)),
        imported_enums=tuple(
            replace(_enum(resolved, t), prefix=f"_{module_name(t.part)}.")
            for t in imported
            if closed_choice(t)
        ),
        imported_composites=tuple(
            replace(_composite(resolved, t), prefix=f"_{module_name(t.part)}.")
            for t in imported
            if described(t)
        ),
        early=early(part, resolved.types),
    )


def imported_multiples(resolved: Resolved, part: Part) -> list[Type]:
    """Return the types of another package of which fields of a part have multiple values.

    Their package may have no functions that read and write several of them.
    """
    names = dict.fromkeys(f.type for t in part.types() for f in t.fields if f.multiple)
    types = [resolved.types[name] for name in names if name in resolved.types]
    return [type_ for type_ in types if resolved.is_imported(type_)]


def multiples(resolved: Resolved) -> frozenset[str]:
    """Return the types of fields with multiple values."""
    return frozenset(f.type for t in resolved.spec.types() for f in t.fields if f.multiple)


def _is_alias(type_: Type) -> bool:
    return type_.cls != "composite" and not described(type_) and not type_.choices


def _module_doc(part: Part, package: str) -> str:
    owner = "AMQP 1.0 " if package == CORE else "Types of "
    title = f"{owner}{part.name}: {part.label}." if part.label else f"{owner}{part.name}."
    return f"{title}\n\n{part.doc}" if part.doc else title


def _sentence(label: str, doc: str) -> str:
    """Return the label as a first line, followed by the text."""
    if not label:
        return doc
    head = label[0].upper() + label[1:]
    head = head if head.endswith((".", "!", "?")) else head + "."
    return f"{head}\n\n{doc}" if doc else head


def _definition(definition: Definition) -> AliasView:
    value = number(definition.value)
    return AliasView(
        name=constant_name(definition.name),
        value=repr(definition.value if value is None else value),
        doc=docstring(_sentence(definition.label, definition.doc), 0, definition.name),
    )


def _encoding(type_: Type, encoding: Encoding) -> AliasView:
    size = {0: "no content", 1: "1 byte"}.get(encoding.width, f"{encoding.width} bytes")
    what = size if encoding.category == "fixed" else f"{encoding.category}, size in {size}"
    text = f"Constructor of {type_.name}: {encoding.label or encoding.name or 'its encoding'}"
    return AliasView(
        code_name(type_, encoding),
        f"{encoding.code:#04x}",
        docstring(f"{text} ({what}).", 0, ""),
    )


def _alias(resolved: Resolved, type_: Type) -> AliasView:
    if type_.cls == "primitive":
        python = "None" if type_.name == "null" else kinds.plain(resolved, type_.name).python
    else:
        python = kinds.plain(resolved, type_.name).python
    python = "_containers.Array" if python == "Array" else python
    doc = docstring(_sentence(type_.label, type_.doc), 0, f"AMQP type {type_.name}.")
    return AliasView(class_name(type_.name), python, doc)


def enum_class(type_: Type) -> str:
    """Return the enum of a type with choices; a described type keeps its own name for the class."""
    return class_name(type_.name) + ("Choice" if described(type_) else "")


def _content(type_: Type, base: str) -> str:
    """Return the expression for what is written of `value`, a choice of the type."""
    if base != "Enum":
        return "value"
    if listed(type_):
        for choice in type_.choices:
            if choice.value == "true":
                # The property `value` of an enum is slow.
                chosen = f"_{constant_name(type_.name)}_{constant_name(choice.name)}"
                return f"value is {chosen} or value.value"
    return "value.value"


def _enum(resolved: Resolved, type_: Type) -> EnumView:
    primitive = resolved.base(type_.name)
    inner = kinds.plain(resolved, type_.name)
    base = {"int": "IntEnum", "str": "StrEnum"}.get(inner.python, "Enum")
    return EnumView(
        name=type_.name,
        cls=enum_class(type_),
        snake=snake_name(type_.name) + ("_choice" if described(type_) else ""),
        base=base,
        constant=f"_{constant_name(type_.name)}",
        python=inner.python,
        read=inner.reading("{field}").replace('"{field}"', "field"),
        write=inner.writing(_content(type_, base), "{field}").replace('"{field}"', "field"),
        closed=listed(type_),
        multiple=primitive if type_.name in multiples(resolved) else "",
        doc=docstring(_sentence(type_.label, type_.doc), 4, f"AMQP type {type_.name}."),
        members=tuple(
            MemberView(
                constant_name(c.name),
                kinds.expression(parse(c.value, primitive)),
                docstring(c.doc, 4, "") if c.doc else "",
            )
            for c in type_.choices
        ),
    )


def _composite(resolved: Resolved, type_: Type) -> CompositeView:
    descriptor = type_.descriptor
    assert descriptor is not None and descriptor.code is not None and descriptor.name is not None
    known = f"Descriptor: {descriptor.name} ({descriptor.code:#04x})."
    doc = _sentence(type_.label, type_.doc) or f"AMQP type {type_.name}."
    if type_.cls == "composite":
        fields = tuple(field_view(resolved, type_, f) for f in type_.fields)
    else:
        fields = (_single(resolved, type_),)
    return CompositeView(
        name=type_.name,
        cls=class_name(type_.name),
        snake=snake_name(type_.name),
        code=f"{descriptor.code:#04x}",
        symbol=descriptor.name,
        doc=docstring(f"{doc}\n\n{known}", 4, ""),
        fields=fields,
        complete=written_whole(type_),
        single=type_.cls != "composite",
        element="list" if type_.cls == "composite" else resolved.base(type_.name),
        multiple=type_.name in multiples(resolved),
    )


def _single(resolved: Resolved, type_: Type) -> FieldView:
    kind = kinds.plain(resolved, type_.name)
    read = kind.reading(type_.name)
    write = kind.writing("value.value", type_.name)
    python = kind.python
    if type_.choices:
        snake = snake_name(type_.name) + "_choice"
        python = enum_class(type_)
        read = f'read_{snake}(r, "{type_.name}")'
        write = f'write_{snake}(w, value.value, "{type_.name}")'
    return FieldView(
        attr="value",
        local="value",
        path=type_.name,
        annotation=python,
        value=python,
        default=None,
        mandatory=True,
        multiple=False,
        read=read,
        write=write,
        absent="",
        wide=python,
        doc="",
    )


def field_view(resolved: Resolved, type_: Type, f: Field) -> FieldView:
    """Return the view of a field of a composite type."""
    kind = kinds.of_field(resolved, type_, f)
    attr = field_name(f.name)
    local = local_name(attr)
    path = f"{type_.name}.{f.name}"
    value, read, write = kind.python, kind.reading(path), kind.writing(local, path)
    wide = kind.optional
    if f.multiple:
        value, read, write = _multiple(resolved, f, kind, local, path)
        wide = f"{value} | None"
    elif kind.composite and kind.python.startswith(("_unions.", f"{kinds.IMPORTED_UNIONS}.")):
        wide = "Composite | None"
    default = kinds.default(resolved, f, type_.part)
    required = f.mandatory or default is not None
    return FieldView(
        attr=attr,
        local=local,
        path=path,
        annotation=value if required else (f"{value} | None" if value != "object" else value),
        value=value,
        default=default,
        mandatory=f.mandatory and default is None,
        multiple=f.multiple,
        read=read,
        write=write,
        absent=_absent(local, default, f.multiple),
        wide=wide,
        doc=docstring(_sentence(f.label, f.doc), 4, "") if f.label or f.doc else "",
        secret=_SECRETIVE in type_.provides and kind.python == "bytes",
    )


def _absent(local: str, default: str | None, multiple: bool) -> str:
    """Return the condition under which null is written instead of the value."""
    if multiple:
        return f"not {local}"
    if default is None:
        return f"{local} is None"
    if default == "False":
        return f"not {local}"
    if default == "True":
        return local
    if default.startswith("_") or ("." in default and default[0].isalpha()):
        return f"{local} is {default}"
    return f"{local} == {default}"


def _multiple(
    resolved: Resolved, f: Field, kind: kinds.Kind, local: str, path: str
) -> tuple[str, str, str]:
    """Return annotation, reading and writing of a field with multiple values."""
    spot = f'"{path}"'
    if kind.composite or kind.choices is not None:
        reads = kind.read.split("(")[0].replace("read_", "read_multiple_")
        if resolved.is_imported(resolved.types[f.type]):
            reads = reads.rpartition(".")[2]
        writes = reads.replace("read_", "write_")
        return f"list[{kind.python}]", f"{reads}(r, {spot})", f"{writes}(w, {local}, {spot})"
    base = resolved.base(resolved.one_type(f))
    if base == "symbol" and kind.choices is None:
        read = f"read_multiple_symbol(r, {spot})"
        return "list[str]", read, f"write_multiple_symbol(w, {local}, {spot})"
    read = f'read_multiple(r, "{base}", {spot})'
    return f"list[{kind.python}]", read, f'write_multiple(w, "{base}", {local}, {spot})'
