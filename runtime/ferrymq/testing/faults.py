"""Faults of a broker for tests: connections that drop, answers that are late, messages that are
rejected, producers that get no credit.

A fault begins when its method returns. It may be set and cancelled from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeVar, final

from ferrymq.testing.frame_splitter import PERFORMATIVES, performative_of

Side = Literal["broker", "client"]
"""The side of a connection that sends a frame."""

T = TypeVar("T")

# The names of alarms: that of the broker's store, and one of our own.
DISK_ALARM: Final = "disk"
THROTTLE_ALARM: Final = "testing"


@final
class InjectedFault:
    """A fault that was set. `fired` is how often it has happened."""

    def __init__(
        self, kind: str, nth: int, times: int, cancel: Callable[[InjectedFault], None]
    ) -> None:
        self.kind: str = kind
        self.fired: int = 0
        # The number of matches that pass before the fault happens; then how often it happens, with
        # None for no end.
        self._passing = nth - 1
        self._left: int | None = times or None
        self._cancel = cancel

    def __repr__(self) -> str:
        return f"<InjectedFault {self.kind}, fired {self.fired} times>"

    def cancel(self) -> None:
        """End the fault. Does nothing if it is over."""
        self._cancel(self)

    @property
    def over(self) -> bool:
        """Whether the fault has happened as often as it was to happen."""
        return self._left == 0

    def happens(self) -> bool:
        """Count a match; return whether the fault happens now."""
        if self._left == 0:
            return False
        if self._passing > 0:
            self._passing -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.fired += 1
        return True


@final
class FrameFault:
    """What happens to the frames of one kind and side. `frame` is "" for all kinds."""

    def __init__(
        self, fault: InjectedFault, frame: str, sent_by: Side, deliver: bool, delay: float | None
    ) -> None:
        self.fault: InjectedFault = fault
        self.frame: str = frame
        self.sent_by: Side = sent_by
        self.deliver: bool = deliver
        # Seconds of the broker's clock; None if the connection drops.
        self.delay: float | None = delay


@final
class Rejection:
    """The error for messages to an address; `address` is None for all messages."""

    def __init__(
        self, fault: InjectedFault, address: str | None, condition: str, description: str
    ) -> None:
        self.fault: InjectedFault = fault
        self.address: str | None = address
        self.condition: str = condition
        self.description: str = description


class Faults:
    """The faults of one broker.

    `run` runs a function in the broker's thread; `set_alarm` switches an alarm of the broker there.
    """

    def __init__(
        self,
        run: Callable[[Callable[[], object]], object],
        set_alarm: Callable[[str, bool], object],
    ) -> None:
        self._run = run
        self._set_alarm = set_alarm
        self._frames: list[FrameFault] = []
        self._rejections: list[Rejection] = []
        self._alarms: dict[str, InjectedFault] = {}

    # -- for tests -----------------------------------------------------------------------

    def drop(
        self,
        frame: str = "",
        *,
        sent_by: Side = "client",
        nth: int = 1,
        times: int = 1,
        deliver: bool = False,
    ) -> InjectedFault:
        """Drop the connection at a frame, without a close.

        `frame` is the name of a performative, such as ``transfer`` or ``disposition``; "" means
        all. Frames are counted from now on, over all connections; protocol headers, SASL's frames
        and empty frames are not counted. `nth` is the number of the first frame at which the fault
        happens, `times` how often it happens in all (0: without end).

        The receiver does not get the frame, unless `deliver` is set. A client's frame that is
        delivered takes effect in the broker, and the client gets no answer to it. Raises ValueError
        for an unknown frame.
        """
        return self._add_frame("drop", frame, sent_by, nth, times, deliver, None)

    def drop_after_outcome(self, nth: int = 1) -> InjectedFault:
        """Drop the connection after the broker has written an outcome, or has settled: the client
        gets it."""
        return self.drop("disposition", sent_by="broker", nth=nth, deliver=True)

    def drop_before_outcome(self, nth: int = 1) -> InjectedFault:
        """Drop the connection in place of the broker's outcome: the broker has the message, and its
        sender does not know."""
        return self.drop("disposition", sent_by="broker", nth=nth)

    def delay(
        self,
        frame: str = "",
        *,
        seconds: float,
        nth: int = 1,
        times: int = 0,
    ) -> InjectedFault:
        """Write frames late: when the broker's clock has advanced by `seconds`.

        All frames behind on the same connection wait too, because frames stay in order. `frame`,
        `nth` and `times` are as for `drop`.
        """
        if not seconds > 0:
            raise ValueError(f"seconds: a delay is more than 0, not {seconds!r}")
        return self._add_frame("delay", frame, "broker", nth, times, True, seconds)

    def reject(
        self,
        address: str | None = None,
        *,
        condition: str = "amqp:internal-error",
        description: str = "rejected by the test",
        nth: int = 1,
        times: int = 1,
    ) -> InjectedFault:
        """Reject messages to an address, or all messages, with an error condition.

        The messages go to no queue. `nth` and `times` are as for `drop`.
        """
        fault = self._fault("reject", nth, times)
        rejection = Rejection(fault, address, condition, description)
        self._run(lambda: self._rejections.append(rejection))
        return fault

    def throttle(self) -> InjectedFault:
        """Give producers no credit until the fault is cancelled. Consumers get messages."""
        return self._alarm("throttle", THROTTLE_ALARM)

    def fill_disk(self) -> InjectedFault:
        """Raise the alarm of a full disk until the fault is cancelled: producers get no credit, and
        the broker's figures show the alarm."""
        return self._alarm("fill_disk", DISK_ALARM)

    def clear(self) -> None:
        """End all faults."""
        self._run(self._clear)

    # -- for the broker, in its thread ---------------------------------------------------

    def match(self, frame: bytes, sent_by: Side) -> FrameFault | None:
        """Return what happens to a frame; None if nothing does."""
        if not self._frames:
            return None
        name = performative_of(frame)
        if not name:
            return None
        found: FrameFault | None = None
        for each in self._frames:
            if each.sent_by == sent_by and each.frame in ("", name):
                # All of them count the frame.
                if each.fault.happens() and found is None:
                    found = each
        if found is not None:
            self._frames = [each for each in self._frames if not each.fault.over]
        return found

    def rejection_of(self, address: str) -> Rejection | None:
        """Return the error for a message to this address; None if it is not rejected."""
        for each in self._rejections:
            if each.address in (None, address) and each.fault.happens():
                return each
        return None

    # -- inside --------------------------------------------------------------------------

    def _fault(self, kind: str, nth: int, times: int) -> InjectedFault:
        if nth < 1 or times < 0:
            raise ValueError(f"nth is at least 1 and times at least 0, not {nth!r} and {times!r}")
        return InjectedFault(kind, nth, times, self._cancel)

    def _add_frame(
        self,
        kind: str,
        frame: str,
        sent_by: Side,
        nth: int,
        times: int,
        deliver: bool,
        delay: float | None,
    ) -> InjectedFault:
        if frame and frame not in PERFORMATIVES.values():
            known = ", ".join(PERFORMATIVES.values())
            raise ValueError(f"there is no frame {frame!r}; there are {known}")
        if sent_by not in ("broker", "client"):
            raise ValueError(f"sent_by: 'broker' or 'client', not {sent_by!r}")
        fault = self._fault(kind, nth, times)
        of_frame = FrameFault(fault, frame, sent_by, deliver, delay)
        self._run(lambda: self._frames.append(of_frame))
        return fault

    def _alarm(self, kind: str, alarm: str) -> InjectedFault:
        fault = self._fault(kind, 1, 0)
        fault.fired = 1

        def begin() -> None:
            self._alarms[alarm] = fault
            self._set_alarm(alarm, True)

        self._run(begin)
        return fault

    def _cancel(self, fault: InjectedFault) -> None:
        self._run(lambda: self._drop(fault))

    def _drop(self, fault: InjectedFault) -> None:
        self._frames = [each for each in self._frames if each.fault is not fault]
        self._rejections = [each for each in self._rejections if each.fault is not fault]
        for alarm, owner in list(self._alarms.items()):
            if owner is fault:
                del self._alarms[alarm]
                self._set_alarm(alarm, False)

    def _clear(self) -> None:
        self._frames = []
        self._rejections = []
        for fault in list(self._alarms.values()):
            self._drop(fault)
