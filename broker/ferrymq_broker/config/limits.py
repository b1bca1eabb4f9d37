"""What one client may make the broker do: ``[limits]``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Bytes, Seconds, format_size

MIB: Final = 1024 * 1024
# The broker counts the bytes of a message in 32 bits, with the annotations that it may add.
MAX_MESSAGE_BYTES: Final = 2047 * MIB


def _check_message_size(size: int) -> int:
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message has at most {format_size(MAX_MESSAGE_BYTES)}, not {format_size(size)}"
        )
    return size


class Limits(Section):
    """``[limits]``: what one client may make the broker do."""

    max_frame_size: Annotated[Bytes, Field(ge=512, le=16 * MIB)] = 65536
    max_message_size: Annotated[Bytes, Field(ge=1), AfterValidator(_check_message_size)] = 100 * MIB
    # Sessions of a connection and links of a session, less one (AMQP 1.0 §2.7.1–2).
    channel_max: int = Field(default=2047, ge=0, le=65535)
    handle_max: int = Field(default=1023, ge=0, le=0xFFFFFFFF)
    # Transfer frames a client may send on a session before it hears from the broker.
    incoming_window: int = Field(default=2048, ge=1, le=0x7FFFFFFF)
    # Messages a producer may send before it hears from the broker.
    credit: int = Field(default=1000, ge=1, le=1_000_000)
    # Messages all producers together may send before they hear from the broker; 0 is no limit.
    total_credit: int = Field(default=10_000_000, ge=0, le=2**62)
    # Transactions a connection may have open, and how long one may take; 0 lets it take for ever.
    transactions: int = Field(default=100, ge=1, le=1_000_000)
    transaction_timeout: Annotated[Seconds, Field(ge=0)] = 300.0
    # Messages and deliveries one transaction may have, and what its messages may add up to.
    transaction_work: int = Field(default=100_000, ge=1, le=2**31)
    transaction_bytes: Annotated[Bytes, Field(ge=1, le=2**62)] = 100 * MIB
    # A client that is silent this long is disconnected; 0 lets it be silent for ever.
    idle_time_out: Annotated[Seconds, Field(ge=0)] = 60.0
    handshake_timeout: Annotated[Seconds, Field(gt=0)] = 10.0
    # How long a client may take to answer a close; how long the broker waits at its end.
    close_timeout: Annotated[Seconds, Field(gt=0)] = 5.0
