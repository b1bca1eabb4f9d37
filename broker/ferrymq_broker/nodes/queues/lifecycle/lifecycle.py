"""The lifecycle of the messages of one queue, by its policy.

The queue keeps messages in order and delivers them. The lifecycle decides whether a message is
admitted, and when it leaves in another way than by a consumer.

The queue calls

- `publish` instead of appending a message, if the lifecycle is `guarded` or the message `special`;
- `on_unlinked` whenever an entry has left, if the lifecycle is `guarded` or the entry `expires`;
- `returned` before an entry becomes available again, under the same condition;
- `on_failed`, `on_rejected` and `expired` as they happen;
- `on_deserted` when its last link is gone.

The lifecycle appends and drops `entries`; it knows the queue only as a `Node`.

A queue with the plain policy has none of the parts below, so that 50 000 of them cost little.

One module because it is one thing: the order in which the parts are asked when a message comes,
leaves or returns. Each part is a module of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.dead_letter_index import dead_letter_addresses_of
from ferrymq_broker.nodes.disabling import refusal_of_disabled
from ferrymq_broker.nodes.entry import AVAILABLE, DEFERRED
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import BOUNDLESS, Refusal
from ferrymq_broker.nodes.queues.disk_runs import RowWatcher
from ferrymq_broker.nodes.queues.lifecycle.auto_delete import AutoDelete
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import (
    DELIVERY_LIMIT,
    EXPIRED,
    FORWARDING,
    REJECTED,
    DeadLetters,
    is_own_dead_letter,
)
from ferrymq_broker.nodes.queues.lifecycle.deduplication import DuplicateDetection, identity_of
from ferrymq_broker.nodes.queues.lifecycle.forwarding import Forwarding
from ferrymq_broker.nodes.queues.lifecycle.last_value import LastValues
from ferrymq_broker.nodes.queues.lifecycle.length_limit import LengthLimit, LengthTrim
from ferrymq_broker.nodes.queues.lifecycle.message_expiry import (
    MessageExpiry,
    expiry_date,
    time_to_live,
)
from ferrymq_broker.nodes.queues.lifecycle.policy_history import PolicyHistory
from ferrymq_broker.nodes.queues.lifecycle.reservations import Reservations
from ferrymq_broker.nodes.queues.lifecycle.schedule import (
    Schedule,
    Scheduled,
    delay_of,
    delivery_time,
)
from ferrymq_broker.nodes.queues.sessions import refusal_of
from ferrymq_broker.slices import Slices
from ferrymq_broker.values.policy import UNCONSUMED
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.values.policy import QueuePolicy

# The results of `MessageLifecycle._admit`.
_APPEND: Final = 0  # append the message
_HANDLED: Final = 1  # the message is admitted and must not be appended (now)
_REFUSED: Final = 2  # the message is not admitted: `refusal` says why


@final
class MessageLifecycle(RowWatcher):
    """The lifecycle of the messages of the queue `node`.

    `guarded` says whether every message has to be looked at. `refusal` is why the last message was
    refused.

    Counted since the broker was started: `refusals`, `expirations`, `overflowed` (dropped for the
    limits), `duplicated` (dropped as duplicates), `replaced` (by a newer message of the same key).
    """

    __slots__ = (
        "node",
        "entries",
        "policy",
        "guarded",
        "refusal",
        "refusals",
        "expirations",
        "overflowed",
        "duplicated",
        "replaced",
        "reservations",
        "policy_history",
        "_length_limit",
        "_expiry",
        "_schedule",
        "_duplicates",
        "_last_values",
        "_auto_delete",
        "_dead_letters",
        "_boxes",
        "_forwarding",
        "_replaced",
        "_trimming",
    )

    def __init__(self, node: Node, entries: QueueEntries, policy: QueuePolicy) -> None:
        self.node: Node = node
        self.entries: QueueEntries = entries
        self.policy: QueuePolicy = policy
        self.guarded: bool = False
        self.refusal: Refusal | None = None
        self.refusals: int = 0
        self.expirations: int = 0
        self.overflowed: int = 0
        self.duplicated: int = 0
        self.replaced: int = 0
        # Room that is reserved for messages to come; None until the first reservation.
        self.reservations: Reservations | None = None
        # Earlier settings that still hold for older messages; None if there are none.
        self.policy_history: PolicyHistory | None = None
        self._length_limit: LengthLimit | None = None
        self._expiry: MessageExpiry | None = None
        self._schedule: Schedule | None = None
        self._duplicates: DuplicateDetection | None = None
        self._last_values: LastValues | None = None
        self._auto_delete: AutoDelete | None = None
        self._dead_letters: DeadLetters | None = None
        # The dead-letter addresses that were registered with the virtual host.
        self._boxes: list[str] = []
        # What sends messages on; None if it has never been needed.
        self._forwarding: Forwarding | None = None
        # Entries that must leave when all entries are restored.
        self._replaced: list[Entry] | None = None
        # The task that drops messages above new limits; None until it is needed.
        self._trimming: LengthTrim | None = None
        self._follow(policy)

    # -- the policy ------------------------------------------------------------------------

    def change_policy(self, policy: QueuePolicy) -> None:
        """Use another policy from now on.

        Limits hold at once. `message_ttl` and `last_value_key` hold for later messages; messages in
        the queue keep their settings.
        """
        before = self.policy
        if (
            before.message_ttl != policy.message_ttl
            or before.last_value_key != policy.last_value_key
        ):
            if self.policy_history is None:
                self.policy_history = PolicyHistory()
            self.policy_history.change(before, policy, self.entries)
        self.policy = policy
        self._follow(policy)
        if self._dead_letters is not None:
            self._dead_letters.forgive()
        self._trim()
        if self.room() != BOUNDLESS:
            narrow(self.node)

    def keep_bounds(self) -> bool:
        """Drop messages above the limits, as far as the slice allows; return whether the limits are
        kept."""
        length_limit = self._length_limit
        return length_limit is None or self.node.deleted or length_limit.keep()

    def _trim(self) -> None:
        """Drop messages above the limits, in slices."""
        if not self.keep_bounds():
            trimming = self._trimming
            if trimming is None:
                trimming = LengthTrim(self)
                self._trimming = trimming
            self.node.agenda.slices.add(trimming)

    def _follow(self, policy: QueuePolicy) -> None:
        self._send_letters(dead_letter_addresses_of(policy))
        bounded = policy.max_length > 0 or policy.max_bytes > 0 or policy.target_latency > 0
        self._length_limit = LengthLimit(self, policy) if bounded else None
        duplicates = self._duplicates
        if policy.duplicate_window <= 0:
            if duplicates is not None:
                duplicates.close()
            self._duplicates = None
        elif duplicates is None:
            self._duplicates = DuplicateDetection(
                self.entries.records, policy.duplicate_window, policy.duplicate_limit
            )
        else:
            duplicates.window = policy.duplicate_window
            duplicates.limit = policy.duplicate_limit
        last_values = self._last_values
        if not policy.last_value_key:
            self._last_values = None
        elif last_values is None or last_values.key != policy.last_value_key:
            self._last_values = LastValues(policy.last_value_key)
        if policy.forward_to and self._forwarding is None:
            self._forwarding = Forwarding(self.node)
        if self._forwarding is not None:
            self._forwarding.address = policy.forward_to
        if self._auto_delete is not None:
            self._auto_delete.close()
            self._auto_delete = None
        if policy.auto_delete >= 0:
            by_consumers = policy.auto_delete_when == UNCONSUMED
            self._auto_delete = AutoDelete(self.node, policy.auto_delete, by_consumers)
        self.guarded = (
            bounded
            or policy.message_ttl > 0
            or policy.duplicate_window > 0
            or policy.auto_delete >= 0
            or bool(policy.last_value_key)
            or policy.sessions
            or bool(policy.forward_to)
            or policy.send_disabled
        )

    def _send_letters(self, boxes: list[str]) -> None:
        """Register the present dead-letter addresses: reading from them needs a right."""
        if boxes or self._boxes:
            known = self.node.space.dead_letter_index
            known.add(boxes)
            known.drop(self._boxes)
            self._boxes = boxes

    # -- messages in -----------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Admit the message, now or when it is due, unless there is a reason against it."""
        node = self.node
        if node.deleted:
            return Refusal("amqp:not-found", f"{node.address!r} has been deleted")
        verdict = self._admit(message)
        if verdict == _APPEND:
            if self.policy.forward_to:
                return self._forward(message)
            self._on_appended(self.entries.append(message))
            if message.origin == 0 and self.room() < node.pledged():
                # The message used no credit of its own, so credit of others is taken back.
                narrow(node)
        elif verdict == _REFUSED:
            return self.refusal
        return None

    def _forward(self, message: BrokerMessage) -> Refusal | None:
        """Send an admitted message on; return the reason if its sender must know that this is not
        possible."""
        forwarding = self._forwarding
        refusal = None if forwarding is None else forwarding.publish(message)
        if refusal is None:
            return None
        if self.policy.forward_failed:
            self.give_up(message, refusal)
            return None
        duplicates = self._duplicates
        if duplicates is not None:
            duplicates.retract(identity_of(message))
        self.refusals += 1
        return refusal

    def give_up(self, message: BrokerMessage, refusal: Refusal) -> None:
        """Make a dead letter of a message that cannot be sent on."""
        self._bury(message, refusal, FORWARDING)

    def _bury(self, message: BrokerMessage, refusal: Refusal, reason: str = "") -> None:
        """Make a dead letter of a message that is refused; without a `reason` it is the limit that
        the refusal names."""
        entry = self.entries.append(message)
        if not reason and refusal.info is not None:
            reason = str(refusal.info.get("reason", ""))
        error = Error(condition=refusal.condition, description=refusal.description)
        self._dead_letter(entry, reason, error)
        if entry.state == AVAILABLE:
            self.entries.drop(entry)

    def keeps_elsewhere(self, message: BrokerMessage) -> bool:
        """Return whether the message, which is sent on, survives a crash where it goes."""
        forwarding = self._forwarding
        return forwarding is not None and forwarding.address != "" and forwarding.keeps(message)

    def _admit(self, message: BrokerMessage) -> i64:
        """Return whether the message is admitted: one of the three results above."""
        now = self.node.agenda.now
        if self.policy.send_disabled and message.origin != 0:
            return self._refuse(refusal_of_disabled(self.node))
        if self._auto_delete is not None:
            self._auto_delete.used(now)
        if self.policy.sessions:
            refusal = refusal_of(message)
            if refusal is not None:
                return self._refuse(refusal)
        identity: object = None
        duplicates = self._duplicates
        if duplicates is not None:
            identity = identity_of(message)
            if identity is not None and is_own_dead_letter(message):
                # The dead letter came back through the broker; it is not a repetition by a client.
                identity = None
            if identity is not None and duplicates.knows(identity, now):
                self.duplicated += 1
                # The first message may not be on disk yet, and this is another connection.
                self.node.agenda.changes.claim()
                return _HANDLED
        due: i64 = 0
        if message.special:
            try:
                due = delivery_time(message, self.node.agenda)
            except BrokerError as error:
                return self._refuse(Refusal(error.condition, error.description))
            if due != 0 and self.policy.forward_to and delay_of(message) >= 0:
                # The delay counts where the message goes; there it would count a second time.
                due = 0
        length_limit = self._length_limit
        if length_limit is not None:
            replaced = None
            if self._last_values is not None and due == 0:
                replaced = self._last_values.waiting(message)
            refusal = length_limit.find_room(message, due != 0, replaced)
            if refusal is not None and not self._has_reserved(message):
                if length_limit.buries and not self._stays_elsewhere():
                    self.overflowed += 1
                    self._bury(message, refusal)
                return self._refuse(refusal)
        if duplicates is not None and identity is not None:
            duplicates.remember(identity, self.node.agenda, self.entries.records.keeps(message))
        if due == 0:
            return _APPEND
        schedule = self._schedule
        if schedule is None:
            schedule = Schedule(self)
            self._schedule = schedule
        schedule.add(message, due)
        return _HANDLED

    def _stays_elsewhere(self) -> bool:
        """Return whether a message that is refused now belongs to another queue: that moves it, or
        sends it on."""
        node = self.node
        return node.agenda.moving or len(node.space.forwarding) > 0

    def _refuse(self, refusal: Refusal) -> i64:
        self.refusal = refusal
        self.refusals += 1
        return _REFUSED

    @property
    def reserved(self) -> i64:
        """Return how many messages have reserved room, beside the messages that they will
        replace."""
        reservations = self.reservations
        return 0 if reservations is None else reservations.count

    @property
    def reserved_bytes(self) -> i64:
        """Return the size in bytes of the messages that have reserved room."""
        reservations = self.reservations
        return 0 if reservations is None else reservations.size

    def _has_reserved(self, message: BrokerMessage) -> bool:
        """Return whether room is reserved for the message."""
        reservations = self.reservations
        return reservations is not None and reservations.knows(message)

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Return None if a message that comes later will be admitted, and keep room for it; else
        the reason."""
        node = self.node
        if node.deleted:
            return Refusal("amqp:not-found", f"{node.address!r} has been deleted")
        if self.policy.send_disabled and message.origin != 0:
            self.refusals += 1
            return refusal_of_disabled(node)
        if self.policy.sessions:
            refusal = refusal_of(message)
            if refusal is not None:
                self.refusals += 1
                return refusal
        due: i64 = 0
        if message.special:
            try:
                due = delivery_time(message, self.node.agenda)
            except BrokerError as error:
                self.refusals += 1
                return Refusal(error.condition, error.description)
        forwarding = self._forwarding
        if forwarding is not None and self.policy.forward_to and due == 0:
            refusal = forwarding.reserve(message, holders)
            return None if self.policy.forward_failed else refusal
        length_limit = self._length_limit
        if length_limit is None:
            return None
        reservations = self.reservations
        if reservations is None:
            reservations = Reservations()
            self.reservations = reservations
        if reservations.knows(message):
            # Room was promised before, and the promise is kept.
            reservations.add(message, None)
            holders.append(node)
            return None
        replaced = None
        if self._last_values is not None and due == 0:
            replaced = self._last_values.waiting(message)
        refusal = length_limit.foresee_room(message, due != 0, replaced)
        if refusal is not None:
            self.refusals += 1
        else:
            reservations.add(message, replaced)
            holders.append(node)
        return refusal

    def unreserve(self, message: BrokerMessage) -> None:
        """Give up the room that was kept for the message."""
        reservations = self.reservations
        if reservations is not None:
            reservations.drop(message)

    def enter(self, message: BrokerMessage) -> None:
        """Append a scheduled message that is due, or send it on. It stays in the queue if that is
        not possible."""
        forwarding = self._forwarding
        if forwarding is not None and self.policy.forward_to:
            refusal = forwarding.publish(message)
            if refusal is None:
                return
            if self.policy.forward_failed:
                self.give_up(message, refusal)
                return
        self._on_appended(self.entries.append(message))

    def _on_appended(self, entry: Entry) -> None:
        """Apply expiry, last value and limits to a message that was appended. It may have left when
        this returns."""
        node = self.node
        message = entry.message
        ttl = time_to_live(message, self.policy.message_ttl)
        date = expiry_date(message)
        if ttl >= 0 or date != 0:
            agenda = node.agenda
            if ttl == 0 or (date != 0 and date <= agenda.wall):
                self.expired(entry)
                return
            self._expire_at(entry, 0 if ttl < 0 else agenda.now + ttl, date)
        last_values = self._last_values
        if last_values is not None:
            before = last_values.add(entry)
            if before is not None:
                self.replaced += 1
                if self.reservations is not None:
                    self.reservations.succeed(before, entry)
                self.entries.drop(before)
        if self._length_limit is not None:
            self._trim()

    def _expire_at(self, entry: Entry, moment: i64, date: i64) -> None:
        """Set when the entry expires: at a moment by `Agenda.now`, on a date, or both; 0 is
        never."""
        expiry = self._expiry
        if expiry is None:
            expiry = MessageExpiry(self)
            self._expiry = expiry
        expiry.expire(entry, moment, date)

    def room(self) -> i64:
        """Return how many more messages fit, for `Node.room`."""
        length_limit = self._length_limit
        return BOUNDLESS if length_limit is None else length_limit.room()

    def excess(self) -> i64:
        """Return how many messages there are above the limit."""
        length_limit = self._length_limit
        return 0 if length_limit is None else length_limit.excess()

    def excess_bytes(self) -> i64:
        """Return how many bytes of messages there are above the limit."""
        length_limit = self._length_limit
        return 0 if length_limit is None else length_limit.excess_bytes()

    # -- messages out ----------------------------------------------------------------------

    def on_unlinked(self, entry: Entry) -> None:
        """Forget an entry that has left the queue, for whatever reason."""
        if entry.expires != 0 and self._expiry is not None:
            self._expiry.forget(entry)
        if self._last_values is not None:
            self._last_values.forget(entry)
            if self.reservations is not None:
                self.reservations.leave(entry)
        if self._auto_delete is not None:
            self._auto_delete.reconsider()

    def on_dropped(self) -> None:
        """Update the state after messages of a run have left the queue."""
        if self._auto_delete is not None:
            self._auto_delete.reconsider()

    def has_key(self, entry: Entry) -> bool:
        """Return whether a newer message may replace that of the entry."""
        return self._last_values is not None and self._last_values.has(entry)

    def watch_expiry(self, entry: Entry) -> None:
        """Watch the expiry of an entry that was in a run."""
        if self._expiry is None:
            self._expiry = MessageExpiry(self)
        self._expiry.add(entry)

    def forget_expiry(self, entry: Entry) -> None:
        """Stop watching the expiry of an entry, which is in a run from now on."""
        if self._expiry is not None:
            self._expiry.forget(entry)

    def watch_run(self, place: Entry, moment: i64, date: i64) -> None:
        """Watch the expiry of a run: the first message expires at a moment by `Agenda.now`, or
        on a date; 0 is never."""
        if self._expiry is None:
            self._expiry = MessageExpiry(self)
        self._expiry.add_run(place, moment, date)

    def forget_run(self, place: Entry) -> None:
        """Stop watching a run that no longer exists."""
        if self._expiry is not None:
            self._expiry.forget_run(place)

    def release_due(self, place: Entry) -> None:
        """Make entries of the messages of a run that have expired."""
        runs = self.entries.level_of(place.level).runs
        if runs is not None:
            runs.release_due(place)

    def returned(self, entry: Entry) -> bool:
        """Check an entry that will be available again; return true if it must leave instead.

        Then the queue unlinks it.
        """
        if entry.expires != 0 and self.node.agenda.left(entry.expires) <= 0:
            self._count_expired(entry)
            return True
        if self._last_values is None:
            return False
        old = self._last_values.is_back(entry)
        if old is None:
            return False
        self.replaced += 1
        if old is entry:
            return True
        self.entries.drop(old)
        return False

    def expired(self, entry: Entry) -> None:
        """Drop an available or deferred entry that has expired."""
        if entry.state == DEFERRED:
            self.entries.undefer(entry)
        self._count_expired(entry)
        if entry.state == AVAILABLE:
            self.entries.drop(entry)

    def drop_head(self, entry: Entry, reason: str, buried: bool) -> None:
        """Drop an available entry to make room; with `buried` it becomes a dead letter."""
        self.overflowed += 1
        if buried:
            self._dead_letter(entry, reason, None)
        if entry.state == AVAILABLE:
            self.entries.drop(entry)

    def _count_expired(self, entry: Entry) -> None:
        self.expirations += 1
        self._dead_letter(entry, EXPIRED, None)

    def on_failed(self, entry: Entry) -> bool:
        """Check a failed delivery that has been counted; return true if the delivery limit is
        exceeded.

        Then the message becomes a dead letter, and the queue unlinks the entry.
        """
        limit = self.policy.delivery_limit
        if limit == 0 or i64(entry.failures) <= limit:
            return False
        self._dead_letter(entry, DELIVERY_LIMIT, None)
        return True

    def on_rejected(self, entry: Entry, error: Error | None) -> None:
        """Dead-letter a message that the consumer found invalid; the queue unlinks the entry.

        That counts as a failed delivery (AMQP 1.0 §3.4.3).
        """
        entry.failures += 1
        self._dead_letter(entry, REJECTED, error)

    def _dead_letter(self, entry: Entry, reason: str, error: Error | None) -> None:
        policy = self.policy
        address = policy.dead_letter
        if reason == EXPIRED and policy.drop_expired:
            address = ""
        elif reason == EXPIRED and policy.expired:
            address = policy.expired
        elif reason == FORWARDING:
            address = policy.forward_failed
        dead_letters = self._dead_letters
        if dead_letters is None:
            dead_letters = DeadLetters(self.node, self.entries)
            self._dead_letters = dead_letters
        returns = policy.return_rejected and reason in (REJECTED, DELIVERY_LIMIT)
        kept = returns or address != ""
        if kept and entry.is_out() and not self.entries.page_in(entry):
            # The record stays where it is, unless the entry is just leaving.
            return
        dead_letters.send(entry, address, reason, error, returns)

    # -- scheduled messages ----------------------------------------------------------------

    def scheduled(self) -> i64:
        """Return the number of scheduled messages."""
        schedule = self._schedule
        return 0 if schedule is None else schedule.count

    def scheduled_bytes(self) -> i64:
        """Return the size in bytes of the scheduled messages."""
        schedule = self._schedule
        return 0 if schedule is None else schedule.bytes

    def list_scheduled(self) -> list[Scheduled]:
        """Return the scheduled messages in the order of delivery."""
        schedule = self._schedule
        return [] if schedule is None else schedule.listed()

    def last_scheduled(self) -> i64:
        """Return the number of the message that was scheduled last, 0 if there was none."""
        schedule = self._schedule
        return 0 if schedule is None else schedule.last

    def has_scheduled(self, sequence: i64) -> bool:
        """Return whether a scheduled message has this number."""
        schedule = self._schedule
        return schedule is not None and sequence in schedule.known

    def cancel_scheduled(self, sequence: i64) -> bool:
        """Cancel a scheduled message; return false if there is none with this number."""
        schedule = self._schedule
        if schedule is None or not schedule.cancel(sequence):
            return False
        if self._auto_delete is not None:
            self._auto_delete.reconsider()
        # Senders may wait for the room, and auto-delete for the last message.
        self.node.touch()
        return True

    # -- restoring ---------------------------------------------------------------------------

    def restore_policy_history(self, fields: dict[str, object]) -> i64:
        """Restore earlier settings; return the sequence of the last message that they hold for.
        Raises `StoreDamaged`."""
        self.policy_history = policy_history = PolicyHistory()
        policy_history.restore(fields)
        return policy_history.last()

    def restore_entry(self, entry: Entry, time: i64, expires: bool) -> None:
        """Restore an entry; `time` is the date when it came or, with `expires`, the date when it
        expires."""
        policy_history = self.policy_history
        agenda = self.node.agenda
        date = expiry_date(entry.message)
        moment: i64 = 0
        if expires:
            if time != date:
                # A message never gets more time than it came with.
                moment = agenda.now - agenda.wall + time
                ttl: i64 = entry.message.ttl
                if ttl >= 0 and moment > agenda.now + ttl:
                    moment = agenda.now + ttl
        else:
            ttl = self.policy.message_ttl
            if policy_history is not None:
                ttl = policy_history.ttl(entry.sequence, ttl)
            ttl = time_to_live(entry.message, ttl)
            if ttl >= 0:
                moment = agenda.moment_of(time) + ttl
        if moment < 0:
            moment = 1
        if moment != 0 or date != 0:
            self._expire_at(entry, moment, date)
        last_values = self._last_values
        if last_values is not None and (
            policy_history is None or entry.sequence > policy_history.unkeyed
        ):
            before = last_values.add(entry)
            if before is not None:
                # A consumer held the entry when the newer one came.
                if self._replaced is None:
                    self._replaced = []
                self._replaced.append(before)

    def restore_scheduled(self, sequence: i64, due: i64, message: BrokerMessage, size: i64) -> None:
        """Restore a scheduled message, with a payload of this size."""
        if self._schedule is None:
            self._schedule = Schedule(self)
        self._schedule.restore(sequence, due, message, size)

    def restore_identity(self, number: i64, time: i64, identity: object) -> bool:
        """Restore the identity of a message that came on the date `time`; return false if it is
        not needed."""
        if self._duplicates is None:
            return False
        self._duplicates.restore(number, self.node.agenda.moment_of(time), identity)
        return True

    def drop_replaced(self) -> None:
        """Drop the entries that newer ones have replaced, after all are restored."""
        replaced = self._replaced
        if replaced is not None:
            self._replaced = None
            for entry in replaced:
                self.replaced += 1
                self.entries.drop(entry)

    # -- the queue -------------------------------------------------------------------------

    def on_deserted(self) -> None:
        """Note the end of the last link of the queue."""
        if self._auto_delete is not None:
            self._auto_delete.used(self.node.agenda.now)

    def on_unconsumed(self) -> None:
        """Note the end of the last consumer of the queue."""
        if self._auto_delete is not None:
            self._auto_delete.unconsumed(self.node.agenda.now)

    def stop(self) -> None:
        """Cancel all timers, because the queue is deleted. Later publishes are refused
        (`publish`)."""
        self.guarded = True
        self._send_letters([])
        if self._dead_letters is not None:
            # The records of scheduled messages are dropped with those of the queue, in the same
            # batch.
            self._dead_letters.publish_all()
        if self._expiry is not None:
            self._expiry.close()
            self._expiry = None
        if self._auto_delete is not None:
            self._auto_delete.close()
            self._auto_delete = None

    def close(self, slices: Slices) -> bool:
        """Drop the scheduled messages; return whether all are dropped. Publish dead letters that
        consumers caused when their links ended."""
        if self._dead_letters is not None:
            self._dead_letters.publish_all()
        return self._schedule is None or self._schedule.close(slices)

    def totals(self) -> dict[str, int]:
        """Return the counters by their public names, for `Node.describe`."""
        dead_letters = self._dead_letters
        return {
            "refused": self.refusals,
            "expirations": self.expirations,
            "overflowed": self.overflowed,
            "duplicates": self.duplicated,
            "replaced": self.replaced,
            "dead-lettered": 0 if dead_letters is None else dead_letters.sent,
            "returned": 0 if dead_letters is None else dead_letters.returned,
            "dropped": 0 if dead_letters is None else dead_letters.dropped,
            "circles": 0 if dead_letters is None else dead_letters.circles,
            "forwarded": 0 if self._forwarding is None else self._forwarding.count,
        }
