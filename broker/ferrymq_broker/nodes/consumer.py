"""Consumers, as a queue sees them: links that take messages out of the queue."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.queues.locks import ConsumerLocks, MessageLocks
    from ferrymq_types.transport import Error

# The property that names the link of a subscription (`Consumer.known_as`).
OWNER: Final = 0
# The results of `Consumer.deliver`.
TAKEN: Final = 0  # sent; an outcome will follow
SETTLED: Final = 1  # sent settled: no outcome will follow
IDLE: Final = 2  # not now; the consumer wakes the queue when it can take messages again
UNFIT: Final = 3  # this consumer can never take the message


@final
class HeldList:
    """Entries that a consumer holds, from `first` to `last`. Those that are `passed_over` wait for
    the discharge of a transaction; the timer of the locks does not look at them."""

    __slots__ = ("first", "last", "passed_over")

    def __init__(self, first: Entry, last: Entry, passed_over: bool) -> None:
        self.first: Entry | None = first
        self.last: Entry | None = last
        self.passed_over: bool = passed_over


class Consumer:
    """A consumer, which takes messages when the queue offers them. Its `id` is unique in the
    broker.

    `copies` marks a browser: it gets copies and takes nothing. A message goes to one of the
    consumers with the highest `priority` that can take it. `filter` selects its messages, None
    selects all. `exclusive` says that it accepts no other consumer except browsers. `known_as` is a
    number that stays the same for all attachments of a link whose source outlives the link; the
    number is negative if the source outlives the broker. For all other links it is the `id`.

    The queue sets `ready`, `tier` and `own`. `ready` is whether the consumer may be offered
    messages. `tier` is the group of consumers with which it takes turns; None while it stands by,
    or for a browser. `own` has the entries, by rank, that wait for this consumer or for a few like
    it. The tier sets `next_ready` and `prev_ready`. `session_id` is the session that was claimed
    for the consumer, empty in a queue without sessions. `locks` are the locks of the messages that
    it holds, if the queue locks messages or has done so.

    The entries that it holds are in the order of `Entry.lock_deadline`, so that the timer of the
    locks looks only at the first one. If the order is broken, because the duration of locks has
    changed, those so far are put apart in a list of their own.
    """

    __slots__ = (
        "id",
        "known_as",
        "copies",
        "priority",
        "filter",
        "exclusive",
        "ready",
        "tier",
        "own",
        "session_id",
        "next_ready",
        "prev_ready",
        "locks",
        "held",
        "_held_first",
        "_held_last",
        "_apart",
    )

    def __init__(self, id: i64, copies: bool) -> None:
        self.id: i64 = id
        self.known_as: i64 = id
        self.copies: bool = copies
        self.priority: i64 = 0
        self.filter: Filter | None = None
        self.exclusive: bool = False
        self.ready: bool = False
        self.tier: PriorityTier | None = None
        self.own: list[tuple[int, Entry]] | None = None
        self.session_id: str = ""
        self.next_ready: Consumer | None = None
        self.prev_ready: Consumer | None = None
        self.locks: ConsumerLocks | None = None
        # The number of entries it holds: delivered, without an outcome so far.
        self.held: i64 = 0
        self._held_first: Entry | None = None
        self._held_last: Entry | None = None
        # Lists of entries that cannot be in the first one; mostly there are none.
        self._apart: list[HeldList] | None = None

    def deliver(self, entry: Entry) -> i64:
        """Send the message if possible; return one of the four results above."""
        return IDLE

    def deliver_headed(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Deliver a message that consists of `head` followed by its payload from `start` on."""
        return IDLE

    def is_among(self, excluded: set[int]) -> bool:
        """Return whether the consumer is one of those that must not get a message."""
        return self.id in excluded or self.known_as in excluded

    def takes_more(self) -> bool:
        """Return whether a message would be sent at once. If not, the consumer wakes the queue
        later."""
        return True

    def is_behind(self) -> bool:
        """Return whether something that the consumer was sent has not gone out yet."""
        return False

    def nothing_left(self) -> bool:
        """Answer a drain: the queue has no more messages for this consumer.

        Return false if the drain cannot be answered now; the queue then asks again after its next
        dispatch.
        """
        return True

    def use_locks(self, locks: MessageLocks | None) -> None:
        """Lock the messages that are sent unsettled from now on; None: do not lock them."""

    def evict(self, error: Error) -> None:
        """End the link with `error`: the queue is going away."""

    def forfeit(self, error: Error) -> None:
        """End the link with `error`, because it has lost a lock: messages that it held come back as
        failed deliveries."""

    # -- locks -------------------------------------------------------------------------

    def find_locked(self, token: bytes) -> Entry | None:
        """Return the locked entry whose delivery has this tag; None if there is none."""
        return None

    def token_of(self, entry: Entry) -> bytes:
        """Return the token of a locked entry that was delivered to this consumer."""
        raise NotImplementedError

    def on_unlocked(self, entry: Entry) -> None:
        """Handle that the lock of an entry ends that was delivered to this consumer."""

    # -- the entries that it holds -----------------------------------------------------

    def hold(self, entry: Entry) -> None:
        """Add an entry that was delivered and waits for its outcome."""
        last = self._held_last
        if last is not None and last.lock_deadline != entry.lock_deadline:
            if entry.lock_deadline < last.lock_deadline or last.lock_deadline == 0:
                self._put_apart()
                last = None
        if last is None:
            self._held_first = entry
        else:
            last.held_next = entry
            entry.held_prev = last
        self._held_last = entry
        self.held += 1

    def hold_first(self, entry: Entry) -> None:
        """Add an entry before all others: its lock is due."""
        first = self._held_first
        self._held_first = entry
        if first is None:
            self._held_last = entry
        else:
            entry.held_next = first
            first.held_prev = entry
        self.held += 1

    def unhold(self, entry: Entry) -> None:
        """Take out an entry whose outcome has come."""
        before = entry.held_prev
        after = entry.held_next
        if before is None:
            if self._held_first is entry:
                self._held_first = after
            else:
                self._list_of(entry).first = after
        else:
            before.held_next = after
            entry.held_prev = None
        if after is None:
            if self._held_last is entry:
                self._held_last = before
            else:
                self._list_of(entry).last = before
                self._drop_empty_lists()
        else:
            after.held_prev = before
            entry.held_next = None
        self.held -= 1

    def _put_apart(self) -> None:
        """Make all entries so far a list of its own."""
        first, last = self._held_first, self._held_last
        if first is not None and last is not None:
            if self._apart is None:
                self._apart = []
            self._apart.append(HeldList(first, last, False))
            self._held_first = self._held_last = None

    def _list_of(self, entry: Entry) -> HeldList:
        """Return the list whose first or last entry this is."""
        for held in self._apart or ():
            if held.first is entry or held.last is entry:
                return held
        raise AssertionError("the consumer does not hold the entry")

    def _drop_empty_lists(self) -> None:
        self._apart = [held for held in self._apart or () if held.last is not None] or None

    def pass_over(self, entry: Entry) -> None:
        """Put an entry apart whose lock is due: a transaction decides on it."""
        self.unhold(entry)
        self.held += 1
        for held in self._apart or ():
            last = held.last
            if held.passed_over and last is not None:
                last.held_next = entry
                entry.held_prev = last
                held.last = entry
                return
        if self._apart is None:
            self._apart = []
        self._apart.append(HeldList(entry, entry, True))

    def first_held(self) -> Entry | None:
        """Return the entry that has been held longest, unless others are apart."""
        first = self._held_first
        if first is None and self._apart is not None:
            first = self._apart[0].first
        return first

    def held_entries(self) -> list[Entry]:
        """Return all entries that it holds."""
        found: list[Entry] = []
        firsts = [self._held_first]
        firsts += [held.first for held in self._apart or ()]
        for entry in firsts:
            while entry is not None:
                found.append(entry)
                entry = entry.held_next
        return found

    def first_due(self, now: i64) -> Entry | None:
        """Return an entry whose lock is due; None if there is none."""
        first = self._held_first
        if first is not None and 0 < first.lock_deadline <= now:
            return first
        for held in self._apart or ():
            first = held.first
            if first is not None and not held.passed_over and 0 < first.lock_deadline <= now:
                return first
        return None

    def next_lock_deadline(self) -> i64:
        """Return when the next lock is due; 0 if there is none."""
        first = self._held_first
        due: i64 = 0 if first is None else first.lock_deadline
        for held in self._apart or ():
            first = held.first
            if first is not None and not held.passed_over and first.lock_deadline != 0:
                if due == 0 or first.lock_deadline < due:
                    due = first.lock_deadline
        return due


