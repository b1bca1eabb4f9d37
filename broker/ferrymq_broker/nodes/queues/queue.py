"""The queue: first in, first out within a priority; each message to one consumer; browsers look on.

Entries lie in `lanes`, one for each level of priority in use. Who takes them out is seated in
*views*, one for each distinct filter, and in these in *crews*, one for each priority of consumers
(`queues/views.py`). A view has a cursor in every lane; what is behind a cursor has been taken,
does not pass the filter, or waits in a heap:

- `View.returned`: entries that came back. They are older than everything the cursor will come to
  and are offered first, so that a message comes back to the place it was published at, however it
  returned: released, modified, or by the loss of its link;
- `Consumer.own`: entries that not every consumer of the view may get;
- `View.aside`: the same, for consumers that are still to come.

Consumers that may be offered something take turns, message by message. One that answers IDLE is
taken out until it wakes; none is ever asked in vain twice. What becomes of messages otherwise
(limits, expiry, dead letters …) is for the queue's `lifecycle` to say.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.consumer import IDLE, SETTLED, TAKEN, Consumer
from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, REMOVED, Entry
from ferrymq_broker.nodes.node import PERMANENT, Node, Refusal, Space
from ferrymq_broker.nodes.policy import QueuePolicy
from ferrymq_broker.nodes.queues.browsers import Browser
from ferrymq_broker.nodes.queues.contents import describe_queue
from ferrymq_broker.nodes.queues.groups import Group, Groups
from ferrymq_broker.nodes.queues.lanes import DEFAULT_LEVEL, LEVELS, Cursor, Lane
from ferrymq_broker.nodes.queues.lifecycle.lifecycle import (
    APPEND,
    REFUSED,
    make_lifecycle,
)
from ferrymq_broker.nodes.queues.views import Crew, View, push
from ferrymq_broker.nodes.terms import SourceTerms

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import Message
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import Lifecycle
    from ferrymq_types.transport import Error

# More turns than there will ever be.
_ENDLESS: Final = 0x7FFF_FFFF_FFFF_FFFF
# What a crew of one counts for a message it takes.
_SHARE: Final = 1 << 20


@final
class Queue(Node):
    """A queue in memory. `available` and `acquired` count its entries by state, `bytes` what their
    payloads add up to.

    Since the queue was made: `published` counts messages taken in, `delivered` deliveries, the
    others what these ended as; `declined` counts the times a consumer had no use for what it was
    offered. `guarded` says that the lifecycle looks at every message.
    """

    __slots__ = (
        "policy",
        "lifecycle",
        "guarded",
        "available",
        "acquired",
        "bytes",
        "published",
        "delivered",
        "accepted",
        "released",
        "modified",
        "rejected",
        "declined",
        "consumers",
        "lanes",
        "groups",
        "_lane",
        "_low",
        "_high",
        "_by_level",
        "_plain",
        "_views",
        "_crews",
        "_sole",
        "_watched",
        "_aged",
        "_browsers",
        "_draining",
        "_active",
    )

    def __init__(
        self, address: str, space: Space, policy: QueuePolicy, lifetime: i64 = PERMANENT
    ) -> None:
        super().__init__(address, space, lifetime)
        self.policy = policy
        self.guarded = False
        self.available: i64 = 0
        self.acquired: i64 = 0
        self.bytes: i64 = 0
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.accepted: i64 = 0
        self.released: i64 = 0
        self.modified: i64 = 0
        self.rejected: i64 = 0
        self.declined: i64 = 0
        self.consumers: list[Consumer] = []
        lane = Lane(DEFAULT_LEVEL)
        # The one that most messages go to, and all there are, the most urgent first.
        self._lane = lane
        self.lanes: list[Lane] = [lane]
        self._by_level: list[Lane] | None = None
        # Below and above these levels priorities make no difference.
        self._low: i64 = 0
        self._high: i64 = 0
        # The view of those without a filter is always there.
        self._plain = View(None)
        self._plain.cursors.append(lane.plain)
        self._views: list[View] = [self._plain]
        # Those of higher priority first.
        self._crews: list[Crew] = []
        # The only one there is.
        self._sole: Crew | None = None
        # Whether it matters to anybody that an entry leaves.
        self._watched = False
        # Whether anybody has asked for the oldest: then the lanes keep note of it.
        self._aged = False
        self._browsers: list[Browser] = []
        self._draining: list[Consumer] = []
        # The one that is served where one at a time is.
        self._active: Consumer | None = None
        self.groups: Groups | None = None
        self._read_policy()
        self.lifecycle: Lifecycle = make_lifecycle(self, policy)
        self._reconsider()

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

    def _reconsider(self) -> None:
        """What can be left out while nobody needs it."""
        self._sole = self._crews[0] if len(self._crews) == 1 else None
        self._watched = (
            self.guarded
            or self._aged
            or len(self._views) > 1
            or bool(self._browsers)
            or self.groups is not None
            or self.lifetime != PERMANENT
        )

    def change_policy(self, policy: QueuePolicy) -> None:
        """Behave so from now on. Messages keep the places they have."""
        self.policy = policy
        self._read_policy()
        self.lifecycle.change_policy(policy)
        for consumer in self.consumers:
            if not consumer.copies:
                self._unseat(consumer)
        self._active = None
        for consumer in self.consumers:
            if not consumer.copies and not policy.single_active:
                self._seat(consumer)
        if policy.single_active:
            self._activate_next()
        self._reconsider()
        self.touch()

    def open_source(self, terms: SourceTerms) -> Node:
        """Consumers and browsers both. Raises `BrokerError` if there may be no further consumer."""
        self.target(terms.part)
        terms.filters.decline_position()
        if terms.distribution_mode == "copy":
            terms.granted_mode = "copy"
            terms.browses = True
        else:
            self._expect_vacancy(terms.exclusive or self.policy.exclusive)
            terms.granted_mode = "move"
            terms.granted_priority = terms.priority
            terms.granted_exclusive = terms.exclusive
        if "queue" in terms.capabilities:
            terms.granted_capabilities.append("queue")
        return self

    def _expect_vacancy(self, exclusive: bool) -> None:
        others = 0
        for consumer in self.consumers:
            if not consumer.copies:
                others += 1
                exclusive = exclusive or consumer.exclusive
        if others > 0 and exclusive:
            raise BrokerError(
                "amqp:resource-locked", f"{self.address!r} has a consumer, and one is to be alone"
            )
        most = self.policy.max_consumers
        if most and others >= most:
            raise BrokerError(
                "amqp:resource-limit-exceeded", f"{self.address!r} has {most} consumers already"
            )

    # -- messages in -------------------------------------------------------------------

    def publish(self, message: Message) -> Refusal | None:
        """Append the message, if the lifecycle does not mind."""
        if self.guarded or message.special:
            return self._publish_guarded(message)
        self.append(message)
        return None

    def _publish_guarded(self, message: Message) -> Refusal | None:
        lifecycle = self.lifecycle
        verdict = lifecycle.admit(message)
        if verdict == APPEND:
            lifecycle.on_appended(self.append(message))
        elif verdict == REFUSED:
            return lifecycle.refusal
        return None

    def append(self, message: Message) -> Entry:
        """Put the message behind all others of its priority, whatever the lifecycle thinks."""
        self.published += 1
        level = message.priority
        if level == DEFAULT_LEVEL:
            lane = self._lane
        else:
            if level < self._low:
                level = self._low
            elif level > self._high:
                level = self._high
            lane = self._lane_of(level)
        entry = Entry(message, self.published, level)
        lane.append(entry)
        self.available += 1
        size: i64 = len(message.payload)
        self.bytes += size
        holders = message.holders
        message.holders = holders + 1
        if holders == 0:
            self.agenda.held += size
        groups = self.groups
        if groups is not None:
            groups.join(entry)
        if not self.dirty:
            self.touch()
        return entry

    def _lane_of(self, level: i64) -> Lane:
        """The lane of a level, made if it was not needed before."""
        by_level = self._by_level
        if by_level is None:
            if level == DEFAULT_LEVEL:
                return self._lane
            # Levels nobody has used have the lane of the default one here.
            by_level = [self._lane] * LEVELS
            self._by_level = by_level
        lane = by_level[level]
        if lane.level != level:
            lane = Lane(level)
            by_level[level] = lane
            at: i64 = 0
            while at < len(self.lanes) and self.lanes[at].level > level:
                at += 1
            self.lanes.insert(at, lane)
            for view in self._views:
                view.cursors.insert(at, self._new_cursor(lane, view))
        return lane

    def _new_cursor(self, lane: Lane, view: View) -> Cursor:
        if view.filter is None:
            return lane.plain
        cursor = Cursor(lane)
        if lane.others is None:
            lane.others = [cursor]
        else:
            lane.others.append(cursor)
        return cursor

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
        self.lifecycle.on_rejected(consumer, entry, error)
        self.acquired -= 1
        self._unlink(entry)

    def give_back(self, consumer: Consumer, entry: Entry, failed: bool, elsewhere: bool) -> None:
        """The message the consumer holds returns to its place.

        `failed` counts the delivery as a failed one; `elsewhere` keeps the message from this
        consumer from now on (AMQP 1.0 §3.4.4–5).
        """
        consumer.unhold(entry)
        if elsewhere:
            entry.exclude(consumer.id)
        gone = False
        if failed:
            entry.failures += 1
            gone = self.lifecycle.on_failed(consumer, entry)
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
            self._lane_of(entry.level).is_back(entry)
        self._offer_again(entry)
        self.touch()

    def amend(self, entry: Entry, message: Message) -> None:
        """The entry has another form of its message from now on (AMQP 1.0 §3.4.5)."""
        for view in self._views:
            view.forget(entry)
        self._drop_share(entry.message)
        entry.message = message
        size: i64 = len(message.payload)
        self.bytes += size
        message.holders += 1
        if message.holders == 1:
            self.agenda.held += size

    def drop(self, entry: Entry) -> None:
        """Take an available entry out, wherever it is."""
        self._lane_of(entry.level).forget(entry)
        self.available -= 1
        self._unlink(entry)

    def first_available(self) -> Entry | None:
        """The oldest available entry of the least priority there is: the first to make room."""
        self._aged = True
        self._watched = True
        for lane in reversed(self.lanes):
            entry = lane.first_available()
            if entry is not None:
                return entry
        return None

    def _unlink(self, entry: Entry) -> None:
        """The entry leaves the queue."""
        watched = self._watched
        if watched:
            self._forget(entry)
        if self._by_level is None:
            self._lane.unlink(entry)
        else:
            self._lane_of(entry.level).unlink(entry)
        entry.state = REMOVED
        self._drop_share(entry.message)
        if watched or entry.expires != 0:
            self._on_unlinked(entry)

    def _drop_share(self, message: Message) -> None:
        """An entry does not hold this message any more."""
        size: i64 = len(message.payload)
        self.bytes -= size
        holders = message.holders - 1
        message.holders = holders
        if holders == 0:
            self.agenda.held -= size

    def _forget(self, entry: Entry) -> None:
        """Let nothing point to the entry."""
        self._lane_of(entry.level).forget(entry)
        for view in self._views:
            view.forget(entry)
        for browser in self._browsers:
            browser.forget(entry)

    def _on_unlinked(self, entry: Entry) -> None:
        """It does matter to somebody that the entry has left."""
        group = entry.group
        if group is not None and self.groups is not None:
            waiting = group.waiting and group.consumer is None
            self.groups.leave(group)
            if waiting:
                self._offer_waiting(group)
        if self.guarded or entry.expires != 0:
            self.lifecycle.on_unlinked(entry)
        if self.starved or (self.lifetime != PERMANENT and self.message_count() == 0):
            self.touch()

    # -- consumers ---------------------------------------------------------------------

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer or a browser."""
        self.consumers.append(consumer)
        if consumer.copies:
            self._browsers.append(Browser(consumer))
        elif not self.policy.single_active:
            self._seat(consumer)
        elif self._active is None:
            self._activate_next()
        self._reconsider()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Forget a consumer that has given back what it held."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if consumer in self._draining:
            self._draining.remove(consumer)
        if consumer.copies:
            self._browsers = [b for b in self._browsers if b.consumer is not consumer]
        else:
            self._unseat(consumer)
        consumer.ready = False
        if self._active is consumer:
            self._active = None
            self._activate_next()
        self._reconsider()

    def _activate_next(self) -> None:
        """Serve the one of highest priority, of these the one that came first."""
        best: Consumer | None = None
        if self.deleted:
            return
        for consumer in self.consumers:
            if not consumer.copies and (best is None or consumer.priority > best.priority):
                best = consumer
        self._active = best
        if best is not None:
            self._seat(best)
            best.activated(True)
            self.touch()

    def _seat(self, consumer: Consumer) -> None:
        """Give the consumer a place in a view and a crew."""
        view = self._view_of(consumer)
        crew: Crew | None = None
        for other in view.crews:
            if other.priority == consumer.priority:
                crew = other
        if crew is None:
            crew = Crew(view, consumer.priority)
            at: i64 = 0
            while at < len(self._crews) and self._crews[at].priority >= crew.priority:
                at += 1
            self._crews.insert(at, crew)
            at = 0
            while at < len(view.crews) and view.crews[at].priority > crew.priority:
                at += 1
            view.crews.insert(at, crew)
        crew.members.append(consumer)
        consumer.crew = crew
        own = [record for record in view.aside if record[1].state == AVAILABLE]
        # A heap: in order.
        own.sort(key=_rank_of)
        consumer.own = own or None
        if consumer.ready:
            crew.admit(consumer)

    def _view_of(self, consumer: Consumer) -> View:
        filter = consumer.filter
        if filter is None:
            return self._plain
        for view in self._views:
            if view.filter is not None and view.filter.key == filter.key:
                return view
        view = View(filter)
        self._views.append(view)
        for lane in self.lanes:
            view.cursors.append(self._new_cursor(lane, view))
        return view

    def _unseat(self, consumer: Consumer) -> None:
        """Take the consumer's place away; what waited for it alone is for others."""
        crew = consumer.crew
        if crew is None:
            return
        if consumer.ready:
            crew.dismiss(consumer)
        consumer.crew = None
        consumer.own = None
        crew.members.remove(consumer)
        view = crew.view
        if not crew.members:
            self._crews.remove(crew)
            view.crews.remove(crew)
        if not view.crews:
            self._abandon(view)
        groups = self.groups
        if groups is not None:
            for group in groups.owned_by(consumer):
                groups.release(group)
                self._offer_waiting(group)

    def _abandon(self, view: View) -> None:
        """Nobody has this view any more."""
        if view.filter is not None:
            self._views.remove(view)
            self._plain.evaluations += view.evaluations
            for cursor in view.cursors:
                others = cursor.lane.others
                if others is not None:
                    others.remove(cursor)
                    if not others:
                        cursor.lane.others = None
            return
        for _, entry in view.aside:
            if entry.state == AVAILABLE:
                push(view.returned, entry, self.available)
        view.aside = []

    def wake(self, consumer: Consumer) -> None:
        """The consumer has credit, or its transport takes bytes again."""
        if not consumer.ready:
            consumer.ready = True
            crew = consumer.crew
            if crew is not None:
                crew.ready.append(consumer)
                if consumer.own is not None:
                    crew.eager.append(consumer)
        if not self.dirty:
            self.touch()

    def want_drained(self, consumer: Consumer) -> None:
        """The consumer asked for what there is and no more (AMQP 1.0 §2.6.7)."""
        if consumer not in self._draining:
            self._draining.append(consumer)
        self.touch()

    # -- messages out ------------------------------------------------------------------

    def dispatch(self) -> None:
        """Offer messages until they, or the consumers that can take them, run out."""
        if self._browsers:
            now = self.agenda.now
            for browser in list(self._browsers):
                if browser.consumer.ready:
                    browser.show(self.lanes, now)
        crew = self._sole
        if crew is not None:
            if crew.ready and (not self._is_plain(crew) or self._serve_plain(crew)):
                self._serve(crew, _ENDLESS)
        elif self._crews:
            self._serve_all()
        if self._draining:
            self._draining = [c for c in self._draining if not c.nothing_left()]
        if self.starved:
            self.relieve()
        if self.lifetime != PERMANENT and self.published > 0 and self.message_count() == 0:
            self.reconsider_life()

    def _is_plain(self, crew: Crew) -> bool:
        """Whether all that can be offered to the only crew is at one cursor."""
        plain = self._plain
        return (
            crew.view is plain and self._by_level is None and not plain.returned and not crew.eager
        )

    def _serve_plain(self, crew: Crew) -> bool:
        """What `_serve` does, where there is one cursor; true if an entry is for `_serve`."""
        ready = crew.ready
        cursor = self._lane.plain
        while ready:
            entry = cursor.next
            if entry is None:
                return False
            if (
                entry.state != AVAILABLE
                or entry.expires != 0
                or entry.excluded is not None
                or entry.group is not None
            ):
                return True
            turn = crew.turn
            if turn >= len(ready):
                turn = 0
            consumer = ready[turn]
            verdict = consumer.deliver(entry)
            if verdict == TAKEN:
                cursor.next = entry.next
                crew.turn = turn + 1
                entry.state = ACQUIRED
                entry.attempts += 1
                self.delivered += 1
                self.available -= 1
                self.acquired += 1
                consumer.hold(entry)
            elif verdict == SETTLED:
                cursor.next = entry.next
                crew.turn = turn + 1
                self._consume(entry)
            elif verdict == IDLE:
                self.declined += 1
                consumer.ready = False
                del ready[turn]
                crew.turn = turn
            else:
                self.declined += 1
                entry.exclude(consumer.id)
        return False

    def _serve_all(self) -> None:
        """Serve the crews by priority, those of the same one in turns."""
        crews = self._crews
        start: i64 = 0
        while start < len(crews):
            priority = crews[start].priority
            end = start + 1
            while end < len(crews) and crews[end].priority == priority:
                end += 1
            if end - start == 1:
                self._serve(crews[start], _ENDLESS)
            else:
                self._serve_in_turns(crews[start:end])
            start = end

    def _serve_in_turns(self, crews: list[Crew]) -> None:
        """Give every message to the crew that has had the least for its size."""
        least: i64 = -1
        for crew in crews:
            if crew.ready and (least < 0 or crew.taken < least):
                least = crew.taken
        for crew in crews:
            # Nobody is owed more than one message for the time when he took none.
            ahead = crew.taken - least
            crew.taken = 0 if ahead < 0 else _SHARE if ahead > _SHARE else ahead
        while True:
            best: Crew | None = None
            for crew in crews:
                if crew.ready and (best is None or crew.taken < best.taken):
                    best = crew
            if best is None:
                return
            share: i64 = _SHARE // len(best.ready)
            if self._serve(best, 1):
                best.taken += share
            else:
                crews = [crew for crew in crews if crew is not best]

    def _serve(self, crew: Crew, turns: i64) -> bool:
        """Let the crew have up to so many messages; whether it took any."""
        view = crew.view
        ready = crew.ready
        served = False
        while turns > 0 and ready:
            entry = view.front()
            if entry is None:
                if not crew.eager:
                    break
                if self._serve_eager(crew):
                    served = True
                    turns -= 1
                continue
            if entry.expires != 0 and entry.expires <= self.agenda.now:
                self._expire(entry)
                continue
            turn = crew.turn
            if turn >= len(ready):
                turn = 0
            consumer = ready[turn]
            if entry.excluded is not None or entry.group is not None or consumer.own is not None:
                crew.turn = turn
                if self._serve_carefully(crew, consumer, entry):
                    served = True
                    turns -= 1
                continue
            verdict = consumer.deliver(entry)
            if verdict == TAKEN:
                view.step(entry)
                self._acquire(consumer, entry)
                crew.turn = turn + 1
                served = True
                turns -= 1
            elif verdict == SETTLED:
                view.step(entry)
                self._consume(entry)
                crew.turn = turn + 1
                served = True
                turns -= 1
            elif verdict == IDLE:
                self.declined += 1
                consumer.ready = False
                del ready[turn]
                crew.turn = turn
            else:
                self.declined += 1
                entry.exclude(consumer.id)
        return served

    def _acquire(self, consumer: Consumer, entry: Entry) -> None:
        entry.state = ACQUIRED
        entry.attempts += 1
        self.delivered += 1
        self.available -= 1
        self.acquired += 1
        consumer.hold(entry)

    def _consume(self, entry: Entry) -> None:
        self.delivered += 1
        self.available -= 1
        self._unlink(entry)

    def _expire(self, entry: Entry) -> None:
        """The time of an entry at the front is over."""
        self.lifecycle.expired(entry)
        if entry.state == AVAILABLE:
            self.drop(entry)

    def _serve_eager(self, crew: Crew) -> bool:
        """Nothing is left for everybody; there may be something for one of those with their own."""
        consumer = crew.eager.pop(0)
        crew.eager.append(consumer)
        entry = self._own_front(consumer)
        return entry is not None and self._hand(consumer, entry, None)

    def _serve_carefully(self, crew: Crew, consumer: Consumer, entry: Entry) -> bool:
        """Offer an entry that not everybody may get, or to one that has entries of his own."""
        if consumer.own is not None:
            own = self._own_front(consumer)
            if own is not None and own.rank < entry.rank:
                if self._hand(consumer, own, None):
                    crew.turn += 1
                    return True
                return False
        view = crew.view
        if entry.group is not None and not self._is_free(view, entry, entry.group, consumer):
            return False
        excluded = entry.excluded
        if excluded is not None and consumer.id in excluded:
            other = view.find(excluded)
            if other is None:
                view.step(entry)
                self._set_aside(view, entry, excluded)
                return False
            return self._hand(other, entry, view)
        if self._hand(consumer, entry, view):
            crew.turn += 1
            return True
        return False

    def _hand(self, consumer: Consumer, entry: Entry, view: View | None) -> bool:
        """Deliver the entry at the front of the view, or of the consumer's own."""
        if entry.expires != 0 and entry.expires <= self.agenda.now:
            self._expire(entry)
            return False
        verdict = consumer.deliver(entry)
        if verdict != TAKEN and verdict != SETTLED:
            self.declined += 1
            if verdict == IDLE:
                self._idle(consumer)
            else:
                entry.exclude(consumer.id)
            return False
        if view is not None:
            view.step(entry)
        group = entry.group
        if group is not None and self.groups is not None and group.consumer is None:
            self.groups.give(group, consumer)
        if verdict == TAKEN:
            self._acquire(consumer, entry)
        else:
            self._consume(entry)
        if group is not None and group.blockers:
            self._offer_waiting(group)
        return True

    def _idle(self, consumer: Consumer) -> None:
        crew = consumer.crew
        if crew is not None and consumer.ready:
            crew.dismiss(consumer)
        consumer.ready = False

    def _own_front(self, consumer: Consumer) -> Entry | None:
        """The first of the entries that wait for this consumer."""
        own = consumer.own
        if own is None:
            return None
        while own:
            entry = own[0][1]
            if entry.state == AVAILABLE:
                group = entry.group
                excluded = entry.excluded
                if excluded is None or consumer.id not in excluded:
                    if group is None or self._is_free(None, entry, group, consumer):
                        return entry
                    if group.consumer is None and not group.blocks(entry):
                        # It has just been taken from another consumer.
                        continue
                elif group is not None and group.consumer is consumer:
                    self._disown(group)
            heappop(own)
        consumer.own = None
        crew = consumer.crew
        if crew is not None and consumer in crew.eager:
            crew.eager.remove(consumer)
        return None

    def _give_own(self, consumer: Consumer, entry: Entry) -> None:
        """Let the entry wait for this consumer."""
        own = consumer.own
        if own is None:
            own = []
            consumer.own = own
            crew = consumer.crew
            if crew is not None and consumer.ready:
                crew.eager.append(consumer)
        push(own, entry, self.available)

    def _set_aside(self, view: View, entry: Entry, excluded: set[int]) -> None:
        """No consumer that is ready may get the entry: it waits for the others, and new ones."""
        for crew in view.crews:
            for consumer in crew.members:
                if consumer.id not in excluded:
                    self._give_own(consumer, entry)
        push(view.aside, entry, self.available)
        group = entry.group
        if group is not None and group.consumer is None:
            group.block(entry)

    def _offer_again(self, entry: Entry) -> None:
        """An entry is available that cursors may have passed."""
        for view in self._views:
            view.offer_again(entry, self.available)

    # -- groups ------------------------------------------------------------------------

    def _is_free(self, view: View | None, entry: Entry, group: Group, consumer: Consumer) -> bool:
        """Whether this consumer may have a message of the group.

        If not, the message is passed over, in `view` too, and waits for the one that may.
        """
        owner = group.consumer
        excluded = entry.excluded
        if owner is not None and excluded is not None and owner.id in excluded:
            self._disown(group)
            return False
        if owner is consumer:
            return True
        if owner is not None:
            filter = owner.filter
            if filter is not None and not filter.matches(entry.message):
                return True
            if view is not None:
                view.step(entry)
            group.wait(entry)
            self._give_own(owner, entry)
            return False
        if group.blocks(entry):
            if view is not None:
                view.step(entry)
            group.wait(entry)
            return False
        return True

    def _disown(self, group: Group) -> None:
        """The group's consumer cannot take its next message: another one may."""
        if self.groups is not None:
            self.groups.release(group)
        self._offer_waiting(group)

    def _offer_waiting(self, group: Group) -> None:
        """Offer what has been passed over again: the group has another consumer, or none."""
        for entry in group.take_waiting():
            self._offer_again(entry)
        self.touch()

    # -- the end -----------------------------------------------------------------------

    def clear(self) -> i64:
        """Drop every message nobody holds; how many there were."""
        count: i64 = 0
        for lane in self.lanes:
            entry = lane.first
            while entry is not None:
                after = entry.next
                if entry.state == AVAILABLE:
                    self.drop(entry)
                    count += 1
                entry = after
        for view in self._views:
            view.returned = []
            view.aside = []
        return count

    def delete(self, error: Error) -> None:
        """End every link with `error`, drop every message."""
        super().delete(error)
        for consumer in list(self.consumers):
            consumer.evict(error)
        self.clear()
        self.lifecycle.close()

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
        count: i64 = 0
        for view in self._views:
            count += view.evaluations
        return count

    def room(self) -> i64:
        """How many more messages get in, as the lifecycle has it."""
        return self.lifecycle.room()

    def describe(self) -> dict[str, object]:
        """Its settings and figures by their public names."""
        return describe_queue(self)


def _rank_of(record: tuple[int, Entry]) -> int:
    return record[0]
