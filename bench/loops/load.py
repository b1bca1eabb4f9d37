"""The two ends of a load: a sender that keeps several messages in flight, and a receiver.

The caller drives both: `receive(data)` handles bytes from the transport, `take` returns the bytes
to write. Each end has its own connection, like two applications.
"""

from __future__ import annotations

import time
from typing import Final, final

from mypy_extensions import i64

from bench.loops.tally import Numbered, Tally
from ferrymq.engine.connection import Connection
from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    DeliveryReceived,
    DetachReceived,
    DrainCompleted,
    LinkFailed,
    OpenReceived,
    OutcomeReceived,
    SessionTerminated,
    Terminated,
)
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.sasl import Anonymous
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session
from ferrymq.engine.settings import ConnectionSettings
from ferrymq_types.messaging import Accepted, Source, Target
from ferrymq_types.transport import SenderSettleMode

# The highest number of messages added to the output at once, so that the transport is served in
# between.
BURST: Final = 256
_WINDOW: Final = 1 << 20


@final
class Plan:
    """The messages of one run: `warm_up` that are not measured, then `count` that are.

    By default receivers take from `address` (`source`), messages have no sections before their body
    (`heads`: those of the first message, the second … and then from the start again), and a
    receiver takes all messages (`filter`, `capability`). `hostname` chooses the virtual host. With
    `timed`, receivers note when each message arrives.
    """

    __slots__ = ("address", "count", "warm_up", "size", "in_flight", "credit", "settled", "run",
                 "source", "heads", "filter", "capability", "hostname", "timed")  # fmt: skip

    def __init__(
        self,
        *,
        address: str,
        count: int,
        warm_up: int,
        size: int,
        in_flight: int,
        credit: int,
        settled: bool,
        run: int,
        source: str = "",
        heads: list[bytes] | None = None,
        filter: dict[str, object] | None = None,
        capability: str = "",
        hostname: str = "localhost",
        timed: bool = False,
    ) -> None:
        self.address = address
        self.source = source or address
        self.heads: list[bytes] = heads or []
        self.filter = filter
        self.capability = capability
        self.hostname = hostname
        self.timed = timed
        self.count = count
        self.warm_up = warm_up
        self.size = size
        self.in_flight = in_flight
        self.credit = credit
        self.settled = settled
        self.run = run

    @property
    def total(self) -> int:
        """The number of messages in the run."""
        return self.warm_up + self.count


class End:
    """The common part of both ends: connecting, attaching and closing.

    `failure` says what went wrong, `closed` that the connection is closed, `attached` that the
    broker has answered the attach.
    """

    __slots__ = ("connection", "plan", "session", "failure", "attached", "closed")

    def __init__(self, plan: Plan, name: str) -> None:
        self.plan = plan
        settings = ConnectionSettings(
            container_id=name,
            initiator=True,
            hostname=plan.hostname,
            sasl=Anonymous(),
            incoming_window=_WINDOW,
        )
        self.connection = Connection(settings, time.monotonic())
        self.session: Session | None = None
        self.failure = ""
        self.attached = False
        self.closed = False
        self.connection.open()

    def receive(self, data: bytes) -> None:
        """Handle bytes from the broker."""
        self.connection.receive_data(data, time.monotonic())
        self.handle()

    def take(self) -> bytes:
        """Return the bytes to write now."""
        return self.connection.data_to_send()

    def close(self) -> None:
        """Close the connection properly."""
        self.connection.close()

    def handle(self) -> None:
        """Handle all events."""
        for event in self.connection.take_events():
            if not self._on_event(event):
                self._on_other(event)

    def _on_event(self, event: object) -> bool:
        """Handle an event of an attached link; return false for any other event."""
        return False

    def _on_other(self, event: object) -> None:
        if isinstance(event, OpenReceived):
            self.session = self.connection.begin()
        elif isinstance(event, BeginReceived):
            self._attach(event.session)
        elif isinstance(event, AttachReceived):
            self.attached = True
        elif isinstance(event, Terminated):
            self.closed = True
            self._fail(event.error)
        elif isinstance(event, (DetachReceived, LinkFailed, SessionTerminated)):
            self._fail(event.error)

    def _attach(self, session: Session) -> None:
        raise RuntimeError("each end attaches its own link")

    def _fail(self, error: object) -> None:
        if error is not None and not self.failure:
            self.failure = str(error)


