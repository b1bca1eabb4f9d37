"""Hypothesis strategies for methods, properties and field tables, made from the definitions."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any

from hypothesis import strategies as st

from ferrymq_codec_0_9_1.method import Method
from ferrymq_codegen.amqp_0_9_1.model import Field
from ferrymq_codegen.amqp_0_9_1.names import field_name
from ferrymq_codegen.amqp_0_9_1.read import read_documents
from ferrymq_codegen.amqp_0_9_1.resolve import Protocol, resolve
from ferrymq_codegen.specification import FOLDERS_0_9_1
from ferrymq_types_0_9_1 import registry
from ferrymq_types_0_9_1.basic import BasicProperties

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Whole seconds: that is all a timestamp has.
TIMES = st.datetimes(
    min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)
).map(lambda value: value.replace(microsecond=0))
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=12)
    | TIMES
    | st.builds(
        lambda unscaled, places: Decimal(unscaled).scaleb(-places),
        st.integers(-(1 << 31), (1 << 31) - 1),
        st.integers(0, 20),
    )
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TABLES = st.dictionaries(TEXT, VALUES, max_size=4)

BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 0xFF),
    "short": st.integers(0, 0xFFFF),
    "long": st.integers(0, 0xFFFFFFFF),
    "longlong": st.integers(0, 0xFFFFFFFFFFFFFFFF),
    "shortstr": TEXT,
    "longstr": st.binary(max_size=20),
    "timestamp": TIMES,
    "table": TABLES,
}


@cache
def protocol() -> Protocol:
    """The definitions, as the generator reads them."""
    return resolve(read_documents(FOLDERS_0_9_1))


def _arguments(path: str, fields: tuple[Field, ...]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        field_name(path, field.name): BY_TYPE[protocol().type_of(field)]
        for field in fields
        if not field.reserved
    }


def method(cls: type[Method]) -> st.SearchStrategy[Method]:
    """Methods of a class."""
    name, _, short = cls.NAME.partition(".")
    (owner,) = [c for c in protocol().classes if c.name == name]
    (found,) = [m for m in owner.methods if m.name == short]
    return st.builds(cls, **_arguments(cls.NAME, found.fields))


METHODS = st.sampled_from(sorted(registry.NAMES)).flatmap(lambda n: method(registry.NAMES[n]))


@cache
def properties() -> st.SearchStrategy[BasicProperties]:
    """Properties, each set or not."""
    (basic,) = [c for c in protocol().classes if c.name == "basic"]
    arguments = _arguments("basic", basic.fields)
    return st.builds(BasicProperties, **{n: st.none() | s for n, s in arguments.items()})
