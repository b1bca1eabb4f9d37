"""Frames made by hand (AMQP 1.0 §2.3, §2.7, §5.3): every performative, right or wrong.

Fields are encoded values (`values`), so that a test can put anything anywhere.
"""

from __future__ import annotations

import struct
from typing import Final

from tests.raw.values import (
    FALSE,
    NULL,
    TRUE,
    binary,
    composite,
    string,
    symbol,
    uint,
    ushort,
)

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

MAX32: Final = 0xFFFFFFFF

OPEN: Final = 0x10
BEGIN: Final = 0x11
ATTACH: Final = 0x12
FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
DETACH: Final = 0x16
END: Final = 0x17
CLOSE: Final = 0x18
SASL_MECHANISMS: Final = 0x40
SASL_INIT: Final = 0x41
SASL_CHALLENGE: Final = 0x42
SASL_RESPONSE: Final = 0x43
SASL_OUTCOME: Final = 0x44

SOURCE: Final = 0x28
TARGET: Final = 0x29
COORDINATOR: Final = 0x30
DECLARE: Final = 0x31


def frame(body: bytes, channel: int = 0, kind: int = 0, doff: int = 2, size: int = -1) -> bytes:
    """A frame. `size` and `doff` may say what is not so; −1 is the true size."""
    padding = bytes(max(0, 4 * doff - 8)) if size < 0 else b""
    if size < 0:
        size = 8 + len(padding) + len(body)
    return struct.pack(">IBBH", size, doff, kind, channel) + padding + body


def sasl_frame(code: int, *fields: bytes) -> bytes:
    """A frame of the security layer (AMQP 1.0 §5.3.1)."""
    return frame(composite(code, list(fields)), kind=1)


def sasl_init(mechanism: str = "ANONYMOUS", response: bytes = b"", hostname: str = "") -> bytes:
    """What a client begins with (AMQP 1.0 §5.3.3.2)."""
    return sasl_frame(SASL_INIT, symbol(mechanism), binary(response), string(hostname))


def sasl_response(response: bytes) -> bytes:
    """A client's answer to a challenge."""
    return sasl_frame(SASL_RESPONSE, binary(response))


def open_frame(
    container: bytes = b"",
    hostname: bytes = NULL,
    max_frame_size: int = MAX32,
    channel_max: int = 65535,
    idle_time_out: bytes = NULL,
    properties: bytes = NULL,
    channel: int = 0,
) -> bytes:
    """An open (AMQP 1.0 §2.7.1)."""
    fields = [
        container or string("attacker"), hostname, uint(max_frame_size), ushort(channel_max),
        idle_time_out, NULL, NULL, NULL, NULL, properties,
    ]  # fmt: skip
    return frame(composite(OPEN, fields), channel)


def begin_frame(
    channel: int = 0,
    remote_channel: bytes = NULL,
    incoming_window: int = 0x7FFFFFFF,
    outgoing_window: int = 0x7FFFFFFF,
    next_outgoing_id: int = 0,
    handle_max: int = MAX32,
    properties: bytes = NULL,
) -> bytes:
    """A begin (AMQP 1.0 §2.7.2)."""
    fields = [
        remote_channel, uint(next_outgoing_id), uint(incoming_window), uint(outgoing_window),
        uint(handle_max), NULL, NULL, properties,
    ]  # fmt: skip
    return frame(composite(BEGIN, fields), channel)


def source(
    address: bytes = NULL,
    dynamic: bytes = NULL,
    filters: bytes = NULL,
    durable: bytes = NULL,
    expiry: bytes = NULL,
    properties: bytes = NULL,
    capabilities: bytes = NULL,
    outcomes: bytes = NULL,
    mode: bytes = NULL,
) -> bytes:
    """A source (AMQP 1.0 §3.5.3)."""
    fields = [
        address, durable, expiry, NULL, dynamic, properties, mode, filters, NULL, outcomes,
        capabilities,
    ]  # fmt: skip
    return composite(SOURCE, fields)


