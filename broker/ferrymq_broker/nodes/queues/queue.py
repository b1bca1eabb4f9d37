"""The queue: first in, first out within a priority; each message to one consumer; browsers look on.

Entries lie in `priority_levels`, one for each level of priority in use. Who takes them out is
seated in *views*, one for each distinct filter, and in these in *crews*, one for each priority of
consumers (`queues/filter_views.py`). A view has a cursor in every lane; what is behind a cursor has
been taken, does not pass the filter, or waits in a heap:

- `FilterView.returned`: entries that came back: released, modified, or held by a lost link.
  They are offered first: a message comes back to the place it was published at;
- `Consumer.own`: entries that not every consumer of the view may get;
- `FilterView.aside`: the same, for consumers that are still to come.

Consumers that may be offered something take turns, message by message. One that answers IDLE is
taken out until it wakes. The queue's `lifecycle` has limits, expiry, dead letters and the like.

One module because each method changes the same state: entries, cursors and consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i32, i64

from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, REMOVED, Entry
from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.nodes.node import BOUNDLESS, PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.paging.pager import give_up, page_in
from ferrymq_broker.nodes.policy import QueuePolicy
from ferrymq_broker.nodes.queues.browsers import Browser
from ferrymq_broker.nodes.queues.consumer_registry import (
    add_consumer,
    exclude,
    grant,
    new_priority_level,
    reassign_consumers,
    remove_consumer,
)
from ferrymq_broker.nodes.queues.continuation import Continuation
from ferrymq_broker.nodes.queues.dispatcher import (
    is_plain,
    offer_waiting,
    serve,
    serve_all,
    serve_plain,
)
from ferrymq_broker.nodes.queues.filter_views import PATIENCE, UNFILTERED, FilterView, PriorityTier
from ferrymq_broker.nodes.queues.groups import Groups
from ferrymq_broker.nodes.queues.inspection import available_to, describe_queue, figures_of
from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle
from ferrymq_broker.nodes.queues.persistence import (
    drop_entry,
    drop_queue,
    keep_entry,
    put_entry,
    put_state,
)
from ferrymq_broker.nodes.queues.priority_levels import DEFAULT_LEVEL, LEVELS, PriorityLevel
from ferrymq_broker.nodes.queues.purge import Purge
from ferrymq_broker.slices import Slices

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.paging.state import PagingState
    from ferrymq_types.transport import Error


@final
class Queue(Node):
    """A queue in memory. `available` and `acquired` count its entries by state, `bytes` what their
    payloads add up to.

    `published` is the sequence of the last message, of which those up to `recovered` came before
    the broker was started. Since then: `delivered` counts deliveries, the others what these ended
    as; `declined` counts the times a consumer had no use for what it was offered. `guarded` says
    that the lifecycle looks at every message.
    """

    __slots__ = (
        "policy",
        "lifecycle",
        "guarded",
        "available",
        "acquired",
        "bytes",
        "published",
        "recovered",
        "delivered",
        "accepted",
        "released",
        "modified",
        "rejected",
        "declined",
        "consumers",
        "takers",
        "exclusive_consumers",
        "priority_levels",
        "groups",
        "priority_level",
        "_low",
        "_high",
        "_by_level",
        "plain",
        "views",
        "tiers",
        "_sole",
        "_watched",
        "_aged",
        "browsers",
        "_draining",
        "_resumption",
        "active",
        "standby",
        "tiers_made",
        "_held_back",
        "purges",
        "_rest",
        "paging",
        "leaving",
        "stable",
        "unstable",
        "_sealed",
    )

    def __init__(
        self, address: str, space: Space, policy: QueuePolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy = policy
        self.may_wait = True
        self.guarded = False
        self.available: i64 = 0
        self.acquired: i64 = 0
        self.bytes: i64 = 0
        self.published: i64 = 0
        self.recovered: i64 = 0
        self.delivered: i64 = 0
        self.accepted: i64 = 0
        self.released: i64 = 0
        self.modified: i64 = 0
        self.rejected: i64 = 0
        self.declined: i64 = 0
        self.consumers: dict[Consumer, None] = {}
        # Of these, those that take messages, and those of them that want to be alone.
        self.takers: i64 = 0
        self.exclusive_consumers: i64 = 0
        priority_level = PriorityLevel(DEFAULT_LEVEL)
        # The one that most messages go to, and all there are, the most urgent first.
        self.priority_level = priority_level
        self.priority_levels: list[PriorityLevel] = [priority_level]
        self._by_level: list[PriorityLevel] | None = None
        # Below and above these levels priorities make no difference.
        self._low: i64 = 0
        self._high: i64 = 0
        # The view of those without a filter is always there; all views, by the keys of filters.
        self.plain = FilterView(self, None)
        self.plain.cursors.append(priority_level.plain)
        self.views: dict[str, FilterView] = {UNFILTERED: self.plain}
        # Those of higher priority first.
        self.tiers: list[PriorityTier] = []
        # The only one there is.
        self._sole: PriorityTier | None = None
        # Whether it matters to anybody that an entry leaves.
        self._watched = False
        # Whether anybody has asked for the oldest: then the lanes keep note of it.
        self._aged = False
        self.browsers: dict[Consumer, Browser] = {}
        self._draining: dict[Consumer, None] = {}
        self._resumption = Continuation(self)
        # The one that is served where one at a time is, and the others: a heap with the next one
        # in front, and some that have left.
        self.active: Consumer | None = None
        self.standby: list[tuple[int, int, Consumer]] = []
        self.tiers_made: i64 = 0
        # How many wait until all that is to return has returned.
        self._held_back: i64 = 0
        # Purges that are not over; the last of all, when the queue is deleted.
        self.purges: i64 = 0
        self._rest: Purge | None = None
        # What the pager does with it, None as long as that is nothing.
        self.paging: PagingState | None = None
        # The entry that leaves as a dead letter: it has its record until the letter is published.
        self.leaving: Entry | None = None
        # The last entry that may be handed out, and the last batch with others; the last entry of
        # the batch that is being written.
        self.stable: i64 = BOUNDLESS
        self.unstable: i64 = 0
        self._sealed: i64 = 0
        self.groups: Groups | None = None
        self._read_policy()
        self.lifecycle = MessageLifecycle(self, policy)
        self.reconsider()

    def __repr__(self) -> str:
        return f"<queue {self.address!r} {self.available}+{self.acquired}>"

    @property
    def kind(self) -> str:
        """``queue``."""
        return "queue"

    def _read_policy(self) -> None:
        policy = self.policy
        n: i64 = policy.priorities
        # AMQP 1.0 §3.2.1; with 10 levels they are 0 and 9, with one they are both 4.
        self._low = 5 - (n + 1) // 2
        self._high = 4 + n // 2
        if policy.groups and self.groups is None:
            self.groups = Groups()

    def reconsider(self) -> None:
        """What can be left out while nobody needs it."""
        self._sole = self.tiers[0] if len(self.tiers) == 1 else None
        self._watched = (
            self.guarded
            or self._aged
            or len(self.views) > 1
            or bool(self.browsers)
            or self.groups is not None
            or self.lifetime != PERMANENT
            or self.paging is not None
            or self.purges > 0
        )

    def change_policy(self, policy: QueuePolicy) -> None:
        """Behave so from now on. Messages keep the places they have."""
        single = self.policy.single_active
        self.policy = policy
        self._read_policy()
        self.lifecycle.change_policy(policy)
        if policy.single_active != single:
            reassign_consumers(self)
        self.reconsider()
        self.touch()

    def open_source(self, terms: SourceTerms) -> Node:
        """Consumers and browsers both. Raises `BrokerError` if there may be no further consumer."""
        self.target(terms.part)
        grant(self, terms)
        return self

    # -- messages in -------------------------------------------------------------------

    def publish(self, message: BrokerMessage) -> Refusal | None:
        """Append the message, if the lifecycle does not mind."""
        if self.guarded or message.special:
            return self.lifecycle.publish(message)
        self.append(message)
        return None

    def reserve(self, message: BrokerMessage, holders: list[Node]) -> Refusal | None:
        """Keep room for a message that is to come."""
        return self.lifecycle.reserve(message, holders)

    def unreserve(self, message: BrokerMessage) -> None:
        """It is not needed any longer."""
        self.lifecycle.unreserve(message)

    def append(self, message: BrokerMessage) -> Entry:
        """Put the message behind all others of its priority, whatever the lifecycle thinks."""
        self.published += 1
        level = i64(message.priority)
        if level == DEFAULT_LEVEL:
            priority_level = self.priority_level
        else:
            if level < self._low:
                level = self._low
            elif level > self._high:
                level = self._high
            priority_level = self.priority_level_of(level)
        entry = Entry(message, self.published, level)
        priority_level.append(entry)
        self.available += 1
        size: i64 = len(message.payload)
        entry.size = i32(size)
        self.bytes += size
        holders = message.holders
        message.holders = holders + 1
        if holders == 0:
            self.agenda.held += size
        groups = self.groups
        if groups is not None:
            groups.join(entry)
        if self.store_id != 0 and self.keeps(message):
            keep_entry(self, entry)
        if not self.dirty:
            self.touch()
        return entry

    def keeps(self, message: BrokerMessage) -> bool:
        """See `Node.keeps`."""
        return self.store_id != 0 and (message.durable or self.policy.persist)

    def seal(self) -> None:
        """What has come up to now is in the batch that is written next."""
        self._sealed = self.published

    def stabilise(self, number: i64) -> None:
        """Entries up to then are on disk: consumers may have them."""
        self.stable = BOUNDLESS if self.unstable == number else self._sealed
        self.touch()

    def priority_level_of(self, level: i64) -> PriorityLevel:
        """The lane of a level, made if it was not needed before."""
        by_level = self._by_level
        if by_level is None:
            if level == DEFAULT_LEVEL:
                return self.priority_level
            # Levels nobody has used have the lane of the default one here.
            by_level = [self.priority_level] * LEVELS
            self._by_level = by_level
        priority_level = by_level[level]
        if priority_level.level != level:
            priority_level = new_priority_level(self, level)
            by_level[level] = priority_level
        return priority_level

    # -- outcomes ----------------------------------------------------------------------

    def remove(self, consumer: Consumer, entry: Entry) -> None:
        """The message the consumer holds is done with."""
        consumer.unhold(entry)
        self.accepted += 1
        self.acquired -= 1
        self._unlink(entry)

    def reject(self, consumer: Consumer, entry: Entry, error: Error | None) -> None:
        """The consumer found the message invalid: it leaves the queue (AMQP 1.0 §3.4.3)."""
        consumer.unhold(entry)
        self.rejected += 1
        self.lifecycle.on_rejected(entry, error)
        self.acquired -= 1
        self._unlink(entry)

    def give_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        """The message the consumer holds returns to its place.

        `failed` counts the delivery as a failed one; `elsewhere` keeps the message from this
        consumer from now on (AMQP 1.0 §3.4.4–5).
        """
        consumer.unhold(entry)
        if elsewhere:
            exclude(self, consumer.known_as, entry)
        gone = False
        if failed:
            entry.failures += 1
            gone = self.lifecycle.on_failed(entry)
            if entry.stored and not gone and self.store_id != 0:
                put_state(self, entry)
        if failed or elsewhere:
            self.modified += 1
        else:
            self.released += 1
        if not gone and (self.guarded or entry.expires != 0):
            gone = self.lifecycle.returned(entry)
        self.acquired -= 1
        if gone:
            self._unlink(entry)
            return
        entry.state = AVAILABLE
        self.available += 1
        if self._aged:
            self.priority_level_of(entry.level).is_back(entry)
        self.offer_again(entry)
        self._settle_group(entry)
        self.touch()

    def hand_over(self, entry: Entry, before: Consumer, after: Consumer) -> None:
        """See `Node.hand_over`. The group of the message waits for it if its consumer leaves."""
        super().hand_over(entry, before, after)
        group = entry.group
        if group is None or self.groups is None:
            return
        if group.consumer is before:
            group.leave_behind(entry)
        elif group.left is not None and entry in group.left:
            # The link has come back.
            if group.consumer is None:
                self.groups.give(group, after)
            self._settle_group(entry)

    def _settle_group(self, entry: Entry) -> None:
        """Let the group of a message go on if it has waited for this one."""
        group = entry.group
        if group is not None and group.settle(entry):
            offer_waiting(self, group)

    def message_of(self, entry: Entry) -> BrokerMessage | None:
        """The message of an entry that a consumer holds; None if it cannot be read from disk."""
        return None if entry.is_out() and not page_in(self, entry) else entry.message

    def pause_dispatch(self) -> None:
        """Hand out nothing until `resume_dispatch`."""
        self._held_back += 1

    def resume_dispatch(self) -> None:
        """What was to return has returned."""
        self._held_back -= 1
        if self._held_back == 0:
            self.touch()

    def amend(self, entry: Entry, message: BrokerMessage) -> None:
        """The entry has another form of its message from now on (AMQP 1.0 §3.4.5)."""
        for view in self.views.values():
            view.forget(entry)
        self.bytes -= i64(entry.size)
        give_up(self, entry)
        entry.message = message
        size: i64 = len(message.payload)
        entry.size = i32(size)
        self.bytes += size
        message.holders += 1
        if message.holders == 1:
            self.agenda.held += size
        if entry.stored and self.store_id != 0:
            put_entry(self, entry)

    def drop(self, entry: Entry) -> None:
        """Take an available entry out, wherever it is."""
        self.priority_level_of(entry.level).forget(entry)
        self.available -= 1
        self._unlink(entry)

    def drop_run(self, priority_level: PriorityLevel, place: Entry) -> i64:
        """Drop all messages of a run; how many there were."""
        runs = priority_level.runs
        if runs is None:
            return 0
        count = runs.drop(place)
        self.lifecycle.on_dropped()
        if self.waiting_for_room or self.lifetime != PERMANENT:
            self.touch()
        return count

    def first_available(self) -> Entry | None:
        """The oldest available entry of the least priority there is: the first to make room."""
        self._aged = True
        self._watched = True
        for priority_level in reversed(self.priority_levels):
            entry = priority_level.first_available()
            if entry is not None:
                return entry
        return None

    def _unlink(self, entry: Entry) -> None:
        """The entry leaves the queue."""
        watched = self._watched
        if watched:
            self.detach(entry)
        if self._by_level is None:
            self.priority_level.unlink(entry)
        else:
            self.priority_level_of(entry.level).unlink(entry)
        entry.state = REMOVED
        self.bytes -= i64(entry.size)
        if entry is self.leaving:
            self.leaving = None
        else:
            if entry.stored:
                drop_entry(self, entry)
            give_up(self, entry)
        if watched or entry.expires != 0:
            self._on_unlinked(entry)

    def detach(self, entry: Entry) -> None:
        """Let nothing point to the entry."""
        self.priority_level_of(entry.level).forget(entry)
        for view in self.views.values():
            view.forget(entry)
        for browser in self.browsers.values():
            browser.forget(entry)

    def _on_unlinked(self, entry: Entry) -> None:
        """It does matter to somebody that the entry has left."""
        group = entry.group
        if group is not None and self.groups is not None:
            waiting = group.waiting and group.consumer is None
            settled = group.settle(entry)
            self.groups.leave(group)
            if waiting or settled:
                offer_waiting(self, group)
        if self.guarded or entry.expires != 0:
            self.lifecycle.on_unlinked(entry)
        dying = self.lifetime != PERMANENT and self.message_count() == 0
        if self.waiting_for_room or self._draining or dying:
            self.touch()

    # -- consumers ---------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer or a browser."""
        add_consumer(self, consumer)
        self.reconsider()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget a consumer that has given back what it held."""
        self._draining.pop(consumer, None)
        remove_consumer(self, consumer)
        self.reconsider()

    def wake(self, consumer: Consumer) -> None:
        """The consumer has credit, or its transport takes bytes again."""
        if not consumer.ready:
            consumer.ready = True
            tier = consumer.tier
            if tier is not None:
                tier.admit(consumer)
        if not self.dirty:
            self.touch()

    def count_available(self, consumer: Consumer) -> i64:
        """See `Node.count_available`."""
        return available_to(self, consumer)

    def want_drained(self, consumer: Consumer) -> None:
        """The consumer asked for what there is and no more (AMQP 1.0 §2.6.7)."""
        self._draining[consumer] = None
        self.touch()

    # -- messages out ------------------------------------------------------------------

    def dispatch(self) -> None:
        """Offer messages until they, or the consumers that can take them, run out."""
        if self.deleted or self._held_back > 0:
            return
        done = True
        if self.browsers:
            for browser in list(self.browsers.values()):
                if browser.consumer.ready and not browser.show(self):
                    done = False
        tier = self._sole
        if tier is not None:
            if tier.count > 0 and (not is_plain(self, tier) or serve_plain(self, tier)):
                serve(self, tier, BOUNDLESS)
        elif self.tiers:
            serve_all(self)
        if len(self.views) > 1:
            for view in self.views.values():
                if view.patience <= 0:
                    done = False
                view.patience = PATIENCE
        if not done:
            self._resumption.ask()
        elif self._draining:
            self._draining = {c: None for c in self._draining if not c.nothing_left()}
        if self.waiting_for_room:
            self.grant_room()
        if self.lifetime != PERMANENT and self.published > 0 and self.message_count() == 0:
            self.reconsider_life()

    def acquire(self, consumer: Consumer, entry: Entry) -> None:
        """The consumer has been sent the message and will settle it."""
        entry.state = ACQUIRED
        entry.attempts += 1
        self.delivered += 1
        self.available -= 1
        self.acquired += 1
        consumer.hold(entry)

    def consume(self, entry: Entry) -> None:
        """A consumer has been sent the message, settled."""
        self.delivered += 1
        self.accepted += 1
        self.available -= 1
        self._unlink(entry)

    def exclude(self, consumer: Consumer, entry: Entry) -> None:
        """Keep the message from this consumer while it is attached."""
        exclude(self, consumer.id, entry)

    def offer_again(self, entry: Entry) -> None:
        """An entry is available that cursors may have passed."""
        for view in self.views.values():
            view.offer_again(entry, self.available)

    # -- the end -----------------------------------------------------------------------

    def purge(self) -> Purge:
        """Begin to drop every message that is there and that nobody holds."""
        purge = Purge(self)
        self.agenda.slices.do(purge)
        return purge

    def delete(self, error: Error) -> None:
        """End every link with `error`, drop every message."""
        # Whoever still knows it is told that it takes no more.
        self.guarded = True
        if self.store_id != 0:
            drop_queue(self)
        self.lifecycle.stop()
        self._resumption.cancel()
        super().delete(error)

    def consumers_of(self) -> list[Consumer]:
        """Consumers and browsers."""
        return list(self.consumers)

    def drop_rest(self, slices: Slices) -> bool:
        """Drop the messages of the queue, which is deleted; whether all are gone."""
        if self._rest is None:
            self._rest = Purge(self, True)
        return self._rest.go_on(slices) and self.lifecycle.close(slices)

    def link_closed(self) -> None:
        """One of its links is gone."""
        super().link_closed()
        if self.links == 0 and not self.deleted:
            self.lifecycle.on_deserted()

    # -- what there is to know -----------------------------------------------------------

    def message_count(self) -> i64:
        """Available and held ones, and those that are to come."""
        return self.available + self.acquired + self.lifecycle.scheduled()

    def evaluations(self) -> i64:
        """How often filters have been asked about a message."""
        return sum(view.evaluations for view in self.views.values())

    def room(self) -> i64:
        """How many more messages get in, as the lifecycle has it."""
        return self.lifecycle.room()

    def describe(self) -> dict[str, object]:
        """Its settings and figures by their public names."""
        return describe_queue(self)

    def figures(self) -> dict[str, int]:
        """What it counts."""
        return figures_of(self)
