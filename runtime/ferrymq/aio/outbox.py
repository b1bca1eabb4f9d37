"""Unsettled deliveries of a sender, kept so that they can be resumed (AMQP 1.0 §2.6.13).

A link to a durable target is attached again with the tags and states of all deliveries in flight.
From the receiver's answer the engine decides how each delivery continues
(`ferrymq.engine.resumption`). This module resumes the deliveries in the order of the sends and as
credit comes.

Maps that do not fit into a frame are resumed in rounds. While a map is incomplete no new delivery
may be sent: deliveries that both sides know are completed, those that the receiver does not know
are put aside, and the link is detached and attached again, until both maps are complete.
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

# Output beyond this size, in bytes, is written before more deliveries are resumed.
_WRITE_SIZE: Final = 65536


class SentDelivery:
    """Sent message that is not settled finally. `future` ends with its outcome."""

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
        self.tag: bytes = tag
        self.payload: bytes = payload
        self.message_format: int = 0
        self.future: asyncio.Future[None] = future
        # Whether it stays unsettled until the application settles it.
        self.held: bool = held
        self.delivery: OutgoingDelivery | None = delivery
        # The outcome, once it is known.
        self.state: Outcome | None = None
        # Whether the receiver does not know it: then it is no longer a delivery.
        self.unsent: bool = False

    def know(self, state: DeliveryState | None) -> None:
        """Apply an outcome of the receiver, which completes the caller's `send`."""
        if isinstance(state, Accepted | Rejected | Released | Modified):
            self.state = state
        if not self.future.done():
            error = error_of(state)
            if error is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(error)


