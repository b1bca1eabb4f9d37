"""Consumers, as a queue sees them: links that take messages out of the queue."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.queues.locks import MessageLocks
    from ferrymq_types.transport import Error

# The property that names the link of a subscription (`Consumer.known_as`).
OWNER: Final = 0
# The results of `Consumer.deliver`.
TAKEN: Final = 0  # sent; an outcome will follow
SETTLED: Final = 1  # sent settled: no outcome will follow
IDLE: Final = 2  # not now; the consumer wakes the queue when it can take messages again
UNFIT: Final = 3  # this consumer can never take the message


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
    for the consumer, empty in a queue without sessions.
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
        "held",
        "_held_first",
        "_held_last",
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
        # The number of entries it holds: delivered, without an outcome so far.
        self.held: i64 = 0
        self._held_first: Entry | None = None
        self._held_last: Entry | None = None

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

    def hold(self, entry: Entry) -> None:
        """Add an entry that was delivered and waits for its outcome."""
        last = self._held_last
        if last is None:
            self._held_first = entry
        else:
            last.held_next = entry
            entry.held_prev = last
        self._held_last = entry
        self.held += 1

    def unhold(self, entry: Entry) -> None:
        """Take out an entry whose outcome has come."""
        before = entry.held_prev
        after = entry.held_next
        if before is None:
            self._held_first = after
        else:
            before.held_next = after
            entry.held_prev = None
        if after is None:
            self._held_last = before
        else:
            after.held_prev = before
            entry.held_next = None
        self.held -= 1

    def first_held(self) -> Entry | None:
        """Return the entry that has been held longest."""
        return self._held_first


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
