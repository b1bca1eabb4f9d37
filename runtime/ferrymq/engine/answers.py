"""The error of a close, end or detach, in a form that the peer can accept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq.errors import LocalProtocolError, RemoteProtocolError, Scope
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_codec.composite import Composite

# A description of this size fits the smallest maximum frame size, 512 bytes, together with its
# condition and the frame around it. Descriptions quote the peer's input, which may be of any
# length.
MAX_DESCRIPTION: Final = 300

# Bytes of a close, end or detach frame besides its error, at most.
FRAME_ROOM: Final = 32


def _cut(description: str) -> str:
    encoded = description.encode("utf-8", "replace")
    if len(encoded) <= MAX_DESCRIPTION:
        return description
    return encoded[:MAX_DESCRIPTION].decode("utf-8", "ignore")


def answer_to(error: RemoteProtocolError) -> Error:
    """Return the error that answers a violation by the peer. Its description is cut to
    `MAX_DESCRIPTION` bytes."""
    return Error(condition=error.condition, description=_cut(error.description))


def illegal(description: str) -> LocalProtocolError:
    """Return the error for a call that the state of the connection does not allow."""
    return LocalProtocolError("amqp:illegal-state", description, Scope.CONNECTION)


def errant_link(name: str, what: str) -> RemoteProtocolError:
    """Return the error for input that concerns a failed link (AMQP 1.0 §2.6.5)."""
    return RemoteProtocolError(
        "amqp:session:errant-link",
        f"{what} on link {name!r}, which was detached for an error",
        Scope.SESSION,
    )


def expect_encodable(value: Composite | None) -> None:
    """Raise `EncodeError` for an error or a delivery state that is to be sent later and cannot be
    encoded."""
    if value is not None:
        value.encode(BytesWriter())


def fitting(error: Error | None, max_frame_size: i64) -> Error | None:
    """Return the user's error, shortened if no frame of the peer's size can hold it.

    The end of a link, session or connection must not fail because its error is too long. Raises
    `EncodeError` for a value that cannot be encoded.
    """
    if error is None:
        return None
    w = BytesWriter()
    error.encode(w)
    if len(w) + FRAME_ROOM <= max_frame_size:
        return error
    description = error.description
    return Error(
        condition=error.condition, description=None if description is None else _cut(description)
    )
