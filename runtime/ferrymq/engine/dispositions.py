"""Dispositions: joining ours into ranges, and resolving the peer's (AMQP 1.0 §2.7.6).

A disposition names a *range* of delivery-ids. Settling a thousand messages in order therefore takes
one frame, and a peer may name 2^32 ids of which three exist: both are handled in time proportional
to the unsettled deliveries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from mypy_extensions import i64

from ferrymq.engine.serial import serial_add, serial_diff
from ferrymq_types.messaging import Accepted, Released
from ferrymq_types.transport import Role

if TYPE_CHECKING:
    from ferrymq.engine.input import FrameInput
    from ferrymq.engine.session import Session
    from ferrymq_types.unions import DeliveryState


def joinable(state: DeliveryState | None) -> bool:
    """Return whether a state may wait to be joined with others.

    Other states carry values of the user. They are encoded at once, so that a value that cannot be
    encoded raises in the call that gave it.
    """
    return state is None or isinstance(state, (Accepted, Released))


def same_state(a: DeliveryState | None, b: DeliveryState | None) -> bool:
    """Return whether two joinable states may share one disposition frame."""
    if isinstance(a, Accepted):
        return isinstance(b, Accepted)
    if isinstance(a, Released):
        return isinstance(b, Released)
    return a is None and b is None


@final
class DispositionQueue:
    """Queue of dispositions of one role: a run of consecutive deliveries in one state.

    A delivery that continues the run joins it. The frame is written when a delivery does not, or
    when the session is flushed.
    """

    __slots__ = ("session", "role", "_empty", "_first", "_last", "_state", "_settled")
    # Deleted by `drop_references`, after the last call.
    __deletable__: tuple[str, ...] = ("session",)

    def __init__(self, session: Session, role: Role) -> None:
        self.session: Session = session
        self.role: Role = role
        self._empty = True
        self._first: i64 = 0
        self._last: i64 = 0
        self._state: DeliveryState | None = None
        self._settled = False

    def add(self, delivery_id: i64, state: DeliveryState | None, settled: bool) -> None:
        """Queue the state of a delivery for the peer, joined with those of its neighbours if
        possible.

        Raises `EncodeError` or `LocalProtocolError` for a state that cannot be sent.
        """
        if not joinable(state):
            self.flush()
            self._send(delivery_id, delivery_id, settled, state)
            return
        if not self._empty:
            if (
                settled == self._settled
                and serial_add(self._last, 1) == delivery_id
                and same_state(state, self._state)
            ):
                self._last = delivery_id
                return
            self.flush()
        self._empty = False
        self._first = delivery_id
        self._last = delivery_id
        self._state = state
        self._settled = settled
        self.session.connection._touch(self.session)

    def flush(self) -> None:
        """Write the run, if there is one."""
        if not self._empty:
            self._empty = True
            self._send(self._first, self._last, self._settled, self._state)

    def clear(self) -> None:
        """Forget the run, because it can no longer be sent."""
        self._empty = True

    def _send(self, first: i64, last: i64, settled: bool, state: DeliveryState | None) -> None:
        session = self.session
        disposition = session.connection.disposition
        disposition.role = self.role
        disposition.first = first
        disposition.last = last
        disposition.settled = settled
        disposition.state = state
        session._send(disposition)


def live_ids(input: FrameInput, unsettled: dict[int, Any], first: i64, last: i64) -> list[int]:
    """Return the delivery-ids in ``first … last`` that are unsettled, in serial order.

    Looks up each id of the range or walks the map, whichever is shorter, and adds that to the
    `work` of `input`.
    """
    span = serial_diff(last, first)
    found: list[int] = []
    input.work += span if 0 <= span < len(unsettled) else len(unsettled)
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
