"""What a sender has unsettled, kept so that it can be resumed (AMQP 1.0 §2.6.13).

A link to a durable target is attached again with the tags and states of all that was in flight.
The receiver's answer tells for each delivery what is left to do, and the engine knows what that is
(`ferrymq.engine.resumption`). Here it is done, in the order of the sends and as credit comes.

Maps that do not fit into a frame are resumed in rounds. While one of them is incomplete no new
delivery may be sent: what both know is brought to its end, what the receiver has never heard of is
put aside, and the link is detached and attached again, until both maps are whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ferrymq.aio.outcomes import error_of
from ferrymq.aio.waiting import resolve
from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.resumption import Resolution, is_outcome
from ferrymq.engine.sender import SenderLink
from ferrymq.engine.session import Session as EngineSession
from ferrymq.errors import AmqpError
from ferrymq.unsettled import Unsettled
from ferrymq_types.messaging import Accepted, Modified, Rejected, Released

if TYPE_CHECKING:
    from ferrymq_types.unions import DeliveryState, Outcome

# Output beyond this is written before more is resumed.
_WRITE_SIZE: Final = 65536


class SentDelivery:
    """One message that has no settled end yet. `future` ends with its outcome."""

    __slots__ = (
        "tag",
        "payload",
        "message_format",
        "state",
        "delivery",
        "future",
        "held",
        "unsent",
    )

    def __init__(
        self,
        tag: bytes,
        payload: bytes,
        future: asyncio.Future[None],
        held: bool,
        delivery: OutgoingDelivery | None = None,
    ) -> None:
        self.tag = tag
        self.payload = payload
        self.message_format = 0
        self.future = future
        # Whether it stays unsettled until the application says otherwise.
        self.held = held
        self.delivery = delivery
        # The outcome, once it is known.
        self.state: Outcome | None = None
        # Whether the receiver has never heard of it: it is no delivery any longer.
        self.unsent = False

    def know(self, state: DeliveryState | None) -> None:
        """The receiver has come to an outcome, which for the caller of `send` is the end."""
        if isinstance(state, Accepted | Rejected | Released | Modified):
            self.state = state
        if not self.future.done():
            error = error_of(state)
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


class Outbox:
    """The unsettled deliveries of one sender, in the order they were sent, by tag."""

    def __init__(self, given: Iterable[Unsettled] | None) -> None:
        self.entries: dict[bytes, SentDelivery] = {}
        # Whether the peer keeps its half: if not, what is in flight is lost with the connection.
        self.keeping = False
        # Whether there is something to resume from, and be it nothing.
        self._resumes = given is not None
        self.given: list[SentDelivery] = []
        # What is still to be looked at on the link as it is, and what of that has no end yet.
        self._todo: deque[SentDelivery] = deque()
        self._strays: deque[bytes] = deque()
        self._live: set[bytes] = set()
        self._whole = True
        # Whether the link has to be attached before it is known what there is to do.
        self._awaiting = self._resumes
        # What the last round began with: the next one must begin with something else.
        self._before: tuple[int, frozenset[bytes]] | None = None
        for one in given or ():
            if one.tag in self.entries or len(one.tag) > 32:
                raise ValueError(f"delivery-tag {one.tag!r} is there twice, or too long")
            future = asyncio.get_running_loop().create_future()
            # Nobody may ask for it.
            future.add_done_callback(_look_at)
            entry = SentDelivery(one.tag, one.payload, future, True)
            entry.message_format = one.message_format
            entry.state = one.state
            if one.state is not None:
                entry.know(one.state)
            self.entries[one.tag] = entry
            self.given.append(entry)

    @property
    def busy(self) -> bool:
        """Whether new messages have to wait for what is being resumed."""
        return bool(self._todo) or not self._whole or self._awaiting

    @property
    def waiting(self) -> int:
        """How many deliveries are still to be resumed on the link as it is."""
        return len(self._todo)

    @property
    def partial(self) -> bool:
        """Whether the link as it is was resumed with an incomplete map."""
        return not self._whole

    def has(self, delivery: OutgoingDelivery) -> bool:
        """Whether the delivery is one of these."""
        entry = self.entries.get(delivery.tag)
        return entry is not None and entry.delivery is delivery

    def was_forgotten(self, tag: bytes) -> bool:
        """Whether a delivery of an earlier process has come to its end without an outcome."""
        return tag not in self.entries and any(
            one.tag == tag and one.future.done() and one.state is None for one in self.given
        )

    def undecided(self) -> set[OutgoingDelivery]:
        """The deliveries whose outcome is not known."""
        return {
            entry.delivery
            for entry in self.entries.values()
            if entry.delivery is not None and not entry.future.done()
        }

    def unsettled(self) -> list[Unsettled]:
        """Return the unsettled deliveries, as another process would need them."""
        return [
            Unsettled(entry.tag, entry.payload, entry.state, entry.message_format)
            for entry in self.entries.values()
        ]

    # ── Attaching ──────────────────────────────────────────────────────────────────────────────

    def to_resume(self, session: EngineSession, name: str) -> dict[bytes, OutgoingDelivery] | None:
        """The unsettled deliveries to attach with; None to begin anew."""
        if not self._resumes:
            return None
        result: dict[bytes, OutgoingDelivery] = {}
        for entry in self.entries.values():
            if entry.unsent:
                continue
            delivery = entry.delivery
            if delivery is None or delivery.settled:
                delivery = OutgoingDelivery(SenderLink(session, name, True), entry.tag, False)
                delivery.context = entry.future
                entry.delivery = delivery
            delivery.remote_settled = False
            delivery.remote_state = None
            # An outcome that came to us is what we have come to as well.
            delivery.state = entry.state
            result[entry.tag] = delivery
        return result

    def suspend(self) -> None:
        """The link is gone for now."""
        self._todo.clear()
        self._strays.clear()
        self._live.clear()
        self._whole = True
        self._awaiting = self._resumes

    def forgo(self) -> None:
        """The peer keeps nothing: there is nothing to resume."""
        self.keeping = False
        self._resumes = False
        self._awaiting = False

    def begin(self, engine: SenderLink) -> bool:
        """The link is attached, and its target keeps what is unsettled: begin to resume.

        False if there was something to resume, and the peer has a new terminus instead.
        """
        self.suspend()
        self.keeping = True
        self._awaiting = False
        resumption = engine.resumption
        attach = engine.remote_attach
        if resumption is None or attach is None:
            self._resumes = True
            return True
        if attach.unsettled is None and (self.entries or self.given):
            return False
        for entry in self.entries.values():
            state = resumption.remote.get(entry.tag)
            if is_outcome(state):
                entry.know(state)
        self._todo.extend(self.entries.values())
        self._whole = resumption.whole
        if not resumption.complete:
            self._strays.extend(tag for tag in resumption.remote if tag not in self.entries)
        return True

    def fail(self, error: AmqpError) -> None:
        """Fail all deliveries: their outcomes will not be known."""
        for entry in self.entries.values():
            resolve(entry.future, error)

    # ── Resuming ───────────────────────────────────────────────────────────────────────────────

    def proceed(self, engine: SenderLink) -> None:
        """Resume as much as credit and room for writing allow."""
        resumption = engine.resumption
        if resumption is None:
            return
        while self._strays and _has_room(engine):
            engine.settle_unknown(self._strays.popleft())
        while self._todo and not self._strays:
            entry = self._todo[0]
            delivery = entry.delivery
            if entry.unsent or delivery is None:
                if self._whole:
                    if not _has_room(engine):
                        return
                    self._send_anew(engine, entry)
                self._todo.popleft()
                continue
            resolution = resumption.resolution(delivery)
            if resolution is Resolution.RESEND and not self._whole:
                # A new delivery, for which it is too early.
                engine.withdraw(delivery)
                entry.unsent = True
            elif resolution is Resolution.SETTLE and entry.held:
                pass
            elif resolution is not Resolution.WAIT:
                if resolution is not Resolution.FORGET and not _has_room(engine):
                    return
                self._resume(engine, entry, delivery)
            self._todo.popleft()

    def round_over(self, engine: SenderLink) -> bool:
        """Whether the maps were incomplete, and all that can be done about it has been done."""
        return (
            not self._whole and not self._todo and not self._strays and not self._live
            and engine.parked == 0 and engine.usable
        )  # fmt: skip

    def progresses(self, engine: SenderLink) -> bool:
        """Whether another round can bring something new."""
        resumption = engine.resumption
        known = sum(not entry.unsent for entry in self.entries.values())
        remote = frozenset() if resumption is None else frozenset(resumption.remote)
        before, self._before = self._before, (known, remote)
        return before != self._before

    @property
    def holding(self) -> bool:
        """Whether the application could settle some."""
        return any(entry.held and entry.future.done() for entry in self.entries.values())

    def _resume(self, engine: SenderLink, entry: SentDelivery, delivery: OutgoingDelivery) -> None:
        resolution = engine.resume(delivery, entry.payload, message_format=entry.message_format)
        if resolution in (Resolution.FORGET, Resolution.SETTLE, Resolution.ABORT):
            entry.know(delivery.state)
            if not entry.held:
                self.finish(entry)
        else:
            self._live.add(entry.tag)

    def _send_anew(self, engine: SenderLink, entry: SentDelivery) -> None:
        delivery = engine.send(entry.payload, tag=entry.tag, message_format=entry.message_format)
        delivery.context = entry.future
        entry.delivery = delivery
        entry.unsent = False

    # ── Ends ───────────────────────────────────────────────────────────────────────────────────

    def finish(self, entry: SentDelivery) -> None:
        """Forget a delivery that is settled."""
        self.entries.pop(entry.tag, None)
        self._live.discard(entry.tag)

    def on_outcome(self, delivery: OutgoingDelivery, state: DeliveryState | None) -> bool:
        """The receiver has come to an outcome; false if the delivery is none of these."""
        entry = self.entries.get(delivery.tag)
        if entry is None or not self.has(delivery):
            return False
        self._live.discard(entry.tag)
        if entry.held:
            if is_outcome(state):
                delivery.state = state
        else:
            delivery.settle()
            self.finish(entry)
        entry.know(state)
        return True

    def settle(self, engine: SenderLink | None, entry: SentDelivery) -> None:
        """The application has written the outcome down: the receiver may forget the delivery."""
        entry.held = False
        delivery = entry.delivery
        if delivery is None or engine is None or delivery.link is not engine or not engine.usable:
            # It is settled when it is resumed.
            return
        resumption = engine.resumption
        if resumption is not None and entry.tag in resumption.unsettled:
            if entry not in self._todo:
                self._todo.append(entry)
            self.proceed(engine)
        else:
            delivery.settle()
            self.finish(entry)


def _has_room(engine: SenderLink) -> bool:
    return (
        engine.usable and engine.credit > 0 and engine.parked == 0
        and len(engine.session.connection.output) < _WRITE_SIZE
    )  # fmt: skip


def _look_at(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
