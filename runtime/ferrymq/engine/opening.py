"""The two open frames: the content of ours, and the checks of the peer's (AMQP 1.0 §2.4.1,
§2.7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq.engine.frames import FRAME_HEADER_SIZE
from ferrymq.errors import EncodeError, RemoteProtocolError
from ferrymq_types.transport import MIN_MAX_FRAME_SIZE, Open

if TYPE_CHECKING:
    from ferrymq.engine.settings import ConnectionSettings

# The shortest idle time-out of a peer, in milliseconds, that we accept: empty frames are sent every
# quarter of it.
MIN_IDLE_TIME_OUT: Final = 50


def make_open(settings: ConnectionSettings) -> Open:
    """Return our open. Raises ValueError if it cannot be encoded or is larger than the size that
    every peer accepts."""
    idle = settings.idle_time_out
    desired = settings.desired_capabilities
    required = settings.required_capabilities
    if required:
        desired = [] if desired is None else desired
        desired = desired + [name for name in required if name not in desired]
    ours = Open(
        container_id=settings.container_id,
        hostname=settings.hostname,
        max_frame_size=settings.max_frame_size,
        channel_max=settings.channel_max,
        # 0 would mean that there is no time-out.
        idle_time_out=None if idle is None else max(1, int(idle * 500)),
        offered_capabilities=settings.offered_capabilities,
        desired_capabilities=desired,
        properties=settings.properties,
    )
    w = BytesWriter()
    try:
        ours.encode(w)
    except EncodeError as error:
        raise ValueError(f"the open cannot be encoded: {error}") from error
    size = len(w) + FRAME_HEADER_SIZE
    if size > MIN_MAX_FRAME_SIZE:
        raise ValueError(
            f"the open would take {size} bytes; as long as the peer's limits are unknown it may "
            f"have {MIN_MAX_FRAME_SIZE}: shorten the properties, capabilities or names"
        )
    return ours


def check_open(open: Open, channel: i64, settings: ConnectionSettings) -> None:
    """Check the peer's open. Raises `RemoteProtocolError` if we cannot accept it."""
    if channel != 0:
        raise RemoteProtocolError(
            "amqp:connection:framing-error", f"open on channel {channel}; it belongs on channel 0"
        )
    if open.max_frame_size < MIN_MAX_FRAME_SIZE:
        raise RemoteProtocolError(
            "amqp:invalid-field",
            f"open with max-frame-size {open.max_frame_size}, below {MIN_MAX_FRAME_SIZE}",
        )
    idle = open.idle_time_out
    if idle is not None and 0 < idle < MIN_IDLE_TIME_OUT:
        raise RemoteProtocolError(
            "amqp:invalid-field",
            f"an idle time-out of {idle} ms is too short to be kept; "
            f"the shortest is {MIN_IDLE_TIME_OUT} ms",
        )
    offered = open.offered_capabilities
    for name in settings.required_capabilities:
        if offered is None or name not in offered:
            raise RemoteProtocolError(
                "amqp:not-implemented", f"the capability {name}, which is required, is not offered"
            )
