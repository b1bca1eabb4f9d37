"""The error that answers a peer's mistake, in a form that every peer can take."""

from __future__ import annotations

from typing import Final

from ferrymq.errors import RemoteProtocolError
from ferrymq_types.transport import Error

# With its condition and the frame around it this fits the smallest maximum frame size, 512
# bytes. Descriptions quote what the peer sent, which may be as long as the peer likes.
MAX_DESCRIPTION: Final = 300


def answer_to(error: RemoteProtocolError) -> Error:
    """The error of a close, end or detach, its description cut to `MAX_DESCRIPTION` bytes."""
    description = error.description
    encoded = description.encode("utf-8", "replace")
    if len(encoded) > MAX_DESCRIPTION:
        description = encoded[:MAX_DESCRIPTION].decode("utf-8", "ignore")
    return Error(condition=error.condition, description=description)
