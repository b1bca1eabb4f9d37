"""What we write, pamqp reads the same; what pamqp writes, we read the same.

pamqp has habits that restrict what can be compared: it reads decimals as unsigned, timestamps after
the year 2106 as milliseconds, long strings as text, and writes floats in 32 bits.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec_0_9_1 import Method, frames
from ferrymq_codegen.amqp_0_9_1.names import field_name
from ferrymq_types_0_9_1 import registry
from ferrymq_types_0_9_1.basic import BasicProperties
from tests.types_0_9_1.strategies import BY_TYPE, METHODS, TABLES, TEXT, properties, protocol

commands = pytest.importorskip("pamqp.commands")
frame = pytest.importorskip("pamqp.frame")
header = pytest.importorskip("pamqp.header")

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")

# pamqp's properties and ours.
_RENAMED = {"cluster_id": "reserved", "message_type": "type"}
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)


def comparable(value: object) -> object:
    """A value as pamqp gives it: bytes that are UTF-8 are text."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, dict):
        return {key: comparable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [comparable(inner) for inner in value]
    if isinstance(value, Decimal):
        assume(value >= 0)
    if isinstance(value, datetime):
        assume(value < _LATEST)
    return value


def given_to_pamqp(value: object) -> object:
    """A value of a table for pamqp: it writes a bytearray as bytes, and floats in 32 bits."""
    if isinstance(value, bytes):
        return bytearray(value)
    if isinstance(value, float):
        assume(value == _single(value))
    if isinstance(value, dict):
        return {key: given_to_pamqp(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [given_to_pamqp(inner) for inner in value]
    return value


def _single(value: float) -> float:
    try:
        return float(struct.unpack(">f", struct.pack(">f", value))[0])
    except OverflowError:
        return float("nan")


def attributes(method: Method) -> list[tuple[str, str, str]]:
    """Our name, pamqp's name and the type of each field that both have."""
    name, _, short = method.NAME.partition(".")
    (owner,) = [c for c in protocol().classes if c.name == name]
    (found,) = [m for m in owner.methods if m.name == short]
    theirs = pamqp_class(method).attributes()
    return [
        (field_name(method.NAME, field.name), their, protocol().type_of(field))
        for field, their in zip(found.fields, theirs, strict=True)
        if not field.reserved
    ]


def pamqp_class(method: Method) -> Any:
    return commands.INDEX_MAPPING[method.CLASS_ID << 16 | method.METHOD_ID]


def test_pamqp_knows_every_method_and_we_every_one_of_its() -> None:
    ours = {c << 16 | m: cls.NAME for (c, m), cls in registry.METHODS.items()}
    theirs = {
        index: cls.name.replace(".", "").lower() for index, cls in commands.INDEX_MAPPING.items()
    }
    assert {index: name.replace(".", "").replace("-", "") for index, name in ours.items()} == theirs
    for index, cls in commands.INDEX_MAPPING.items():
        # The definitions name no response of basic.recover.
        if ours[index] != "basic.recover":
            responses = [name.replace("-", "") for name in registry.NAMES[ours[index]].RESPONSES]
            assert responses == [name.lower() for name in cls.valid_responses]


@given(METHODS)
def test_pamqp_reads_our_methods(method: Method) -> None:
    w = BytesWriter()
    registry.write_method_frame(w, 9, method)
    data = w.getvalue()
    used, channel, read = frame.unmarshal(data)
    assert (used, channel) == (len(data), 9)
    for ours, theirs, kind in attributes(method):
        # pamqp takes all longlongs as signed.
        assume(kind != "longlong" or getattr(method, ours) < 1 << 63)
        assert comparable(getattr(read, theirs)) == comparable(getattr(method, ours))


@given(METHODS)
def test_we_read_pamqps_methods(method: Method) -> None:
    arguments: dict[str, Any] = {}
    for ours, theirs, kind in attributes(method):
        value = getattr(method, ours)
        arguments[theirs] = given_to_pamqp(value) if kind == "table" else comparable(value)
        # pamqp takes signed numbers only.
        assume(kind != "longlong" or value < 1 << 63)
        # Its longstr is text.
        assume(kind != "longstr" or isinstance(arguments[theirs], str))
    try:
        written = pamqp_class(method)(**arguments)
    except ValueError:
        # A name that the specification does not allow.
        assume(False)
    data = frame.marshal(written, 9)
    assert frames.frame_size(data, 0, len(data), 0) == len(data)
    assert registry.decode_method(data, frames.PAYLOAD, len(data) - 1) == method


@given(properties())
def test_pamqp_reads_our_properties(value: BasicProperties) -> None:
    w = BytesWriter()
    registry.write_header_frame(w, 3, 60, 11, value)
    _, channel, read = frame.unmarshal(w.getvalue())
    assert (channel, read.body_size) == (3, 11)
    for name in commands.Basic.Properties.attributes():
        held = comparable(getattr(value, _RENAMED.get(name, name)))
        found = comparable(getattr(read.properties, name))
        # For pamqp this one is empty if it is not set.
        assert (found or None if name == "cluster_id" else found) == (
            held or None if name == "cluster_id" else held
        ), name


@given(
    headers=TABLES,
    timestamp=st.none() | BY_TYPE["timestamp"],
    text=st.none() | TEXT.filter(bool),
    number=st.none() | st.integers(0, 9),
)
def test_we_read_pamqps_properties(
    headers: dict[str, object], timestamp: datetime | None, text: str | None, number: int | None
) -> None:
    written = commands.Basic.Properties(
        headers=given_to_pamqp(headers),
        timestamp=timestamp,
        content_type=text,
        app_id=text,
        priority=number,
        delivery_mode=2,
    )
    data = frame.marshal(header.ContentHeader(body_size=5, properties=written), 1)
    _, size, read = registry.decode_properties(data, frames.PAYLOAD, len(data) - 1)
    assert size == 5
    assert read == BasicProperties(
        headers=headers,
        timestamp=timestamp,
        content_type=text,
        app_id=text,
        priority=number,
        delivery_mode=2,
    )
