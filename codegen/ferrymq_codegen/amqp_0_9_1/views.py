"""What the templates show: each method and its fields as lines of Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ferrymq_codegen.amqp_0_9_1.model import Class, Field, Method
from ferrymq_codegen.amqp_0_9_1.names import (
    SECRET_FIELDS,
    constant_name,
    field_name,
    method_class,
    module_name,
    properties_class,
)
from ferrymq_codegen.amqp_0_9_1.resolve import Protocol
from ferrymq_codegen.docs import docstring
from ferrymq_codegen.identifiers import snake_name

PYTHON: Final = {
    "bit": ("bool", "False"),
    "octet": ("int", "0"),
    "short": ("int", "0"),
    "long": ("int", "0"),
    "longlong": ("int", "0"),
    "shortstr": ("str", '""'),
    "longstr": ("bytes", 'b""'),
    "timestamp": ("datetime | int", "0"),
    "table": ("dict[str, object]", "None"),
}
"""The annotation of each elementary domain, and its default in a method."""

_FUNCTIONS: Final = {
    "octet": "octet",
    "short": "short",
    "long": "long",
    "longlong": "longlong",
    "shortstr": "short_string",
    "longstr": "long_string",
    "timestamp": "timestamp",
    "table": "table",
}
"""The names of the functions of the codec after `read_` and `write_`."""

# How many zero octets a reserved field is written as.
_ZEROS: Final = {
    "octet": 1,
    "short": 2,
    "long": 4,
    "longlong": 8,
    "shortstr": 1,
    "longstr": 4,
    "timestamp": 8,
    "table": 4,
}
_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class FieldView:
    """A field that Python has. `flag` is the bit of a property, 0 for a field of a method."""

    attr: str
    name: str
    path: str
    python: str
    default: str
    is_table: bool
    secret: bool
    doc: str
    flag: int
    read: str
    write: tuple[str, ...]
    decoded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MethodView:
    """A method. `write` and `read` are the lines of its functions, `made` the arguments of its
    class."""

    cls: str
    snake: str
    name: str
    article: str
    class_id: int
    method_id: int
    word: int
    synchronous: bool
    content: bool
    responses: tuple[str, ...]
    to_server: bool
    to_client: bool
    doc: str
    fields: tuple[FieldView, ...]
    write: tuple[str, ...]
    read: tuple[str, ...]
    made: tuple[tuple[str, str], ...]

    @property
    def secretive(self) -> bool:
        """Whether a field has credentials."""
        return any(field.secret for field in self.fields)

    @property
    def shown(self) -> str:
        """The expression for a repr that leaves out secret fields."""
        parts = [
            f"{field.attr}=" + ("<hidden>" if field.secret else f"{{self.{field.attr}!r}}")
            for field in self.fields
        ]
        formatted = any(not field.secret for field in self.fields)
        return f"{'f' if formatted else ''}\"{self.cls}({', '.join(parts)})\""


@dataclass(frozen=True, slots=True)
class PropertiesView:
    """The properties of a class."""

    cls: str
    snake: str
    name: str
    fields: tuple[FieldView, ...]
    known: int


@dataclass(frozen=True, slots=True)
class ClassView:
    """A module. `patterns` are the constants of its regular expressions."""

    module: str
    name: str
    index: int
    doc: str
    methods: tuple[MethodView, ...]
    properties: PropertiesView | None
    patterns: tuple[tuple[str, str], ...]


def class_view(protocol: Protocol, cls: Class) -> ClassView:
    """Return what the module of a class shows."""
    patterns: dict[str, str] = {}
    methods = tuple(_method(protocol, cls, method, patterns) for method in cls.methods)
    properties = _properties(protocol, cls, patterns) if cls.fields else None
    return ClassView(
        module=module_name(cls.name),
        name=cls.name,
        index=cls.index,
        doc=docstring(_sentence(f"class {cls.name}: {cls.label or 'of AMQP 0-9-1'}"), 0, ""),
        methods=methods,
        properties=properties,
        patterns=tuple((name, text) for text, name in patterns.items()),
    )


def _sentence(label: str) -> str:
    return f"{label[0].upper()}{label[1:]}." if label else ""


def _method(protocol: Protocol, cls: Class, method: Method, patterns: dict[str, str]) -> MethodView:
    path = f"{cls.name}.{method.name}"
    fields = tuple(
        _field(protocol, path, field, 0, patterns) for field in method.fields if not field.reserved
    )
    write, read, made = _lines(protocol, path, method, fields)
    sides = " and ".join(side for side in ("server", "client") if side in method.sides)
    sentences = [_sentence(method.label or path), "", f"Method {path}, received by {sides}."]
    if method.deprecated:
        sentences.append("Deprecated.")
    if method.content:
        sentences.append("A content follows.")
    if method.responses:
        names = " or ".join(f"{cls.name}.{name}" for name in method.responses)
        sentences.append(f"Answered by {names}.")
    text = sentences[0] + "\n\n" + " ".join(sentences[2:])
    return MethodView(
        cls=method_class(cls.name, method.name),
        snake=snake_name(method.name),
        name=path,
        article=("an " if cls.name[0] in "aeiou" else "a ") + path,
        class_id=cls.index,
        method_id=method.index,
        word=cls.index << 16 | method.index,
        synchronous=method.synchronous,
        content=method.content,
        responses=tuple(f"{cls.name}.{name}" for name in method.responses),
        to_server="server" in method.sides,
        to_client="client" in method.sides,
        doc=docstring(text, 4, ""),
        fields=fields,
        write=write,
        read=read,
        made=made,
    )


def _properties(protocol: Protocol, cls: Class, patterns: dict[str, str]) -> PropertiesView:
    fields = tuple(
        _field(protocol, cls.name, field, 1 << (15 - place), patterns)
        for place, field in enumerate(cls.fields)
    )
    return PropertiesView(
        cls=properties_class(cls.name),
        snake=snake_name(cls.name) + "_properties",
        name=cls.name,
        fields=fields,
        known=sum(field.flag for field in fields),
    )


def _field(
    protocol: Protocol, path: str, field: Field, flag: int, patterns: dict[str, str]
) -> FieldView:
    type_ = protocol.type_of(field)
    attr = field_name(path, field.name)
    where = f'"{path}.{field.name}"'
    python, default = PYTHON[type_]
    value = f"value.{attr}" if not flag else attr
    write: list[str] = []
    decoded: list[str] = []
    facts: list[str] = []
    for one in protocol.asserts(field):
        if one.check == "length":
            write.append(f"check_length({value}, {int(one.value)}, {where})")
            decoded.append(f"r.check_length({attr}, {int(one.value)}, {where})")
            facts.append(f"at most {int(one.value)} bytes")
        elif one.check == "regexp":
            pattern = patterns.setdefault(one.value, f"_PATTERN_{len(patterns) + 1}")
            write.append(f"check_pattern({value}, {pattern}, {where})")
            decoded.append(f"r.check_pattern({attr}, {pattern}, {where})")
            facts.append(f"matches {one.value}")
    if type_ == "bit":
        read = ""
    elif type_ == "table":
        read = f"read_table(r, {where})"
    else:
        read = f"r.read_{_FUNCTIONS[type_]}({where})"
    if type_ != "bit":
        write.append(f"write_{_FUNCTIONS[type_]}(w, {value}, {where})")
    doc = _sentence(field.label)
    if attr != snake_name(field.name):
        facts.append(f"{field.name} in the definitions")
    if facts:
        doc = f"{doc} {_sentence('; '.join(facts))}".strip()
    return FieldView(
        attr=attr,
        name=field.name,
        path=where,
        python=python,
        default=default,
        is_table=type_ == "table",
        secret=(path, field.name) in SECRET_FIELDS,
        doc=docstring(doc, 4, "") if doc else "",
        flag=flag,
        read=read,
        write=tuple(write),
        decoded=tuple(decoded),
    )


def _lines(
    protocol: Protocol, path: str, method: Method, fields: tuple[FieldView, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the lines that write and read the fields, and the value of each argument."""
    views = {field.name: field for field in fields}
    write: list[str] = []
    read: list[str] = []
    made: list[tuple[str, str]] = []
    octets = 0
    for run in _runs(protocol, method):
        first = run[0]
        where = f'"{path}.{first.name}"'
        if protocol.type_of(first) == "bit":
            octets += 1
            name = f"bits_{octets}"
            held = [(place, views[f.name].attr) for place, f in enumerate(run) if not f.reserved]
            read.append(f"{name} = r.read_octet({where})" if held else f"r.read_octet({where})")
            made += [(attr, f"({name} & {1 << place:#04x}) != 0") for place, attr in held]
            write += _write_bits(name, held)
        elif first.reserved:
            type_ = protocol.type_of(first)
            write += ["w.append(0)"] * _ZEROS[type_]
            if type_ == "table":
                read.append(f"skip_table(r, {where})")
            else:
                read.append(f"r.read_{_FUNCTIONS[type_]}({where})")
        else:
            view = views[first.name]
            write += view.write
            read.append(f"{view.attr} = {view.read}")
            read += view.decoded
            made.append((view.attr, view.attr))
    return tuple(write), tuple(read), tuple(made)