class Outbox:
    """Unsettled deliveries of one sender, in the order they were sent, by tag."""

    def __init__(self, given: Iterable[Unsettled] | None) -> None:
        self.entries: dict[bytes, SentDelivery] = {}
        # Whether the peer keeps its half. If not, deliveries in flight are lost with the
        # connection.
        self.keeping: bool = False
        # Whether the link resumes, possibly with an empty map.
        self._resumes = given is not None
        self.given: list[SentDelivery] = []
        # Deliveries to resume on the current attachment, and those of them that have not ended yet.
        self._todo: deque[SentDelivery] = deque()
        self._strays: deque[bytes] = deque()
        self._live: set[bytes] = set()
        self._whole = True
        # Whether the link must be attached before the remaining work is known.
        self._awaiting = self._resumes
        # The state at the beginning of the last round: the next round must begin with another one.
        self._before: tuple[int, frozenset[bytes]] | None = None
        for one in given or ():
            if one.tag in self.entries or len(one.tag) > 32:
                raise ValueError(f"delivery-tag {one.tag!r} is there twice, or too long")
            future = asyncio.get_running_loop().create_future()
            # The application may never ask for the outcome.
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
        """Whether new messages have to wait for the resumption of earlier ones."""
        return bool(self._todo) or not self._whole or self._awaiting

    @property
    def waiting(self) -> int:
        """Number of deliveries that are still to be resumed on the current attachment."""
        return len(self._todo)

    @property
    def partial(self) -> bool:
        """Whether the current attachment was resumed with an incomplete map."""
        return not self._whole

    def has(self, delivery: OutgoingDelivery) -> bool:
        """Return whether the delivery is one of these."""
        entry = self.entries.get(delivery.tag)
        return entry is not None and entry.delivery is delivery

    def was_forgotten(self, tag: bytes) -> bool:
        """Return whether a delivery of an earlier process has ended without an outcome."""
        return tag not in self.entries and any(
            one.tag == tag and one.future.done() and one.state is None for one in self.given
        )

    def undecided(self) -> set[OutgoingDelivery]:
        """Return the deliveries whose outcome is unknown."""
        return {
            entry.delivery
            for entry in self.entries.values()
            if entry.delivery is not None and not entry.future.done()
        }

    def unsettled(self) -> list[Unsettled]:
        """Return the deliveries that another process needs for resuming."""
        return [
            Unsettled(entry.tag, entry.payload, entry.state, entry.message_format)
            for entry in self.entries.values()
        ]

    # ── Attaching ──────────────────────────────────────────────────────────────────────────────

    def to_resume(self, session: EngineSession, name: str) -> dict[bytes, OutgoingDelivery] | None:
        """Return the unsettled deliveries to attach with; None to begin without resuming."""
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
            # An outcome that the receiver has sent is our outcome as well.
            delivery.state = entry.state
            result[entry.tag] = delivery
        return result

    def suspend(self) -> None:
        """Suspend while the link is down."""
        self._todo.clear()
        self._strays.clear()
        self._live.clear()
        self._whole = True
        self._awaiting = self._resumes

    def forgo(self) -> None:
        """Stop resuming: the peer keeps no unsettled deliveries."""
        self.keeping = False
        self._resumes = False
        self._awaiting = False

    def begin(self, engine: SenderLink) -> bool:
        """Begin to resume after an attach to a target that keeps unsettled deliveries.

        Returns false if there are deliveries to resume and the peer has a new terminus instead.
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
        """Fail all deliveries, whose outcome is unknown."""
        for entry in self.entries.values():
            resolve(entry.future, error)

    # ── Resuming ───────────────────────────────────────────────────────────────────────────────

    def proceed(self, engine: SenderLink) -> None:
        """Resume as many deliveries as credit and room for writing allow."""
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
                    self._send_again(engine, entry)
                self._todo.popleft()
                continue
            resolution = resumption.resolution(delivery)
            if resolution is Resolution.RESEND and not self._whole:
                # This would be a new delivery, which may not be sent yet.
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
        """Return whether the maps were incomplete and all possible work of the round is done."""
        return (
            not self._whole and not self._todo and not self._strays and not self._live
            and engine.parked == 0 and engine.usable
        )  # fmt: skip

    def progresses(self, engine: SenderLink) -> bool:
        """Return whether another round can make progress."""
        resumption = engine.resumption
        known = sum(not entry.unsent for entry in self.entries.values())
        remote = frozenset() if resumption is None else frozenset(resumption.remote)
        before, self._before = self._before, (known, remote)
        return before != self._before

    @property
    def holding(self) -> bool:
        """Return whether the application could settle some deliveries."""
        return any(entry.held and entry.future.done() for entry in self.entries.values())

    def _resume(self, engine: SenderLink, entry: SentDelivery, delivery: OutgoingDelivery) -> None:
        resolution = engine.resume(delivery, entry.payload, message_format=entry.message_format)
        if resolution in (Resolution.FORGET, Resolution.SETTLE, Resolution.ABORT):
            entry.know(delivery.state)
            if not entry.held:
                self.finish(entry)
        else:
            self._live.add(entry.tag)

    def _send_again(self, engine: SenderLink, entry: SentDelivery) -> None:
        delivery = engine.send(entry.payload, tag=entry.tag, message_format=entry.message_format)
        delivery.context = entry.future
        entry.delivery = delivery
        entry.unsent = False

    # ── Ends ───────────────────────────────────────────────────────────────────────────────────

    def finish(self, entry: SentDelivery) -> None:
        """Finish a settled delivery."""
        self.entries.pop(entry.tag, None)
        self._live.discard(entry.tag)

    def on_outcome(self, delivery: OutgoingDelivery, state: DeliveryState | None) -> bool:
        """Apply an outcome of the receiver; return false if the delivery is none of these."""
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
        """Settle a delivery whose outcome the application has stored: the receiver may forget
        it."""
        entry.held = False
        delivery = entry.delivery
        if delivery is None or engine is None or delivery.link is not engine or not engine.usable:
            # The delivery is settled when it is resumed.
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
        and engine.session.connection.output_size() < _WRITE_SIZE
    )  # fmt: skip


def _look_at(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
