"""Limits for what one client may use of the broker: ``[limits]``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from ferrymq_broker.config.memory import available_memory
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Bytes, Seconds, format_size

MIB: Final = 1024 * 1024
# By default incomplete messages of all clients may take one eighth of the memory.
UNFINISHED_PART: Final = 8
# The broker counts the bytes of a message, with the annotations that it may add, in 32 bits.
MAX_MESSAGE_BYTES: Final = 2047 * MIB


def _check_message_size(size: int) -> int:
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a message has at most {format_size(MAX_MESSAGE_BYTES)}, not {format_size(size)}"
        )
    return size


class Limits(Section):
    """``[limits]``: what one client may use of the broker."""

    # Connections at a time: of all clients, of one address, and of one user (counted from the open
    # on); 0 is no limit.
    connections: int = Field(default=10_000, ge=0, le=10_000_000)
    connections_per_address: int = Field(default=2500, ge=0, le=10_000_000)
    connections_per_user: int = Field(default=2500, ge=0, le=10_000_000)
    max_frame_size: Annotated[Bytes, Field(ge=512, le=16 * MIB)] = 65536
    max_message_size: Annotated[Bytes, Field(ge=1), AfterValidator(_check_message_size)] = 100 * MIB
    # Termini of one user that outlive their links, in each virtual host; 0 is no limit.
    termini_per_user: int = Field(default=10_000, ge=0, le=10_000_000)
    # The number of sessions of a connection, and of links of a session, minus one (AMQP 1.0
    # §2.7.1–2).
    channel_max: int = Field(default=2047, ge=0, le=65535)
    handle_max: int = Field(default=1023, ge=0, le=0xFFFFFFFF)
    # Links of a connection, in all of its sessions together.
    links: int = Field(default=4096, ge=1, le=1_000_000)
    # The bytes of one attach, and of all attaches of a connection together, without unsettled maps;
    # and the number of deliveries in one unsettled map.
    attach_size: Annotated[Bytes, Field(ge=512, le=16 * MIB)] = 16 * 1024
    attach_total: Annotated[Bytes, Field(ge=512, le=1024 * MIB)] = 4 * MIB
    unsettled_map: int = Field(default=10_000, ge=0, le=65_536)
    # Dynamic nodes of one connection that exist at a time.
    dynamic_nodes: int = Field(default=1000, ge=0, le=1_000_000)
    # Messages that a link, and a connection, may have received without settling them. The same
    # limits hold for messages that it has sent and whose outcomes it has not settled.
    unsettled: int = Field(default=20_000, ge=1, le=2**31)
    unsettled_per_connection: int = Field(default=100_000, ge=1, le=2**31)
    # Bytes of incomplete messages, of which only the first frames have arrived: of one connection,
    # and of all. The defaults follow from the largest message and from the size of the memory.
    unfinished: Annotated[Bytes, Field(ge=1, le=2**62)] | None = None
    unfinished_total: Annotated[Bytes, Field(ge=1, le=2**62)] | None = None
    # Transfer frames that a client may send on a session before the broker sends a new window.
    incoming_window: int = Field(default=2048, ge=1, le=0x7FFFFFFF)
    # Messages that a producer may send before the broker gives new credit.
    credit: int = Field(default=1000, ge=1, le=1_000_000)
    # Messages that all producers together may send before the broker gives new credit; 0 is no
    # limit.
    total_credit: int = Field(default=10_000_000, ge=0, le=2**62)
    # Messages and bytes that a client may send in a second, over one connection and over all
    # connections of a user together; 0 is no limit.
    messages_per_second: int = Field(default=0, ge=0, le=2**31)
    bytes_per_second: Annotated[Bytes, Field(ge=0, le=2**40)] = 0
    messages_per_second_per_user: int = Field(default=0, ge=0, le=2**31)
    bytes_per_second_per_user: Annotated[Bytes, Field(ge=0, le=2**40)] = 0
    # Transactions that a connection may have open, and how long one may take; 0 is no limit.
    transactions: int = Field(default=100, ge=1, le=1_000_000)
    transaction_timeout: Annotated[Seconds, Field(ge=0)] = 300.0
    # Messages and deliveries that one transaction may have, and the bytes of its messages together.
    transaction_work: int = Field(default=100_000, ge=1, le=2**31)
    transaction_bytes: Annotated[Bytes, Field(ge=1, le=2**62)] = 100 * MIB
    # A client that sends nothing for this time is disconnected; 0 is no limit.
    idle_time_out: Annotated[Seconds, Field(ge=0)] = 60.0
    handshake_timeout: Annotated[Seconds, Field(gt=0)] = 10.0
    # How long a client may take to answer a close; also how long the broker waits when it ends.
    close_timeout: Annotated[Seconds, Field(gt=0)] = 5.0

    def unfinished_bytes(self) -> int:
        """Return the limit for incomplete messages of a connection; by default one message."""
        return self.max_message_size if self.unfinished is None else self.unfinished

    def unfinished_total_bytes(self) -> int:
        """Return the limit for incomplete messages of all connections; by default one eighth of the
        memory."""
        if self.unfinished_total is not None:
            return self.unfinished_total
        return available_memory() // UNFINISHED_PART
