"""Hypothesis strategies for AMQP values, generated types and messages.

Every value that they make can be encoded, and is equal after it is decoded (there is no NaN). They
need `ferrymq[testing]`.

    from hypothesis import given
    from ferrymq import Message
    from ferrymq.testing.strategies import messages

    @given(messages())
    def test_my_handler(message: Message) -> None:
        ...
"""

from __future__ import annotations

import importlib
import string
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import Any, Final, TypeVar

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "ferrymq.testing.strategies needs hypothesis: pip install 'ferrymq[testing]'",
        name="hypothesis",
    ) from _error

from ferrymq.message import Message
from ferrymq_codec import (
    Array,
    Byte,
    Char,
    Described,
    Float32,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from ferrymq_codec.composite import Composite
from ferrymq_codec.type_schemas import FieldSchema, TypeSchema
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data
from ferrymq_types.schema import SCHEMAS

__all__ = [
    # Values
    "binaries",
    "scalars",
    "strings",
    "symbols",
    "values",
    # Types
    "composites",
    "of_type",
    "register",
    # Messages
    "message_annotations",
    "application_properties",
    "bodies",
    "message_ids",
    "messages",
]

CORE: Final = "ferrymq_types"

AnyComposite = TypeVar("AnyComposite", bound=Composite)

# Bits and sign of the integer types.
_INTEGERS: Final[dict[str, tuple[int, int]]] = {
    "ubyte": (0, 2**8 - 1),
    "ushort": (0, 2**16 - 1),
    "uint": (0, 2**32 - 1),
    "ulong": (0, 2**64 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
    "timestamp": (-(2**63), 2**63 - 1),
}
# Digits, and the bounds of the exponent, of the decimal types.
_DECIMALS: Final = {
    "decimal32": (7, -101, 90),
    "decimal64": (16, -398, 369),
    "decimal128": (34, -6176, 6111),
}


@cache
def _integers(name: str) -> st.SearchStrategy[int]:
    """Return the integers of a type; bounds, and those of the short encodings, come often."""
    low, high = _INTEGERS[name]
    edges = [v for v in (low, -129, -128, -1, 0, 1, 127, 128, 255, 256, high) if low <= v <= high]
    return st.sampled_from(edges) | st.integers(low, high)


@cache
def symbols(max_size: int = 300) -> st.SearchStrategy[str]:
    """Return symbols as `str`: letters, digits and `-:._`."""
    return st.text(string.ascii_letters + string.digits + "-:._", max_size=max_size)


@cache
def strings(max_size: int = 300) -> st.SearchStrategy[str]:
    """Return strings of any characters but surrogates; long ones come often."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)
    return text | st.just("é" * (max_size * 2 // 3))


@cache
def binaries(max_size: int = 300) -> st.SearchStrategy[bytes]:
    """Return bytes; those of `max_size` come often."""
    return st.binary(max_size=max_size) | st.just(b"x" * max_size)


@cache
def scalars() -> st.SearchStrategy[object]:
    """Return values of every primitive type that is no list, map or array.

    A type that Python has no value for has one of `ferrymq_codec`, such as `UInt` or `Symbol`.
    """
    return st.one_of(
        st.none(),
        st.booleans(),
        _integers("ubyte").map(UByte),
        _integers("ushort").map(UShort),
        _integers("uint").map(UInt),
        _integers("ulong").map(ULong),
        _integers("byte").map(Byte),
        _integers("short").map(Short),
        _integers("int").map(Int),
        _integers("long"),
        st.floats(width=32, allow_nan=False).map(Float32),
        st.floats(allow_nan=False),
        st.integers(-(10**33), 10**33).map(Decimal),
        st.characters(codec="utf-8").map(Char),
        _integers("timestamp").map(Timestamp),
        st.uuids(),
        binaries(),
        strings(),
        symbols().map(Symbol),
    )


@cache
def values(*, described: bool = False, max_leaves: int = 10) -> st.SearchStrategy[object]:
    """Return values of any type: scalars, and lists and maps of at most `max_leaves` of them.

    With `described`, arrays and values with descriptors are among them.
    """

    def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        found: list[st.SearchStrategy[object]] = [
            st.lists(inner, max_size=4),
            st.dictionaries(strings(40), inner, max_size=4),
        ]
        if described:
            found.append(st.builds(Described, st.integers(0, 15).map(ULong), inner))
            found.append(_arrays())
        return st.one_of(found)

    return st.recursive(scalars(), nested, max_leaves=max_leaves)


@cache
def _arrays() -> st.SearchStrategy[Array]:
    return st.lists(_integers("uint"), max_size=3).map(lambda items: Array("uint", items))


# ── Types ────────────────────────────────────────────────────────────────────────────────────────


def composites(cls: type[AnyComposite]) -> st.SearchStrategy[AnyComposite]:
    """Return instances of a generated class, of `ferrymq_types` or of a package of your own.

    Mandatory fields always have a value; others are often left out.

    Raises:
        LookupError: The class is not generated.
    """
    package = cls.__module__.rpartition(".")[0]
    full = f"{cls.__module__}.{cls.__qualname__}"
    try:
        schemas = _schemas(package)
    except ModuleNotFoundError as error:
        raise LookupError(f"{full} is not a generated class") from error
    for schema in schemas.values():
        if schema.python == full:
            return _Maker(schemas).described(schema)
    raise LookupError(f"{full} is not a generated class")


def of_type(name: str, package: str = CORE) -> st.SearchStrategy[Any]:
    """Return values of a type, given by its name in the XML, as a field of this type holds them.

    Raises:
        LookupError: The package has no such type.
    """
    schemas = _schemas(package)
    if name not in schemas:
        raise LookupError(f"{package} has no type {name}")
    return _Maker(schemas).values(name)


def register(package: str = CORE) -> None:
    """Have `hypothesis.strategies.from_type` make legal values of all classes of a package.

    Without it, a field of the type `ubyte` may get any integer, because its annotation is `int`.
    """
    for cls in importlib.import_module(f"{package}.registry").CLASSES.values():
        st.register_type_strategy(cls, composites(cls))
    st.register_type_strategy(Message, messages())


@cache
def _schemas(package: str) -> Mapping[str, TypeSchema]:
    """Return the types of a package and of the core, by name."""
    if package == CORE:
        return SCHEMAS
    return {**SCHEMAS, **importlib.import_module(f"{package}.schema").SCHEMAS}


class _Maker:
    """Strategies for the types of some schemas.

    What each type may hold follows from the XML; it is not taken from the generated code, which is
    tested with these values.
    """

    def __init__(self, schemas: Mapping[str, TypeSchema]) -> None:
        self._schemas = schemas

    def values(self, name: str) -> st.SearchStrategy[Any]:
        """Return the values of a type as a field holds them."""
        if name == "*":
            return _anything()
        schema = self._schemas[name]
        return self._content(schema) if schema.code is None else self.described(schema)

    def described(self, schema: TypeSchema) -> st.SearchStrategy[Any]:
        """Return instances of the class of a type with a descriptor."""
        cls = _python(schema.python)
        if schema.kind != "composite":
            return st.builds(cls, self._content(schema))
        required = {f.attribute: self._field(f) for f in schema.fields if f.mandatory}
        optional = {
            f.attribute: self._field(f) if f.default is not None else st.none() | self._field(f)
            for f in schema.fields
            if not f.mandatory
        }
        return st.fixed_dictionaries(required, optional=optional).map(_Called(cls))

    def _content(self, schema: TypeSchema) -> st.SearchStrategy[Any]:
        """Return what a type holds behind its descriptor, if it has one."""
        name = schema.name
        for restricted in self._chain(name):
            if restricted.keys is not None:
                return _maps(restricted.keys)
            if restricted.choices and not restricted.open:
                suffix = "" if restricted.code is None else "Choice"
                return st.sampled_from(list(_python(restricted.python + suffix)))
            name = restricted.source or restricted.name
        return _anything() if name == "*" else _primitive(name)

    def _chain(self, name: str) -> Iterator[TypeSchema]:
        """Yield a type and those that it restricts, down to a primitive type."""
        while name in self._schemas:
            schema = self._schemas[name]
            if schema.source is None:
                return
            yield schema
            name = schema.source

    def _field(self, field: FieldSchema) -> st.SearchStrategy[Any]:
        """Return what a field holds if it holds something."""
        one = self.values(field.type)
        if field.type == "*" and field.requires:
            providers = [
                self.values(schema.name)
                for schema in self._schemas.values()
                if set(schema.provides).intersection(field.requires)
            ]
            one = st.one_of(providers) if providers else one
        if field.multiple:
            return st.lists(one, min_size=1, max_size=4)
        # Null would be no value (AMQP 1.0 §1.4).
        return one.filter(_is_value) if field.mandatory else one


def _is_value(value: object) -> bool:
    return value is not None


class _Called:
    """A class called with the fields of a dict."""

    def __init__(self, cls: Callable[..., Any]) -> None:
        self._cls = cls

    def __call__(self, fields: dict[str, Any]) -> Any:
        return self._cls(**fields)


def _python(path: str) -> Any:
    """Return a class, an enum or an alias by its full name."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _anything() -> st.SearchStrategy[object]:
    """Return the values of `*` and those in maps: small, because a composite has many of them."""
    return values(described=True, max_leaves=3)


@cache
def _primitive(name: str) -> st.SearchStrategy[Any]:
    """Return the values of a primitive type as Python has them in a field."""
    if name in _INTEGERS:
        return _integers(name)
    if name in _DECIMALS:
        digits, low, high = _DECIMALS[name]
        numbers = st.integers(-(10**digits) + 1, 10**digits - 1)
        return st.builds(_decimal, numbers, st.integers(low, high))
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "float": st.floats(allow_nan=False, width=32),
        "double": st.floats(allow_nan=False),
        "char": st.characters(exclude_categories=["Cs"]),
        "uuid": st.uuids(),
        "binary": binaries(),
        "string": strings(),
        "symbol": st.text(st.characters(max_codepoint=127), max_size=20),
        "list": st.lists(_anything(), max_size=4),
        "map": st.dictionaries(strings(20), _anything(), max_size=4),
        "array": _arrays(),
    }
    return strategies[name]


def _decimal(number: int, exponent: int) -> Decimal:
    """Return `number` · 10^`exponent`, whatever the precision of the context."""
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, exponent))


