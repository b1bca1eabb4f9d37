"""Unsettled deliveries as an application stores them, to resume them in another process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrymq_types.unions import Outcome


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Delivery that an earlier process has left unsettled (AMQP 1.0 §2.6.13).

    `tag` is its delivery-tag, up to 32 bytes. `payload` is the encoded message (`Message.encode`):
    a sender needs all of it, a receiver only for a delivery without an outcome. `state` is the
    outcome, if it is known.
    """

    tag: bytes
    payload: bytes = b""
    state: Outcome | None = None
    message_format: int = 0