@final
class Sender(End):
    """A sender of the messages of a plan; `finished` once all have their outcome.

    Pre-settled messages have no outcome: they are in flight until the receiver has them. The caller
    keeps `arrived`, the number that the receiver has, up to date, and may limit the number of
    messages that are sent (`due`).
    """

    __slots__ = ("link", "numbered", "sent", "settled", "accepted", "arrived", "due")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, f"bench-sender-{plan.run}")
        self.link: SenderLink | None = None
        self.numbered = Numbered(plan.run, plan.size)
        self.sent: i64 = 0
        self.settled: i64 = 0
        self.accepted: i64 = 0
        self.arrived: i64 = 0
        self.due: i64 = plan.total

    @property
    def finished(self) -> bool:
        """Whether every message was sent and, unless pre-settled, has its outcome."""
        return self.sent == self.plan.total and self.settled == self.sent

    def pump(self) -> bool:
        """Send up to a burst of messages within credit and plan; return whether there are more."""
        link = self.link
        if link is None or not link.usable:
            return False
        plan = self.plan
        settled = plan.settled
        limit: i64 = plan.in_flight
        burst: i64 = BURST
        while self.sent < self.due and link.credit > 0 and burst > 0:
            if self.sent - (self.arrived if settled else self.settled) >= limit:
                return False
            self.send_one(link)
            burst -= 1
        return burst == 0

    def send_one(self, link: SenderLink) -> None:
        """Send the next message over the attached `link`, which must have credit."""
        settled = self.plan.settled
        message = self.numbered.message(self.sent)
        heads = self.plan.heads
        if heads:
            message = heads[self.sent % len(heads)] + message
        link.send(message, settled=settled)
        self.sent += 1
        if settled:
            self.settled += 1
            self.accepted += 1

    def _attach(self, session: Session) -> None:
        self.link = session.attach_sender(
            f"send-{self.plan.run}",
            source=Source(),
            target=Target(address=self.plan.address),
            snd_settle_mode=(
                SenderSettleMode.SETTLED if self.plan.settled else SenderSettleMode.UNSETTLED
            ),
        )

    def _on_event(self, event: object) -> bool:
        if isinstance(event, OutcomeReceived):
            delivery = event.delivery
            if not delivery.settled:
                delivery.settle()
                self.settled += 1
                if isinstance(delivery.remote_state, Accepted):
                    self.accepted += 1
            return True
        return False


@final
class Receiver(End):
    """A receiver of the messages of a plan, which accepts and settles each.

    `began` and `ended` are the times (`perf_counter`, seconds) at which the last message of the
    warm-up and the last of all arrived; 0 until then. `drained` becomes true when the broker has
    answered `drain`: it has no further messages. `times` are those of all messages, if the plan
    asks for them.
    """

    __slots__ = ("link", "numbered", "tally", "began", "ended", "drained", "times", "_low",
                 "_accepted")  # fmt: skip

    def __init__(self, plan: Plan, number: int = 0) -> None:
        super().__init__(plan, f"bench-receiver-{plan.run}-{number}")
        self.link: ReceiverLink | None = None
        self.numbered = Numbered(plan.run, plan.size)
        self.tally = Tally(plan.total)
        self.began: float = 0.0
        self.ended: float = 0.0
        self.drained = False
        self.times: list[float] = []
        self._low: i64 = plan.credit // 2
        self._accepted = Accepted()

    def drain(self) -> None:
        """Ask the broker for the remaining messages."""
        if self.link is not None:
            self.link.drain_credit()

    def receive(self, data: bytes) -> None:
        """Handle bytes from the broker."""
        self.connection.receive_data(data, time.monotonic())
        self.handle()
        link = self.link
        if link is not None and link.usable and link.credit <= self._low and not link.drain:
            link.set_credit(self.plan.credit)

    def _attach(self, session: Session) -> None:
        plan = self.plan
        capabilities = [plan.capability] if plan.capability else None
        self.link = session.attach_receiver(
            f"receive-{plan.run}",
            source=Source(address=plan.source, filter=plan.filter, capabilities=capabilities),
            target=Target(),
            snd_settle_mode=(
                SenderSettleMode.SETTLED if self.plan.settled else SenderSettleMode.UNSETTLED
            ),
        )

    def _on_event(self, event: object) -> bool:
        if isinstance(event, DeliveryReceived):
            delivery = event.delivery
            tally = self.tally
            if self.plan.timed:
                self.times.append(time.perf_counter())
            tally.add(self.numbered.number(delivery.payload))
            if not delivery.settled:
                delivery.settle(self._accepted)
            if tally.received == self.plan.warm_up and self.began == 0.0:
                self.began = time.perf_counter()
            if tally.received == tally.total and self.ended == 0.0:
                self.ended = time.perf_counter()
            return True
        if isinstance(event, DrainCompleted):
            self.drained = True
            return True
        return False
