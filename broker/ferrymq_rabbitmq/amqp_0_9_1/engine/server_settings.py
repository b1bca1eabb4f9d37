"""Settings of the engine: what the server offers, and its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_types_0_9_1.constants import FRAME_MIN_SIZE

if TYPE_CHECKING:
    from ferrymq.engine.unfinished import Budget

CAPABILITIES: Final[dict[str, object]] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}
"""The capabilities in the server's properties, by which clients decide what to use."""


@final
class ServerSettings:
    """The settings of one connection.

    `properties` are told to the client, with `CAPABILITIES`. `heartbeat` and the time-outs are in
    seconds, sizes in bytes. `unfinished` counts the bytes of incomplete messages of all
    connections, `max_unfinished` bounds those of this one; 0 is no limit.
    """

    __slots__ = (
        "properties",
        "mechanisms",
        "frame_max",
        "channel_max",
        "heartbeat",
        "handshake_timeout",
        "close_timeout",
        "max_message_size",
        "max_unfinished",
        "unfinished",
    )

    def __init__(
        self,
        properties: dict[str, object],
        mechanisms: list[str],
        frame_max: i64,
        channel_max: i64,
        heartbeat: i64,
        handshake_timeout: float,
        close_timeout: float,
        max_message_size: i64,
        max_unfinished: i64,
        unfinished: Budget,
    ) -> None:
        self.properties: dict[str, object] = {**properties, "capabilities": dict(CAPABILITIES)}
        self.mechanisms: list[str] = mechanisms
        self.frame_max: i64 = frame_max if frame_max > FRAME_MIN_SIZE else FRAME_MIN_SIZE
        self.channel_max: i64 = channel_max if channel_max > 0 else 1
        self.heartbeat: i64 = heartbeat
        self.handshake_timeout: float = handshake_timeout
        self.close_timeout: float = close_timeout
        self.max_message_size: i64 = max_message_size
        self.max_unfinished: i64 = max_unfinished
        self.unfinished: Budget = unfinished
