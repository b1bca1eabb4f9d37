"""Frames of AMQP 0-9-1 in a loop, as a server writes and reads them (AMQP 0-9-1 §4.2.3, §4.2.6).

One operation of encoding makes a `BasicDeliver` and writes its method frame. The output is taken
once for every `BATCH` frames. One operation of decoding finds the next frame in the input, checks
its envelope, and reads its method. `deliveries` and `publishes` do so for whole messages: a method,
a header whose properties stay bytes, and a body.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_codec_0_9_1.frames import (
    PAYLOAD,
    frame_channel,
    frame_size,
    write_body_frames,
    write_raw_header,
)
from ferrymq_codec_0_9_1.reader import FieldReader
from ferrymq_types_0_9_1.basic import BasicDeliver, BasicPublish
from ferrymq_types_0_9_1.constants import FRAME_HEADER, FRAME_METHOD
from ferrymq_types_0_9_1.registry import read_method, split_header, write_method_frame

BATCH: Final = 64
FRAME_MAX: Final = 131_072
TAG: Final = "ctag1.9f3a"
EXCHANGE: Final = "orders"
KEY: Final = "orders.eu.new"
# All delivery tags have eight bytes on the wire.
FIRST: Final = 1000
BASIC: Final = 60


def encode(count: int) -> int:
    """Encode `count` frames with a basic.deliver, and return their size in bytes."""
    done: i64 = 0
    total: i64 = 0
    wanted: i64 = count
    w = BytesWriter()
    while done < wanted:
        method = BasicDeliver(
            consumer_tag=TAG, delivery_tag=FIRST + done, exchange=EXCHANGE, routing_key=KEY
        )
        write_method_frame(w, 1, method)
        done += 1
        if done % BATCH == 0:
            total += len(w.getvalue())
            w = BytesWriter()
    return total + len(w.getvalue())


def frames(count: int) -> bytes:
    """Return `count` frames with a basic.deliver, as input for `decode`."""
    w = BytesWriter()
    i: i64 = 0
    while i < count:
        method = BasicDeliver(
            consumer_tag=TAG, delivery_tag=FIRST + i, exchange=EXCHANGE, routing_key=KEY
        )
        write_method_frame(w, 1, method)
        i += 1
    return w.getvalue()


def decode(count: int, data: bytes) -> int:
    """Decode at least `count` frames out of `data`, repeatedly, and return the sum of channels.

    `data` holds whole frames.
    """
    done: i64 = 0
    total: i64 = 0
    wanted: i64 = count
    end: i64 = len(data)
    reader = FieldReader(data)
    while done < wanted:
        pos: i64 = 0
        while pos < end:
            size = frame_size(data, pos, end, FRAME_MAX)
            reader.reset(data, pos + PAYLOAD, pos + size - 1)
            method = read_method(reader)
            if isinstance(method, BasicDeliver):
                total += frame_channel(data, pos)
            pos += size
            done += 1
    return total


def deliveries(count: int, properties: bytes, body: bytes) -> int:
    """Encode `count` deliveries: method, header and body; return their size in bytes."""
    done: i64 = 0
    total: i64 = 0
    wanted: i64 = count
    size = len(body)
    w = BytesWriter()
    while done < wanted:
        method = BasicDeliver(
            consumer_tag=TAG, delivery_tag=FIRST + done, exchange=EXCHANGE, routing_key=KEY
        )
        write_method_frame(w, 1, method)
        write_raw_header(w, 1, BASIC, size, properties)
        write_body_frames(w, 1, body, FRAME_MAX)
        done += 1
        if done % BATCH == 0:
            total += len(w.getvalue())
            w = BytesWriter()
    return total + len(w.getvalue())


def messages(count: int, properties: bytes, body: bytes) -> bytes:
    """Return `count` messages that are published, as input for `publishes`."""
    w = BytesWriter()
    i: i64 = 0
    while i < count:
        write_method_frame(w, 1, BasicPublish(exchange=EXCHANGE, routing_key=KEY))
        write_raw_header(w, 1, BASIC, len(body), properties)
        write_body_frames(w, 1, body, FRAME_MAX)
        i += 1
    return w.getvalue()


def publishes(count: int, data: bytes) -> int:
    """Decode at least `count` published messages out of `data`, repeatedly; return their bytes.

    The properties stay bytes, the body is cut out.
    """
    done: i64 = 0
    total: i64 = 0
    wanted: i64 = count
    end: i64 = len(data)
    reader = FieldReader(data)
    while done < wanted:
        pos: i64 = 0
        while pos < end:
            size = frame_size(data, pos, end, FRAME_MAX)
            kind: i64 = data[pos]
            if kind == FRAME_METHOD:
                reader.reset(data, pos + PAYLOAD, pos + size - 1)
                if isinstance(read_method(reader), BasicPublish):
                    done += 1
            elif kind == FRAME_HEADER:
                _, _, properties = split_header(data, pos + PAYLOAD, pos + size - 1)
                total += len(properties)
            else:
                total += len(data[pos + PAYLOAD : pos + size - 1])
            pos += size
    return total
