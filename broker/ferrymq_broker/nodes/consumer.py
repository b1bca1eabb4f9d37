"""Consumers, as a queue sees them: links that take messages out of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.filters.filter import Filter
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_types.transport import Error

# What the link is known as that a subscription belongs to (`Consumer.known_as`).
OWNER: Final = 0
# What `Consumer.deliver` answers.
TAKEN: Final = 0  # sent; an outcome will follow
SETTLED: Final = 1  # sent and settled: no outcome will follow
IDLE: Final = 2  # not now; the consumer wakes the queue when it can take messages again
UNFIT: Final = 3  # never this one


class Consumer:
    """A consumer takes messages as the queue offers them. Its `id` is unique in the broker.

    `copies` marks a browser: it is shown messages but does not take them. Of those with the highest
    `priority` that can take a message one gets it. `filter` is what its messages pass, None if all
    do. `exclusive` says that it tolerates no other, browsers aside. `known_as` is its number in
    all attachments of a link whose source outlives it, below zero if it outlives the broker, else
    its `id`.

    `ready`, `tier` and `own` are the queue's: whether it may be offered messages, those it takes
    turns with, None while it stands by or if it is a browser, and the entries that wait for it or
    a few of its kind, by rank. `next_ready` and `prev_ready` are its tier's.
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
        "next_ready",
        "prev_ready",
        "held",
        "_held_first",
        "_held_last",
    )

    def __init__(self, id: i64, copies: bool) -> None:
        self.id: i64 = id
        self.known_as: i64 = id
        self.copies = copies
        self.priority: i64 = 0
        self.filter: Filter | None = None
        self.exclusive = False
        self.ready = False
        self.tier: PriorityTier | None = None
        self.own: list[tuple[int, Entry]] | None = None
        self.next_ready: Consumer | None = None
        self.prev_ready: Consumer | None = None
        # How many entries it holds: delivered, without an outcome so far.
        self.held: i64 = 0
        self._held_first: Entry | None = None
        self._held_last: Entry | None = None

    def deliver(self, entry: Entry) -> i64:
        """Send the message if possible; the answer is one of the four above."""
        return IDLE

    def deliver_headed(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Deliver a message that consists of `head` and then its payload from `start` on."""
        return IDLE

    def is_among(self, excluded: set[int]) -> bool:
        """Return whether the consumer is one of those that must not get a message."""
        return self.id in excluded or self.known_as in excluded

    def takes_more(self) -> bool:
        """Return whether a message would be sent at once. If not, the queue is woken when one may
        be."""
        return True

    def is_behind(self) -> bool:
        """Return whether something it was sent has not gone out yet."""
        return False

    def nothing_left(self) -> bool:
        """Answer a drain: the queue has no more for this consumer, which asked to be told.

        False if it cannot be answered now; the queue then asks again after its next dispatch.
        """
        return True

    def evict(self, error: Error) -> None:
        """End the link with `error`: the queue is going away."""

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
    """The consumers of one priority that want the same messages and take turns for them.

    Those that are ready, `count` of them, take turns in the order from `first` to `last`: a list
    that is linked through `Consumer.next_ready`, which any of them can leave at no cost. `turn` is
    the consumer whose turn it is, None at the end of a round. `eager` are the ready consumers that
    have entries of their own. `taken` is how much the tier has had, in shares: of tiers that want
    a message the one with the least gets it.
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
        """Add a consumer that is ready, as the last of a round."""
        last = self.last
        if last is None:
            self.first = consumer
        else:
            last.next_ready = consumer
            consumer.prev_ready = last
        self.last = consumer
        self.count += 1
        if self.turn is None:
            # The round had come to its end.
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
