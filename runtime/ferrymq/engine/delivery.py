"""Deliveries: a delivery is one message that is sent over one link (AMQP 1.0 §2.6.12).

A delivery is *unsettled* until both ends have forgotten it. `state` and `settled` are ours,
`remote_state` and `remote_settled` the peer's. `context` belongs to the user of the engine, who may
keep any object in it.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq.engine.unwritten import unwritten

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq_types.unions import DeliveryState

# Frames of a message that are joined when the last one has arrived, and their bytes; a larger
# message is kept in a buffer that grows.
_JOINED_FRAMES: Final = 256
_JOINED_BYTES: Final = 1_048_576
# A buffer for a message that is expected to have at least so many bytes is made at once.
_EXPECTED_BYTES: Final = 131_072


def number_tag(number: i64) -> bytes:
    """Return the tag that is this number: 4 bytes, or 8 if the number needs more.

    Nobody asks for the tags of most deliveries, so their bytes are made here when somebody does.
    """
    tag: int = number
    return tag.to_bytes(4 if number <= 0xFFFFFFFF else 8, "big")


@final
class OutgoingDelivery:
    """A message we sent over a `SenderLink`."""

    __slots__ = (
        "link",
        "id",
        "settled",
        "state",
        "remote_settled",
        "remote_state",
        "sent",
        "context",
        "_tag",
        "_number",
    )

    def __init__(self, link: SenderLink, tag: bytes | None, settled: bool) -> None:
        self.link: SenderLink = link
        self.id: i64 = -1
        # The tag, or None if it is `_number`: see `number_tag`.
        self._tag = tag
        self._number: i64 = 0
        self.settled: bool = settled
        self.state: DeliveryState | None = None
        self.remote_settled: bool = False
        self.remote_state: DeliveryState | None = None
        # Whether the last frame is in the output buffer.
        self.sent: bool = False
        self.context: object = None

    @property
    def tag(self) -> bytes:
        """The delivery-tag."""
        tag = self._tag
        return number_tag(self._number) if tag is None else tag

    @tag.setter
    def tag(self, tag: bytes) -> None:
        self._tag = tag

    def update(self, state: DeliveryState) -> None:
        """Send the state of the delivery to the receiver without settling it.

        A sender that decides on an outcome by itself states it in this way, and settles when the
        receiver has confirmed it (AMQP 1.0 §2.6.12). Does nothing when the delivery is settled at
        either end. Raises `LocalProtocolError` if another outcome was stated before.
        """
        self.link.update(self, state)

    def settle(self, state: DeliveryState | None = None) -> None:
        """Settle the delivery with `state`, by default the state that the receiver gave it.

        Does nothing when it is settled already or its session is gone.
        """
        self.link.settle(self, state)


@final
class IncomingDelivery:
    """A message the peer sent over a `ReceiverLink`.

    `payload` is the encoded message: all sections as they were sent (AMQP 1.0
    §3.2). `message_format` is the 32-bit format the sender announced, 0 for
    the sections of this specification.
    """

    __slots__ = (
        "link",
        "id",
        "message_format",
        "payload",
        "settled",
        "state",
        "remote_settled",
        "remote_state",
        "context",
        "complete",
        "second",
        "ignored",
        "resumed",
        "_tag",
        "_number",
        "_begun",
        "_grown",
        "_grown_size",
        "_received",
    )

    def __init__(self, link: ReceiverLink, id: i64, tag: bytes | None, message_format: i64) -> None:
        self.link: ReceiverLink = link
        self.id: i64 = id
        # The tag, or None if it is `_number`, as nearly all are: see `number_tag`.
        self._tag = tag
        self._number: i64 = 0
        self.message_format: i64 = message_format
        self.payload: bytes = b""
        self.settled: bool = False
        self.state: DeliveryState | None = None
        self.remote_settled: bool = False
        self.remote_state: DeliveryState | None = None
        self.context: object = None
        # Whether all of the message has arrived.
        self.complete: bool = False
        # Whether the sender has to settle first (AMQP 1.0 §2.7.5, rcv-settle-mode).
        self.second: bool = False
        # True for a resumed delivery that is unknown here: its frames are skipped.
        self.ignored: bool = False
        # Whether the sender has resumed the delivery on the current attachment of the link.
        self.resumed: bool = False
        # The frames received so far of a message with several frames, None if there are none. They
        # are joined when the last one arrives; a large message is in `_grown` instead.
        self._begun: list[bytes] | None = None
        # A buffer that grows in place, whose bytes are read without a copy, so that the last frame
        # of a large message costs no more than any other. It is not used for small messages, which
        # would be copied while they grow.
        self._grown: BytesIO | None = None
        # Bytes of the message in `_grown`. Those after them have no meaning.
        self._grown_size: i64 = 0
        self._received: i64 = 0

    @property
    def tag(self) -> bytes:
        """The delivery-tag."""
        tag = self._tag
        return number_tag(self._number) if tag is None else tag

    @tag.setter
    def tag(self, tag: bytes) -> None:
        self._tag = tag

    def data(self) -> bytes:
        """Return the bytes of the message that have arrived so far."""
        begun = self._begun
        if begun is None:
            return self.payload
        grown = self._grown
        return b"".join(begun) if grown is None else grown.getvalue()[: self._grown_size]

    def _add(self, payload: bytes | memoryview, expected: i64) -> None:
        """Add the payload of a frame that is not the last. The message may have `expected` bytes,
        0 if that is unknown."""
        grown = self._grown
        if grown is not None:
            grown.write(payload)
            self._grown_size += len(payload)
            return
        begun = self._begun
        if begun is None:
            self._begun = begun = []
            if expected >= _EXPECTED_BYTES:
                self._grown = grown = BytesIO(unwritten(expected))
                grown.write(payload)
                self._grown_size = len(payload)
                return
        begun.append(bytes(payload))
        if len(begun) >= _JOINED_FRAMES or self._received > _JOINED_BYTES:
            self._grown = grown = BytesIO()
            for part in begun:
                self._grown_size += grown.write(part)
            begun.clear()

    def _join(self) -> None:
        """Join the received frames into the payload."""
        grown = self._grown
        if grown is None:
            self.payload = self.data()
        else:
            # No copy: the payload is the memory of the buffer.
            grown.truncate(self._grown_size)
            self.payload = grown.getvalue()
        self._drop()

    def _drop(self) -> None:
        """Drop the received frames."""
        self._begun = None
        self._grown = None
        self._grown_size = 0

    def settle(self, state: DeliveryState | None) -> None:
        """Give the delivery its outcome and settle it.

        Does nothing when it is settled already or its session is gone.
        """
        self.link.settle(self, state)

    def update(self, state: DeliveryState) -> None:
        """Send the state of the delivery to the sender without settling it."""
        self.link.update(self, state)
