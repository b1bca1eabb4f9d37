"""What is written is read again, for every method, properties, field tables and frames."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from ferrymq_codec import Byte, Float32, Int, Short, Timestamp, UByte, UInt, UShort
from ferrymq_codec_0_9_1 import EpochSeconds, Method, frames
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_codec_0_9_1.tables import read_table, write_table
from ferrymq_types_0_9_1 import constants, registry
from ferrymq_types_0_9_1.basic import BasicDeliver, BasicProperties, BasicPublish
from ferrymq_types_0_9_1.connection import (
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStartOk,
    ConnectionUpdateSecret,
)
from ferrymq_types_0_9_1.exchange import ExchangeDeclare
from ferrymq_types_0_9_1.queue import QueueDeclare
from tests.types_0_9_1.strategies import METHODS, TABLES, properties


def table_bytes(table: dict[str, object]) -> bytes:
    w = BytesWriter()
    write_table(w, table, "table")
    return w.getvalue()


def table_of(data: bytes) -> dict[str, object]:
    r = FieldReader(data)
    table = read_table(r, "table")
    r.finish("table")
    return table


@given(METHODS)
def test_methods(method: Method) -> None:
    data = method.to_bytes()
    assert type(method).from_bytes(data) == method
    assert registry.decode_method(b"--" + data + b"-", 2, 2 + len(data)) == method
    assert int.from_bytes(data[:2], "big") == method.CLASS_ID
    assert int.from_bytes(data[2:4], "big") == method.METHOD_ID


@given(properties(), st.integers(0, (1 << 64) - 1))
def test_properties(value: BasicProperties, size: int) -> None:
    raw = value.to_bytes()
    assert BasicProperties.from_bytes(raw) == value
    w = BytesWriter()
    registry.write_header_frame(w, 7, 60, size, value)
    again = BytesWriter()
    registry.write_header_frame(again, 7, 60, size, raw)
    frame = w.getvalue()
    assert again.getvalue() == frame
    assert frames.frame_size(frame, 0, len(frame), 0) == len(frame)
    assert registry.decode_properties(frame, frames.PAYLOAD, len(frame) - 1) == (60, size, value)
    assert registry.split_header(frame, frames.PAYLOAD, len(frame) - 1) == (60, size, raw)


@given(TABLES)
def test_tables(table: dict[str, object]) -> None:
    data = table_bytes(table)
    found = table_of(data)
    assert found == table
    assert table_bytes(found) == data


@pytest.mark.parametrize("name", sorted(registry.NAMES))
def test_a_method_without_arguments_has_its_defaults(name: str) -> None:
    cls = registry.NAMES[name]
    method = cls()
    assert name == cls.NAME
    assert registry.METHODS[cls.CLASS_ID, cls.METHOD_ID] is cls
    assert cls.from_bytes(method.to_bytes()) == method
    assert copy.copy(method) == method
    assert pickle.loads(pickle.dumps(method)) == method
    assert cls.TO_SERVER or cls.TO_CLIENT
    for response in cls.RESPONSES:
        assert response.startswith(name.partition(".")[0])
        assert response in registry.NAMES


@pytest.mark.parametrize(
    ("method", "shown"),
    [
        (ConnectionSecure(challenge=b"x"), "ConnectionSecure(challenge=<hidden>)"),
        (ConnectionSecureOk(response=b"x"), "ConnectionSecureOk(response=<hidden>)"),
        (
            ConnectionStartOk(mechanism="PLAIN", response=b"\0alice\0sesame", locale="en_US"),
            "ConnectionStartOk(client_properties={}, mechanism='PLAIN', response=<hidden>, "
            "locale='en_US')",
        ),
        (
            ConnectionUpdateSecret(new_secret=b"token", reason="renewed"),
            "ConnectionUpdateSecret(new_secret=<hidden>, reason='renewed')",
        ),
    ],
)
def test_credentials_are_not_shown(method: Method, shown: str) -> None:
    assert repr(method) == shown
    assert registry.decode_method(method.to_bytes()) == method


def test_the_bytes_of_a_delivery() -> None:
    method = BasicDeliver(
        consumer_tag="c", delivery_tag=258, redelivered=True, exchange="", routing_key="q"
    )
    w = BytesWriter()
    registry.write_method_frame(w, 5, method)
    assert w.getvalue() == (
        b"\x01\x00\x05\x00\x00\x00\x12"
        b"\x00\x3c\x00\x3c\x01c\x00\x00\x00\x00\x00\x00\x01\x02\x01\x00\x01q"
        b"\xce"
    )


def test_bits_that_follow_each_other_share_an_octet() -> None:
    method = QueueDeclare(queue="q", durable=True, exclusive=True, no_wait=True)
    assert method.to_bytes() == b"\x00\x32\x00\x0a\x00\x00\x01q\x16\x00\x00\x00\x00"
    declare = ExchangeDeclare(exchange="e", exchange_type="fanout", internal=True)
    assert declare.to_bytes()[-5:] == b"\x08\x00\x00\x00\x00"


def test_reserved_fields_and_unknown_bits_are_not_read() -> None:
    data = b"\x00\x3c\x00\x28\xff\xff\x00\x01k\xfd"
    assert BasicPublish.from_bytes(data) == BasicPublish(routing_key="k", mandatory=True)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"t\x02", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"U\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 4294967295),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"f\x3f\xc0\x00\x00", 1.5),
        (b"d\x3f\xf8" + bytes(6), 1.5),
        (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")),
        (b"D\x00\xff\xff\xff\xff", Decimal(-1)),
        (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
        (b"x\x00\x00\x00\x01a", b"a"),
        (b"T\x00\x00\x00\x00\x00\x00\x00\x01", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (b"T\xff\xff\xff\xff\xff\xff\xff\xff", EpochSeconds((1 << 64) - 1)),
        (b"V", None),
        (b"F\x00\x00\x00\x03\x01kV", {"k": None}),
        (b"A\x00\x00\x00\x03Vt\x00", [None, False]),
    ],
)
def test_every_letter_is_read(data: bytes, value: object) -> None:
    table = b"\x01k" + data
    found = table_of(len(table).to_bytes(4, "big") + table)["k"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Byte(-1), b"b\xff"),
        (UByte(255), b"B\xff"),
        (Short(-2), b"s\xff\xfe"),
        (UShort(65534), b"u\xff\xfe"),
        (Int(-1), b"I\xff\xff\xff\xff"),
        (UInt(4294967295), b"i\xff\xff\xff\xff"),
        (1 << 31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
        (Float32(1.5), b"f\x3f\xc0\x00\x00"),
        (1.5, b"d\x3f\xf8" + bytes(6)),
        (Decimal("1.5e2"), b"D\x00\x00\x00\x00\x96"),
        (Timestamp(1999), b"T\x00\x00\x00\x00\x00\x00\x00\x01"),
        (EpochSeconds(1), b"T\x00\x00\x00\x00\x00\x00\x00\x01"),
        (
            datetime(1970, 1, 1, 1, 0, 1, tzinfo=timezone(timedelta(hours=1))),
            b"T\x00\x00\x00\x00\x00\x00\x00\x01",
        ),
        (bytearray(b"a"), b"x\x00\x00\x00\x01a"),
        ((1,), b"A\x00\x00\x00\x05I\x00\x00\x00\x01"),
        (True, b"t\x01"),
    ],
)
def test_what_is_written(value: object, data: bytes) -> None:
    assert table_bytes({"k": value})[4:] == b"\x01k" + data


@given(st.binary(max_size=60), st.integers(9, 40))
def test_a_body_goes_into_frames_that_are_small_enough(body: bytes, frame_max: int) -> None:
    w = BytesWriter()
    registry.write_body_frames(w, 3, body, frame_max)
    data = w.getvalue()
    found = b""
    pos = 0
    while pos < len(data):
        size = frames.frame_size(data, pos, len(data), frame_max)
        assert frames.OVERHEAD < size <= frame_max
        assert data[pos] == constants.FRAME_BODY
        assert frames.frame_channel(data, pos) == 3
        found += data[pos + frames.PAYLOAD : pos + size - 1]
        pos += size
    assert found == body


def test_a_frame_is_complete_with_its_last_byte() -> None:
    w = BytesWriter()
    registry.write_heartbeat(w)
    frame = w.getvalue()
    assert frame == b"\x08\x00\x00\x00\x00\x00\x00\xce"
    assert [frames.frame_size(frame, 0, end, 0) for end in range(9)] == [0] * 8 + [8]


def test_constants() -> None:
    assert (constants.FRAME_METHOD, constants.FRAME_HEADER) == (frames.METHOD, frames.HEADER)
    assert (constants.FRAME_BODY, constants.FRAME_HEARTBEAT) == (frames.BODY, frames.HEARTBEAT)
    assert constants.FRAME_END == frames.END
    assert constants.REPLY_NAMES[constants.NOT_FOUND] == "NOT_FOUND"
    assert constants.NOT_FOUND in constants.SOFT_ERRORS
    assert constants.FRAME_ERROR in constants.HARD_ERRORS
    assert not constants.SOFT_ERRORS & constants.HARD_ERRORS