def target(
    address: bytes = NULL,
    dynamic: bytes = NULL,
    durable: bytes = NULL,
    expiry: bytes = NULL,
    properties: bytes = NULL,
    capabilities: bytes = NULL,
) -> bytes:
    """A target (AMQP 1.0 §3.5.4)."""
    fields = [address, durable, expiry, NULL, dynamic, properties, capabilities]
    return composite(TARGET, fields)


def attach_frame(
    name: str | bytes,
    handle: int = 0,
    receiver: bool = False,
    source: bytes = NULL,
    target: bytes = NULL,
    channel: int = 0,
    snd_settle_mode: bytes = NULL,
    rcv_settle_mode: bytes = NULL,
    unsettled: bytes = NULL,
    incomplete: bytes = NULL,
    initial_delivery_count: bytes = b"",
    max_message_size: bytes = NULL,
    properties: bytes = NULL,
) -> bytes:
    """An attach (AMQP 1.0 §2.7.3) of a link on which the client sends, or is the receiver."""
    count = initial_delivery_count or (NULL if receiver else uint(0))
    fields = [
        string(name), uint(handle), TRUE if receiver else FALSE, snd_settle_mode, rcv_settle_mode,
        source, target, unsettled, incomplete, count, max_message_size, NULL, NULL, properties,
    ]  # fmt: skip
    return frame(composite(ATTACH, fields), channel)


def flow_frame(
    handle: bytes = NULL,
    credit: bytes = NULL,
    delivery_count: bytes = NULL,
    channel: int = 0,
    next_incoming_id: bytes = b"\x43",
    incoming_window: int = 0x7FFFFFFF,
    next_outgoing_id: int = 0,
    outgoing_window: int = 0x7FFFFFFF,
    drain: bytes = NULL,
    echo: bytes = NULL,
    properties: bytes = NULL,
    available: bytes = NULL,
) -> bytes:
    """A flow (AMQP 1.0 §2.7.4)."""
    fields = [
        next_incoming_id, uint(incoming_window), uint(next_outgoing_id), uint(outgoing_window),
        handle, delivery_count, credit, available, drain, echo, properties,
    ]  # fmt: skip
    return frame(composite(FLOW, fields), channel)


def transfer_frame(
    payload: bytes = b"",
    handle: int = 0,
    delivery_id: bytes = NULL,
    tag: bytes = NULL,
    settled: bytes = NULL,
    more: bytes = NULL,
    state: bytes = NULL,
    resume: bytes = NULL,
    aborted: bytes = NULL,
    message_format: bytes = NULL,
    rcv_settle_mode: bytes = NULL,
    channel: int = 0,
) -> bytes:
    """A transfer (AMQP 1.0 §2.7.5)."""
    fields = [
        uint(handle), delivery_id, tag, message_format, settled, more, rcv_settle_mode, state,
        resume, aborted,
    ]  # fmt: skip
    return frame(composite(TRANSFER, fields) + payload, channel)


def disposition_frame(
    first: int,
    last: bytes = NULL,
    receiver: bool = True,
    settled: bytes = NULL,
    state: bytes = NULL,
    channel: int = 0,
) -> bytes:
    """A disposition (AMQP 1.0 §2.7.6)."""
    fields = [TRUE if receiver else FALSE, uint(first), last, settled, state]
    return frame(composite(DISPOSITION, fields), channel)


def detach_frame(handle: int = 0, closed: bool = True, channel: int = 0) -> bytes:
    """A detach (AMQP 1.0 §2.7.7)."""
    return frame(composite(DETACH, [uint(handle), TRUE if closed else FALSE]), channel)


def end_frame(channel: int = 0) -> bytes:
    """An end (AMQP 1.0 §2.7.8)."""
    return frame(composite(END, []), channel)


def close_frame(channel: int = 0) -> bytes:
    """A close (AMQP 1.0 §2.7.9)."""
    return frame(composite(CLOSE, []), channel)