@cache
def _maps(keys: str) -> st.SearchStrategy[Any]:
    """Return the maps whose keys are restricted (`TypeSchema.keys`)."""
    ascii_text = st.text(st.characters(max_codepoint=127), max_size=20)
    if keys == "string":
        return st.dictionaries(strings(20), scalars(), max_size=4)
    allowed = ascii_text if keys == "symbol" else ascii_text | _integers("ulong")
    return st.dictionaries(allowed, _anything(), max_size=4)


# ── Messages ─────────────────────────────────────────────────────────────────────────────────────


@cache
def message_ids() -> st.SearchStrategy[object]:
    """Return what a message-id or correlation-id may be: a ulong, UUID, binary or string."""
    return st.one_of(_integers("ulong"), st.uuids(), st.binary(max_size=40), strings())


@cache
def message_annotations() -> st.SearchStrategy[dict[str | int, object]]:
    """Return annotations: the keys are symbols or ulongs."""
    return st.dictionaries(symbols() | _integers("ulong"), values(), max_size=4)


@cache
def application_properties() -> st.SearchStrategy[dict[str, object]]:
    """Return application properties: the keys are strings, the values scalars."""
    return st.dictionaries(strings(), scalars(), max_size=5)


@cache
def bodies() -> st.SearchStrategy[object]:
    """Return bodies for `Message`: bytes, a value, a sequence, several sections of data or
    sequences."""
    return st.one_of(
        st.binary(max_size=600),
        values().map(AmqpValue),
        st.lists(values(), max_size=4).map(AmqpSequence),
        st.lists(st.binary(max_size=20).map(Data), min_size=1, max_size=4),
        st.lists(st.lists(values(), max_size=3).map(AmqpSequence), min_size=1, max_size=3),
    )


