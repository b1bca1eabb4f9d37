"""Deliveries: one message on its way over one link (AMQP 1.0 §2.6.12).

A delivery is *unsettled* until both ends have forgotten it. `state` is ours,
`remote_state` the peer's; `settled` and `remote_settled` likewise. `context`
belongs to the user of the engine, who may hang anything on it.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq_types.unions import DeliveryState

# Frames of a message that are joined when the last one is there, and their bytes; the rest grows.
_JOINED_FRAMES: Final = 256
_JOINED_BYTES: Final = 1_048_576


@final
class OutgoingDelivery:
    """A message we sent over a `SenderLink`."""

    __slots__ = (
        "link",
        "id",
        "tag",
        "settled",
        "state",
        "remote_settled",
        "remote_state",
        "sent",
        "context",
    )

    def __init__(self, link: SenderLink, tag: bytes, settled: bool) -> None:
        self.link = link
        self.id: i64 = -1
        self.tag = tag
        self.settled = settled
        self.state: DeliveryState | None = None
        self.remote_settled = False
        self.remote_state: DeliveryState | None = None
        # Whether the last frame has gone out (into the output buffer).
        self.sent = False
        self.context: object = None

    def update(self, state: DeliveryState) -> None:
        """Tell the receiver the state of the delivery without settling it.

        A sender that comes to an outcome of its own accord states it so, and settles when the
        receiver has confirmed it (AMQP 1.0 §2.6.12). Does nothing when the delivery is settled
        at either end. Raises `LocalProtocolError` if another outcome has been stated before.
        """
        self.link.update(self, state)

    def settle(self, state: DeliveryState | None = None) -> None:
        """Settle the delivery, telling the receiver `state` (by default what it told us).

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
        "tag",
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
        "_begun",
        "_grown",
        "_received",
    )

    def __init__(self, link: ReceiverLink, id: i64, tag: bytes, message_format: i64) -> None:
        self.link = link
        self.id: i64 = id
        self.tag = tag
        self.message_format: i64 = message_format
        self.payload: bytes = b""
        self.settled = False
        self.state: DeliveryState | None = None
        self.remote_settled = False
        self.remote_state: DeliveryState | None = None
        self.context: object = None
        # Whether all of the message has arrived.
        self.complete = False
        # Whether the sender has to settle first (AMQP 1.0 §2.7.5, rcv-settle-mode).
        self.second = False
        # A resumed delivery that we do not know: it is passed over.
        self.ignored = False
        # Whether the sender has resumed it on the link as it is now.
        self.resumed = False
        # What has come of a message in several frames, None if nothing has. It is joined when all
        # is there; what becomes large is in `_grown` instead.
        self._begun: list[bytes] | None = None
        # This grows in place, and its bytes are had without a copy: a large message costs no more
        # with its last frame than with any other. What is not large would be copied as it grows.
        self._grown: BytesIO | None = None
        self._received: i64 = 0

    def data(self) -> bytes:
        """The bytes of the message that have arrived so far."""
        begun = self._begun
        if begun is None:
            return self.payload
        grown = self._grown
        return b"".join(begun) if grown is None else grown.getvalue()

    def _add(self, payload: bytes) -> None:
        """Take in the payload of a frame that is not the last."""
        begun = self._begun
        if begun is None:
            self._begun = [payload]
            return
        grown = self._grown
        if grown is not None:
            grown.write(payload)
            return
        begun.append(payload)
        if len(begun) >= _JOINED_FRAMES or self._received > _JOINED_BYTES:
            grown = BytesIO()
            for part in begun:
                grown.write(part)
            self._grown = grown
            begun.clear()

    def _join(self) -> None:
        """Join all parts that have come into the payload."""
        self.payload = self.data()
        self._drop()

    def _drop(self) -> None:
        """Forget what has come."""
        self._begun = None
        self._grown = None

    def settle(self, state: DeliveryState | None) -> None:
        """Give the delivery its outcome and settle it.

        Does nothing when it is settled already or its session is gone.
        """
        self.link.settle(self, state)

    def update(self, state: DeliveryState) -> None:
        """Tell the sender the state of the delivery without settling it."""
        self.link.update(self, state)