def _write_bits(name: str, held: list[tuple[int, str]]) -> list[str]:
    """Return the lines that write an octet of bits; `held` are their places and attributes."""
    if not held:
        return ["w.append(0)"]
    if len(held) == 1 and held[0][0] == 0:
        return [f"w.append(1 if value.{held[0][1]} else 0)"]
    lines = [f"{name}: i64 = 0"]
    for place, attr in held:
        lines += [f"if value.{attr}:", f"    {name} |= {1 << place:#04x}"]
    return [*lines, f"w.append(u8({name}))"]


def _runs(protocol: Protocol, method: Method) -> Iterator[list[Field]]:
    """Yield the fields; bits that follow each other together, eight at most."""
    bits: list[Field] = []
    for field in method.fields:
        if protocol.type_of(field) == "bit":
            if len(bits) == _BITS:
                yield bits
                bits = []
            bits.append(field)
            continue
        if bits:
            yield bits
            bits = []
        yield [field]
    if bits:
        yield bits


@dataclass(frozen=True, slots=True)
class ConstantView:
    """A constant."""

    name: str
    value: str
    cls: str
    is_reply: bool
    doc: str


def constant_views(protocol: Protocol) -> tuple[ConstantView, ...]:
    """Return the constants, in the order of the files."""
    return tuple(
        ConstantView(
            name=constant_name(constant.name),
            value=str(constant.value),
            cls=constant.cls,
            is_reply=not constant.name.startswith("frame-") or bool(constant.cls),
            doc=docstring(_sentence(constant.label or constant.name), 0, ""),
        )
        for constant in protocol.constants
    )
