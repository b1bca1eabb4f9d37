"""What an application writes down of unsettled deliveries, to resume them in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq_types.unions import Outcome


@dataclass(frozen=True, slots=True)
class Unsettled:
    """One delivery that an earlier process has left unsettled (AMQP 1.0 §2.6.13).

    `tag` is its delivery-tag, up to 32 bytes. `payload` is the encoded message
    (`Message.encode`): a sender needs all of it, a receiver only for a delivery that it has not
    decided on. `state` is the outcome it has come to, as far as that is known here.
    """

    tag: bytes
    payload: bytes = b""
    state: Outcome | None = None
    message_format: int = 0
