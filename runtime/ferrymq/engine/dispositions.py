"""Dispositions: joining ours into ranges, and resolving the peer's (AMQP 1.0 §2.7.6).

A disposition names a *range* of delivery-ids. Settling a thousand messages in
order therefore takes one frame, and a peer may name 2^32 ids of which three
exist: both are handled in time that follows the live deliveries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from mypy_extensions import i64

from ferrymq.engine.serial import serial_add, serial_diff
from ferrymq_types.messaging import Accepted, Released

if TYPE_CHECKING:
    from ferrymq_types.unions import DeliveryState


def joinable(state: DeliveryState | None) -> bool:
    """Whether a state may wait to be joined with others.

    The rest carry what the user put in them: those are encoded at once, so that
    what cannot be encoded is an error of the call that gave it.
    """
    return state is None or isinstance(state, (Accepted, Released))


def same_state(a: DeliveryState | None, b: DeliveryState | None) -> bool:
    """Whether two joinable states may share one disposition frame."""
    if isinstance(a, Accepted):
        return isinstance(b, Accepted)
    if isinstance(a, Released):
        return isinstance(b, Released)
    return a is None and b is None


@final
class PendingDisposition:
    """A run of consecutive deliveries that got the same state; not sent yet."""

    __slots__ = ("first", "last", "state", "settled", "empty")

    def __init__(self) -> None:
        self.first: i64 = 0
        self.last: i64 = 0
        self.state: DeliveryState | None = None
        self.settled = False
        self.empty = True

    def extend(self, delivery_id: i64, state: DeliveryState | None, settled: bool) -> bool:
        """Take the delivery into the run; false when it does not continue it."""
        if not joinable(state):
            return False
        if self.empty:
            self.empty = False
            self.first = delivery_id
            self.last = delivery_id
            self.state = state
            self.settled = settled
            return True
        if (
            settled == self.settled
            and serial_add(self.last, 1) == delivery_id
            and same_state(state, self.state)
        ):
            self.last = delivery_id
            return True
        return False


def live_ids(unsettled: dict[int, Any], first: i64, last: i64) -> list[int]:
    """The delivery-ids in ``first … last`` that are unsettled, in serial order.

    Probes the range or walks the map, whichever is shorter.
    """
    span = serial_diff(last, first)
    found: list[int] = []
    if span < len(unsettled):
        i: i64 = 0
        while i <= span:
            id = serial_add(first, i)
            if id in unsettled:
                found.append(id)
            i += 1
        return found
    offsets: list[int] = []
    for key in unsettled:
        offset = serial_diff(key, first)
        if 0 <= offset <= span:
            offsets.append(offset)
    offsets.sort()
    for offset in offsets:
        found.append(serial_add(first, offset))
    return found
