"""Stage 2: the files as one protocol; every mistake that the DTD cannot find.

A later file adds to what earlier ones say: constants, domains, classes, and methods of a class that
is there. With `replaces="1"` a domain or a method takes the place of the one of its name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ferrymq_codegen.amqp_0_9_1.model import (
    Assert,
    Class,
    Constant,
    Document,
    Domain,
    Field,
    Method,
)
from ferrymq_codegen.amqp_0_9_1.names import check as check_names
from ferrymq_codegen.mistakes import Location, Mistakes

ELEMENTARY: Final = frozenset(
    {"bit", "octet", "short", "long", "longlong", "shortstr", "longstr", "timestamp", "table"}
)
"""The domains that the codec implements (AMQP 0-9-1 §4.2.5)."""

MOST_PROPERTIES: Final = 15
"""The properties for which one word of flags has room; its last bit says that another follows."""

_STRINGS: Final = ("shortstr", "longstr")
# What the codec writes into every frame: the XML must agree.
_FRAMES: Final = {
    "frame-method": 1,
    "frame-header": 2,
    "frame-body": 3,
    "frame-heartbeat": 8,
    "frame-end": 206,
}
# These relate fields of two methods: only who has seen both can check them.
_BETWEEN_METHODS: Final = ("le", "eq", "ge", "lt", "gt", "ne")


@dataclass(frozen=True, slots=True)
class Protocol:
    """All constants, domains by name, and classes, in the order of the files."""

    constants: tuple[Constant, ...]
    domains: dict[str, Domain]
    classes: tuple[Class, ...]
    sources: tuple[tuple[str, str], ...]

    def type_of(self, field: Field) -> str:
        """Return the elementary domain of a field."""
        domain = self.domains.get(field.domain)
        return domain.type if domain is not None else field.domain

    def asserts(self, field: Field) -> tuple[Assert, ...]:
        """Return what the values of a field must fulfil: the asserts of its domain, then its
        own."""
        domain = self.domains.get(field.domain)
        return (domain.asserts if domain is not None else ()) + field.asserts


def resolve(documents: Iterable[Document]) -> Protocol:
    """Join the files and check them. Raises `SpecError` with every mistake."""
    mistakes = Mistakes()
    constants: dict[str, Constant] = {}
    domains: dict[str, Domain] = {}
    classes: dict[str, Class] = {}
    sources: list[tuple[str, str]] = []
    version: tuple[str, str, str] | None = None
    for document in documents:
        if version is None:
            version = document.version
            if version != ("0", "9", "1"):
                what = f"version {'-'.join(version)}: the generator knows 0-9-1"
                mistakes.add(document.at, what)
        elif document.version != version:
            what = f"version {'-'.join(document.version)}, not {'-'.join(version)}"
            mistakes.add(document.at, what)
        sources.append((document.file, document.sha256))
        for constant in document.constants:
            known = constants.setdefault(constant.name, constant)
            if known is not constant:
                what = f"constant {constant.name} is already defined at {known.at}"
                mistakes.add(constant.at, what)
        for domain in document.domains:
            _add_domain(domains, domain, mistakes)
        for cls in document.classes:
            _add_class(classes, cls, mistakes)
    protocol = Protocol(tuple(constants.values()), domains, tuple(classes.values()), tuple(sources))
    _check(protocol, mistakes)
    check_names(protocol.constants, protocol.classes, mistakes)
    mistakes.stop_if_any()
    return protocol


def _replaced(
    what: str, old_at: Location | None, replaces: bool, at: Location, mistakes: Mistakes
) -> None:
    """Report an element that is there already, or that replaces nothing."""
    if replaces and old_at is None:
        mistakes.add(at, f"{what} replaces nothing: no earlier file has it")
    elif not replaces and old_at is not None:
        mistakes.add(at, f"{what} is already defined at {old_at}")


def _add_domain(domains: dict[str, Domain], domain: Domain, mistakes: Mistakes) -> None:
    old = domains.get(domain.name)
    what = f"domain {domain.name}"
    _replaced(what, old.at if old else None, domain.replaces, domain.at, mistakes)
    if old is not None and old.type != domain.type:
        mistakes.add(domain.at, f"{what} has type {domain.type}, not {old.type} as at {old.at}")
    domains[domain.name] = domain


def _add_class(classes: dict[str, Class], cls: Class, mistakes: Mistakes) -> None:
    old = classes.get(cls.name)
    methods: dict[str, Method] = {}
    if old is not None:
        if (old.index, old.handler) != (cls.index, cls.handler):
            what = f"class {cls.name} has index {cls.index} and handler {cls.handler}"
            mistakes.add(cls.at, f"{what}, not {old.index} and {old.handler} as at {old.at}")
        if cls.fields:
            what = f"class {cls.name} has its properties at {old.at}: no others can be added"
            mistakes.add(cls.fields[0].at, what)
        methods.update((method.name, method) for method in old.methods)
    for method in cls.methods:
        before = methods.get(method.name)
        what = f"method {cls.name}.{method.name}"
        _replaced(what, before.at if before else None, method.replaces, method.at, mistakes)
        if before is not None and before.index != method.index:
            text = f"{what} has index {method.index}, not {before.index} as at {before.at}"
            mistakes.add(method.at, text)
        methods[method.name] = method
    base = old if old is not None else cls
    classes[cls.name] = dataclasses.replace(base, methods=tuple(methods.values()))


def _check(protocol: Protocol, mistakes: Mistakes) -> None:
    for constant in protocol.constants:
        expected = _FRAMES.get(constant.name, constant.value)
        if constant.value != expected:
            what = f"constant {constant.name} is {constant.value}: the codec writes {expected}"
            mistakes.add(constant.at, what)
    for domain in protocol.domains.values():
        if domain.type not in ELEMENTARY:
            what = f'domain {domain.name} has type "{domain.type}", which is not elementary'
            mistakes.add(domain.at, what)
        _check_asserts(f"domain {domain.name}", domain.type, domain.asserts, mistakes)
    indices: dict[int, Class] = {}
    for cls in protocol.classes:
        other = indices.setdefault(cls.index, cls)
        if other is not cls:
            what = f"class {cls.name} has index {cls.index}, as {other.name} at {other.at}"
            mistakes.add(cls.at, what)
        if len(cls.fields) > MOST_PROPERTIES:
            what = f"class {cls.name} has more than {MOST_PROPERTIES} properties"
            mistakes.add(cls.fields[MOST_PROPERTIES].at, what)
        _check_twice(f"class {cls.name}", cls.fields, mistakes)
        for field in cls.fields:
            _check_field(protocol, cls.name, field, mistakes)
            if protocol.type_of(field) == "bit":
                what = f"property {cls.name}.{field.name}: a bit has no room in a content header"
                mistakes.add(field.at, what)
        _check_methods(protocol, cls, mistakes)


def _check_methods(protocol: Protocol, cls: Class, mistakes: Mistakes) -> None:
    indices: dict[int, Method] = {}
    names = {method.name for method in cls.methods}
    for method in cls.methods:
        path = f"{cls.name}.{method.name}"
        other = indices.setdefault(method.index, method)
        if other is not method:
            what = f"method {path} has index {method.index}, as {other.name} at {other.at}"
            mistakes.add(method.at, what)
        if not method.sides:
            mistakes.add(method.at, f"method {path} has no chassis: no side may receive it")
        if method.content and not cls.fields:
            what = f"method {path} has a content, but class {cls.name} has no properties"
            mistakes.add(method.at, what)
        for response in method.responses:
            if response not in names:
                what = f"method {path} has response {response}, an unknown method"
                mistakes.add(method.at, what)
        _check_twice(f"method {path}", method.fields, mistakes)
        for field in method.fields:
            _check_field(protocol, path, field, mistakes)


def _check_twice(path: str, fields: tuple[Field, ...], mistakes: Mistakes) -> None:
    names: set[str] = set()
    for field in fields:
        if field.name in names:
            mistakes.add(field.at, f"{path} has two fields named {field.name}")
        names.add(field.name)


def _check_field(protocol: Protocol, path: str, field: Field, mistakes: Mistakes) -> None:
    what = f"field {path}.{field.name}"
    if not field.domain:
        return
    if field.domain not in protocol.domains:
        mistakes.add(field.at, f'{what} has domain "{field.domain}", an unknown domain')
        return
    _check_asserts(what, protocol.type_of(field), field.asserts, mistakes)


def _check_asserts(what: str, type_: str, asserts: tuple[Assert, ...], mistakes: Mistakes) -> None:
    for one in asserts:
        if one.check == "notnull" or one.check in _BETWEEN_METHODS:
            continue
        if one.check not in ("length", "regexp"):
            mistakes.add(one.at, f"{what}: the generator does not know the check {one.check}")
        elif type_ not in _STRINGS:
            mistakes.add(one.at, f"{what}: a {type_} has no {one.check}")
        elif one.check == "length":
            if not (one.value.isascii() and one.value.isdigit()):
                mistakes.add(one.at, f'{what}: length "{one.value}" is not a number')
        elif type_ == "longstr":
            mistakes.add(one.at, f"{what}: a longstr is bytes, which match no regexp")
        else:
            try:
                re.compile(one.value)
            except re.error as error:
                mistakes.add(one.at, f'{what}: "{one.value}" is not a pattern: {error}')