def messages(body: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[Message]:
    """Return messages with any of the fields; `body` is the strategy for their bodies."""
    milliseconds = _integers("timestamp")
    uints = _integers("uint")
    return st.builds(
        _message,
        bodies() if body is None else body,
        durable=st.booleans(),
        priority=_integers("ubyte"),
        # What is legal in seconds and in milliseconds.
        ttl=st.none() | st.integers(0, 4_294_967_295).map(lambda milliseconds: milliseconds / 1000),
        first_acquirer=st.booleans(),
        delivery_count=uints,
        message_id=st.none() | message_ids(),
        user_id=st.none() | st.binary(max_size=40),
        to=st.none() | strings(),
        subject=st.none() | strings(),
        reply_to=st.none() | strings(),
        correlation_id=st.none() | message_ids(),
        content_type=st.none() | symbols(),
        content_encoding=st.none() | symbols().filter(lambda symbol: symbol != "identity"),
        absolute_expiry_time=st.none() | milliseconds,
        creation_time=st.none() | milliseconds,
        group_id=st.none() | strings(),
        group_sequence=st.none() | uints,
        reply_to_group_id=st.none() | strings(),
        application_properties=st.none() | application_properties(),
        message_annotations=st.none() | message_annotations(),
        delivery_annotations=st.none() | message_annotations(),
        footer=st.none() | message_annotations(),
    )


def _message(body: Any, content_encoding: str | None, **fields: Any) -> Message:
    """Return a message; a content-encoding is for bodies of data alone (AMQP 1.0 §3.2.4)."""
    made = Message(body, **fields)
    if all(isinstance(section, Data) for section in made.body_sections):
        made.content_encoding = content_encoding
    return made
