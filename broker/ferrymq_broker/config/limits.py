"""Limits for what one client may use of the broker: ``[limits]``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from ferrymq_broker.config.memory import available_memory
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Bytes, Seconds, format_size

MIB: Final = 1024 * 1024
# Incomplete messages of all clients may take one part in so many of the memory.
UNFINISHED_PART: Final = 8
# The broker counts the bytes of a message in 32 bits, with the annotations that it may add.
MAX_MESSAGE_BYTES: Final = 2047 * MIB


def _check_message_size(size: int) -> int:
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message has at most {format_size(MAX_MESSAGE_BYTES)}, not {format_size(size)}"
        )
    return size


class Limits(Section):
    """``[limits]``: what one client may use of the broker."""

    # Connections at a time: of all clients, of one address, and of one user (counted from its
    # open); 0 is no limit.
    connections: int = Field(default=10_000, ge=0, le=10_000_000)
    connections_per_address: int = Field(default=2500, ge=0, le=10_000_000)
    connections_per_user: int = Field(default=2500, ge=0, le=10_000_000)
    max_frame_size: Annotated[Bytes, Field(ge=512, le=16 * MIB)] = 65536
    max_message_size: Annotated[Bytes, Field(ge=1), AfterValidator(_check_message_size)] = 100 * MIB
    # Termini of one user that outlive their links, in each virtual host; 0 is no limit.
    termini_per_user: int = Field(default=10_000, ge=0, le=10_000_000)
    # Sessions of a connection and links of a session, less one (AMQP 1.0 §2.7.1–2).
    channel_max: int = Field(default=2047, ge=0, le=65535)
    handle_max: int = Field(default=1023, ge=0, le=0xFFFFFFFF)
    # Links of a connection, over all of its sessions.
    links: int = Field(default=4096, ge=1, le=1_000_000)
    # What one attach may have, and all of a connection together, without unsettled maps; and the
    # deliveries one unsettled map may list.
    attach_size: Annotated[Bytes, Field(ge=512, le=16 * MIB)] = 16 * 1024
    attach_total: Annotated[Bytes, Field(ge=512, le=1024 * MIB)] = 4 * MIB
    unsettled_map: int = Field(default=10_000, ge=0, le=65_536)
    # Dynamic nodes of one connection that exist at a time.
    dynamic_nodes: int = Field(default=1000, ge=0, le=1_000_000)
    # Messages that one link, and a connection, may have without settling them; and those it may
    # have sent without settling what it was told of them.
    unsettled: int = Field(default=20_000, ge=1, le=2**31)
    unsettled_per_connection: int = Field(default=100_000, ge=1, le=2**31)
    # Bytes of messages of which only the first frames have come: of one connection, and of all.
    # What is not said follows from the largest message and the memory there is.
    unfinished: Annotated[Bytes, Field(ge=1, le=2**62)] | None = None
    unfinished_total: Annotated[Bytes, Field(ge=1, le=2**62)] | None = None
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

    def unfinished_bytes(self) -> int:
        """Return the limit for incomplete messages of a connection; by default one message."""
        return self.max_message_size if self.unfinished is None else self.unfinished

    def unfinished_total_bytes(self) -> int:
        """Return the limit for incomplete messages of all; by default a part of the memory."""
        if self.unfinished_total is not None:
            return self.unfinished_total
        return available_memory() // UNFINISHED_PART