class PriorityTier:
    """The consumers of one priority that want the same messages and take turns.

    The `count` ready consumers take turns in the order from `first` to `last`. They form a list,
    linked by `Consumer.next_ready`, so that removing a consumer costs nothing. `turn` is the
    consumer whose turn it is, None at the end of a round. `eager` has the ready consumers that have
    entries of their own. `taken` is the share of messages that the tier has had: if several tiers
    want a message, the tier with the lowest share gets it.
    """

    __slots__ = (
        "members",
        "count",
        "first",
        "last",
        "turn",
        "eager",
        "taken",
    )

    def __init__(self) -> None:
        self.members: dict[Consumer, None] = {}
        self.count: i64 = 0
        self.first: Consumer | None = None
        self.last: Consumer | None = None
        self.turn: Consumer | None = None
        self.eager: OrderedDict[Consumer, None] = OrderedDict()
        self.taken: i64 = 0

    def admit(self, consumer: Consumer) -> None:
        """Add a consumer that is ready, at the end of a round."""
        last = self.last
        if last is None:
            self.first = consumer
        else:
            last.next_ready = consumer
            consumer.prev_ready = last
        self.last = consumer
        self.count += 1
        if self.turn is None:
            # The round was at its end.
            self.turn = consumer
        if consumer.own is not None:
            self.eager[consumer] = None

    def dismiss(self, consumer: Consumer) -> None:
        """Remove a consumer that was ready."""
        before = consumer.prev_ready
        after = consumer.next_ready
        if before is None:
            self.first = after
        else:
            before.next_ready = after
            consumer.prev_ready = None
        if after is None:
            self.last = before
        else:
            after.prev_ready = before
            consumer.next_ready = None
        self.count -= 1
        if self.turn is consumer:
            self.turn = after
        if self.eager:
            self.eager.pop(consumer, None)

    def ready(self) -> list[Consumer]:
        """Return the consumers that are ready, in the order of their turns."""
        found: list[Consumer] = []
        consumer = self.first
        while consumer is not None:
            found.append(consumer)
            consumer = consumer.next_ready
        return found
