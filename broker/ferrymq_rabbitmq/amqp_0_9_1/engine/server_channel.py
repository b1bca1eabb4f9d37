"""A channel in the engine: its state, and the assembly of contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_rabbitmq.amqp_0_9_1.engine.peer_fault import PeerFault
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_states import OPEN
from ferrymq_types_0_9_1.basic import BasicPublish
from ferrymq_types_0_9_1.constants import (
    FRAME_ERROR,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    UNEXPECTED_FRAME,
)

if TYPE_CHECKING:
    from ferrymq.engine.unfinished import Budget

# The class of basic.publish, the only method of a client that has a content.
_BASIC: Final = 60


@final
class ContentBudget:
    """Bytes of the incomplete messages of one connection; a `limit` of 0 is no limit. `shared`
    counts those of all connections."""

    __slots__ = ("limit", "held", "shared")

    def __init__(self, limit: i64, shared: Budget) -> None:
        self.limit: i64 = limit
        self.held: i64 = 0
        self.shared: Budget = shared

    def add(self, size: i64) -> bool:
        """Count more bytes; return false if they are too many."""
        shared = self.shared
        self.held += size
        shared.held += size
        if (self.limit != 0 and self.held > self.limit) or (
            shared.limit != 0 and shared.held > shared.limit
        ):
            self.subtract(size)
            return False
        return True

    def subtract(self, size: i64) -> None:
        """Count fewer bytes."""
        self.held -= size
        self.shared.held -= size


@final
class ServerChannel:
    """A channel. `state` is one of `CHANNEL_TABLE`; `published` is the method whose content is
    arriving, None between contents.

    A frame that raises `PeerFault` changes nothing: it may be read again.
    """

    __slots__ = (
        "number",
        "state",
        "published",
        "properties",
        "_max_size",
        "_budget",
        "_size",
        "_left",
        "_only",
        "_body",
        "_held",
    )

    def __init__(self, number: i64, max_size: i64, budget: ContentBudget) -> None:
        self.number: i64 = number
        self.state: i64 = OPEN
        self.published: BasicPublish | None = None
        self.properties: bytes = b""
        self._max_size: i64 = max_size
        self._budget = budget
        self._size: i64 = 0
        self._left: i64 = 0
        # The body: of one frame, or of several.
        self._only: bytes = b""
        self._body: bytearray | None = None
        # Bytes that are counted as unfinished.
        self._held: i64 = 0

    def is_open(self) -> bool:
        """Return whether methods are read and written on the channel."""
        return self.state >= OPEN

    def take_header(self, class_id: i64, size: i64, properties: bytes) -> bool:
        """Take the header frame of `published`; return whether the content is complete. Raises
        `PeerFault`."""
        method = self.published
        assert method is not None
        if class_id != _BASIC:
            raise PeerFault(
                UNEXPECTED_FRAME,
                f"a header frame of class {class_id} on channel {self.number}; the method is of "
                f"class {_BASIC}",
            )
        most = self._max_size
        if size > most:
            raise PeerFault(
                PRECONDITION_FAILED,
                f"message size {size} is larger than configured max size {most}",
                method,
            )
        if size != 0:
            # They may be as long as a frame, on each channel.
            self._hold(len(properties))
        self.properties = properties
        self._size = self._left = size
        return size == 0

    def take_body(self, piece: bytes) -> bool:
        """Take the payload of a body frame; return whether the content is complete. Raises
        `PeerFault`."""
        size: i64 = len(piece)
        if size > self._left:
            raise PeerFault(
                FRAME_ERROR,
                f"the body on channel {self.number} has more than the {self._size} bytes of its "
                "header frame",
            )
        left = self._left - size
        if left != 0:
            self._hold(size)
        self._left = left
        body = self._body
        if body is not None:
            body += piece
        elif left == 0:
            self._only = piece
        else:
            self._body = bytearray(piece)
        return left == 0

    def _hold(self, size: i64) -> None:
        """Count bytes of an incomplete message. Raises `PeerFault` if they are too many."""
        if not self._budget.add(size):
            raise PeerFault(
                RESOURCE_ERROR, f"too many bytes of incomplete messages on channel {self.number}"
            )
        self._held += size

    def take_content(self) -> bytes:
        """Return the complete body, and begin the next content."""
        body = self._body
        whole = self._only if body is None else bytes(body)
        self.forget_content()
        return whole

    def forget_content(self) -> None:
        """Drop a content, complete or not."""
        self.published = None
        self.properties = b""
        self._only = b""
        self._body = None
        self._budget.subtract(self._held)
        self._held = 0
