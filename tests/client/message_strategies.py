"""Hypothesis strategies for messages."""

from __future__ import annotations

import string
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from ferrymq.message import Message
from ferrymq_codec import (
    Byte,
    Char,
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
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    if signed:
        return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return st.integers(0, (1 << bits) - 1)


symbols = st.text(string.ascii_letters + string.digits + "-:._", max_size=300)
texts = st.text(max_size=300)
milliseconds = integers(64, True)

scalars: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    integers(8, False).map(UByte),
    integers(16, False).map(UShort),
    integers(32, False).map(UInt),
    integers(64, False).map(ULong),
    integers(8, True).map(Byte),
    integers(16, True).map(Short),
    integers(32, True).map(Int),
    integers(64, True),
    st.floats(width=32, allow_nan=False).map(Float32),
    st.floats(allow_nan=False),
    st.integers(-(10**33), 10**33).map(Decimal),
    st.characters(codec="utf-8").map(Char),
    milliseconds.map(Timestamp),
    st.uuids(),
    st.binary(max_size=300),
    texts,
    symbols.map(Symbol),
)

values: st.SearchStrategy[object] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)

message_ids = st.one_of(integers(64, False), st.uuids(), st.binary(max_size=40), texts)
annotations = st.dictionaries(symbols | integers(64, False), values, max_size=4)

bodies = st.one_of(
    st.binary(max_size=600),
    values.map(AmqpValue),
    st.lists(values, max_size=4).map(AmqpSequence),
    st.lists(st.binary(max_size=20).map(Data), min_size=1, max_size=4),
    st.lists(st.lists(values, max_size=3).map(AmqpSequence), min_size=1, max_size=3),
)


def message(body: object, content_encoding: str | None, **fields: Any) -> Message:
    """A message; an encoding is for bodies of data alone (AMQP 1.0 §3.2.4)."""
    made = Message(body, **fields)
    if all(isinstance(section, Data) for section in made.body_sections):
        made.content_encoding = content_encoding
    return made


messages = st.builds(
    message,
    bodies,
    durable=st.booleans(),
    priority=integers(8, False),
    ttl=st.none() | integers(32, False).map(lambda ttl: ttl / 1000),
    first_acquirer=st.booleans(),
    delivery_count=integers(32, False),
    message_id=st.none() | message_ids,
    user_id=st.none() | st.binary(max_size=40),
    to=st.none() | texts,
    subject=st.none() | texts,
    reply_to=st.none() | texts,
    correlation_id=st.none() | message_ids,
    content_type=st.none() | symbols,
    content_encoding=st.none() | symbols.filter(lambda symbol: symbol != "identity"),
    absolute_expiry_time=st.none() | milliseconds,
    creation_time=st.none() | milliseconds,
    group_id=st.none() | texts,
    group_sequence=st.none() | integers(32, False),
    reply_to_group_id=st.none() | texts,
    application_properties=st.none() | st.dictionaries(texts, scalars, max_size=5),
    message_annotations=st.none() | annotations,
    delivery_annotations=st.none() | annotations,
    footer=st.none() | annotations,
)
