"""Bytes that are no legal encoding give `DecodeError`, values that have none `EncodeError`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import DecodeError, EncodeError
from ferrymq_codec_0_9_1 import Method, UnknownMethod, frames
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_codec_0_9_1.tables import read_table, write_table
from ferrymq_types_0_9_1 import registry
from ferrymq_types_0_9_1.basic import BasicAck, BasicDeliver, BasicProperties, BasicPublish
from ferrymq_types_0_9_1.connection import ConnectionOpen, ConnectionStartOk
from ferrymq_types_0_9_1.exchange import ExchangeDeclare
from tests.types_0_9_1.strategies import METHODS, properties


def decoded(decode: Callable[[bytes], object], data: bytes) -> None:
    """Decode; nothing but a `DecodeError` with a place and a reason may come of it."""
    try:
        decode(data)
    except DecodeError as error:
        assert 0 <= error.offset <= len(data)
        assert error.field and error.reason


def corrupt(data: bytes, place: int, value: int, cut: int) -> bytes:
    at = place % len(data)
    changed = data[:at] + bytes([value]) + data[at + 1 :]
    return changed[: len(changed) - cut % len(changed)]


CHANGES = (st.integers(0, 200), st.integers(0, 255), st.integers(0, 3))


@given(METHODS, *CHANGES)
def test_changed_methods(method: Method, place: int, value: int, cut: int) -> None:
    decoded(registry.decode_method, corrupt(method.to_bytes(), place, value, cut))


@given(properties(), *CHANGES)
def test_changed_properties(held: BasicProperties, place: int, value: int, cut: int) -> None:
    head = b"\x00\x3c\x00\x00" + bytes(8)
    decoded(registry.decode_properties, corrupt(head + held.to_bytes(), place, value, cut))


@given(st.binary(max_size=60))
def test_random_bytes(data: bytes) -> None:
    decoded(registry.decode_method, data)
    decoded(registry.decode_properties, data)
    decoded(registry.split_header, data)
    decoded(BasicProperties.from_bytes, data)
    decoded(lambda d: frames.frame_size(d, 0, len(d), 4096), data)
    decoded(lambda d: read_table(FieldReader(d), "table"), data)


@given(METHODS)
def test_methods_that_are_cut_off_or_too_long(method: Method) -> None:
    data = method.to_bytes()
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            registry.decode_method(data, 0, end)
    with pytest.raises(DecodeError):
        registry.decode_method(data + b"\x00")


def refuses(decode: Callable[[bytes], object], data: bytes, field: str, reason: str) -> None:
    with pytest.raises(DecodeError) as found:
        decode(data)
    assert found.value.field == field
    assert reason in found.value.reason


def test_the_error_names_the_field() -> None:
    data = BasicDeliver(consumer_tag="c", exchange="e").to_bytes()
    refuses(registry.decode_method, data[:5], "basic.deliver.consumer-tag", "truncated: 1 bytes")
    refuses(registry.decode_method, data[:9], "basic.deliver.delivery-tag", "truncated: 8 bytes")
    refuses(registry.decode_method, data + b"\x00", "basic.deliver", "1 bytes follow")
    broken = data.replace(b"\x01c", b"\x01\xff")
    refuses(registry.decode_method, broken, "basic.deliver.consumer-tag", "not UTF-8")
    long = ConnectionOpen(virtual_host="v" * 127).to_bytes()
    wrong = long[:4] + bytes([128]) + b"v" * 128 + long[-2:]
    refuses(registry.decode_method, wrong, "connection.open.virtual-host", "128 bytes, not at most")


def test_unknown_methods() -> None:
    for data, ids in ((b"\x00\x3c\x00\x63", (60, 99)), (b"\x00\x0b\x00\x0a\x01", (11, 10))):
        with pytest.raises(UnknownMethod) as found:
            registry.decode_method(data)
        assert (found.value.class_id, found.value.method_id) == ids
        assert isinstance(found.value, DecodeError)


def test_another_method_than_the_class() -> None:
    refuses(BasicAck.from_bytes, BasicPublish().to_bytes(), "basic.ack", "not a basic.ack")


def test_property_flags() -> None:
    read = BasicProperties.from_bytes
    refuses(read, b"\x00\x01\x00\x00", "basic.property-flags", "a second word of flags")
    refuses(read, b"\x00\x02", "basic.property-flags", "a flag of no property")
    refuses(read, b"\x80\x00\x05a", "basic.content-type", "truncated")
    refuses(read, b"\x00", "basic.property-flags", "truncated")


def test_content_headers() -> None:
    read = registry.decode_properties
    refuses(read, b"\x00\x32\x00\x00" + bytes(10), "header.class-id", "class 50 has no content")
    refuses(read, b"\x00\x3c\x00\x01" + bytes(10), "header.weight", "not 0")
    refuses(registry.split_header, b"\x00\x3c\x00\x01" + bytes(10), "header.weight", "not 0")
    refuses(registry.split_header, b"\x00\x3c" + bytes(11), "header.property-flags", "truncated")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (b"\x00\x00\x00\x05\x01kV", "size 5 does not fit"),
        (b"\x00\x00\x00\x02\x01k", "no octet is left"),
        (b"\x00\x00\x00\x03\x01kZ", "0x5a is not the letter of a type"),
        (b"\x00\x00\x00\x04\x01kI\x00", "truncated"),
        (b"\x00\x00\x00\x03\x01\xffV", "not UTF-8"),
        (b"\x00\x00\x00\x07\x01kF\x00\x00\x00\x09", "size 9 does not fit"),
        (b"\x00\x00\x00\x08\x01kS\xff\xff\xff\xff\x00", "truncated: 4294967295 bytes"),
    ],
)
def test_tables(table: bytes, reason: str) -> None:
    refuses(lambda data: read_table(FieldReader(data), "table"), table, "table", reason)


def test_depth_is_bounded() -> None:
    inner = b""
    for _ in range(40):
        inner = b"\x01kF" + len(inner).to_bytes(4, "big") + inner
    data = len(inner).to_bytes(4, "big") + inner
    refuses(lambda d: read_table(FieldReader(d), "table"), data, "table", "nested too deeply")
    array: object = []
    table: dict[str, object] = {}
    for _ in range(40):
        array = [array]
        table = {"k": table}
    for value in (array, table):
        with pytest.raises(EncodeError, match="nested too deeply"):
            write_table(BytesWriter(), {"k": value}, "table")


def test_the_number_of_values_is_bounded() -> None:
    reader = FieldReader(b"\x00\x00\x00\x06\x01kV\x01lV")
    reader.budget = 1
    with pytest.raises(DecodeError, match="too many values"):
        read_table(reader, "table")


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (b"A", "frame.type"),
        (b"\x01\x00\x00\x00\x00\x10\x00\x00", "frame.size"),
        (b"\x01\x00\x00\x00\x00\x00\x01\x00\xcd", "frame.end"),
    ],
)
def test_frames(frame: bytes, field: str) -> None:
    refuses(lambda data: frames.frame_size(data, 0, len(data), 4096), frame, field, "")


@pytest.mark.parametrize(
    ("method", "field"),
    [
        (BasicDeliver(consumer_tag="x" * 256), "basic.deliver.consumer-tag"),
        (BasicDeliver(routing_key="\ud800"), "basic.deliver.routing-key"),
        (BasicDeliver(delivery_tag=-1), "basic.deliver.delivery-tag"),
        (BasicDeliver(delivery_tag=1 << 64), "basic.deliver.delivery-tag"),
        (ConnectionOpen(virtual_host="v" * 128), "connection.open.virtual-host"),
        (ExchangeDeclare(arguments={"a": object()}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a" * 256: 1}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a": 1 << 63}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a": "\ud800"}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a": Decimal("NaN")}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a": Decimal("1e999999")}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a": Decimal("0." + "1" * 11)}), "exchange.declare.arguments"),
        (ExchangeDeclare(arguments={"a": datetime(2020, 1, 1)}), "exchange.declare.arguments"),
    ],
)
def test_values_that_do_not_fit(method: Method, field: str) -> None:
    with pytest.raises(EncodeError) as found:
        method.to_bytes()
    assert found.value.field == field


def test_values_of_another_type() -> None:
    # A compiled class refuses the value itself.
    with pytest.raises((EncodeError, TypeError), match=r"str|response"):
        ConnectionStartOk(response="text").to_bytes()  # type: ignore[arg-type]
    with pytest.raises((EncodeError, TypeError)):
        ExchangeDeclare(exchange=None).to_bytes()  # type: ignore[arg-type]
    with pytest.raises((EncodeError, TypeError)):
        BasicProperties(priority="1").to_bytes()  # type: ignore[arg-type]


def test_properties_that_do_not_fit() -> None:
    with pytest.raises(EncodeError) as found:
        BasicProperties(timestamp=-1).to_bytes()
    assert found.value.field == "basic.timestamp"


@pytest.mark.parametrize("channel", [-1, 65536])
def test_channels(channel: int) -> None:
    with pytest.raises(EncodeError, match="out of range"):
        registry.write_method_frame(BytesWriter(), channel, BasicAck())


def test_a_frame_without_room() -> None:
    with pytest.raises(EncodeError, match="no room"):
        registry.write_body_frames(BytesWriter(), 1, b"a", 8)
