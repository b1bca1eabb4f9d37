"""The dispatcher: it offers messages of a queue to consumers. With one tier and one cursor
`_serve_plain` does it; with several tiers, filters, exclusions or groups, `_serve` does."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, SETTLED, TAKEN, Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.nodes.queues.filter_views import PATIENCE, FilterView, ViewTier, push
from ferrymq_broker.nodes.queues.groups import Group
from ferrymq_broker.nodes.queues.priority_levels import AHEAD
from ferrymq_broker.nodes.queues.sessions import QueueSession, Sessions, is_kept_from
from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.queues.consumer_registry import ConsumerRegistry
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle

# The share that a tier with one consumer gets for a message.
_SHARE: Final = 1 << 20


@final
class Continuation(Timer):
    """The timer that gives a queue another turn in the next pass, after a long look, so that other
    nodes get their turns."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._node = node

    def ask(self) -> None:
        """Ask for another pass at once."""
        self._node.space.timers.set(self, self._node.agenda.now)

    def cancel(self) -> None:
        """Ask for no other pass, because nothing is left to do."""
        self._node.space.timers.cancel(self)

    def on_time(self, now: i64) -> None:
        """Give the queue its turn."""
        self._node.touch()


@final
class Dispatcher:
    """The part of a queue that offers its entries to its consumers.

    Counted since the broker was started: `delivered` messages, `settled` ones of these that were
    sent settled, and the times that a consumer `declined` what it was offered.
    """

    __slots__ = (
        "delivered",
        "settled",
        "declined",
        "draining",
        "continuation",
        "_agenda",
        "_entries",
        "_registry",
        "_lifecycle",
        "_held_back",
    )

    def __init__(
        self,
        node: Node,
        entries: QueueEntries,
        registry: ConsumerRegistry,
        lifecycle: MessageLifecycle,
    ) -> None:
        self.delivered: i64 = 0
        self.settled: i64 = 0
        self.declined: i64 = 0
        # Consumers that want to know when no message is left for them.
        self.draining: dict[Consumer, None] = {}
        self.continuation: Continuation = Continuation(node)
        self._agenda = node.agenda
        self._entries = entries
        self._registry = registry
        self._lifecycle = lifecycle
        # How many callers of `pause` have not called `resume` yet.
        self._held_back: i64 = 0

    def pause(self) -> None:
        """Stop dispatching until `resume`. Calls are counted."""
        self._held_back += 1

    def resume(self) -> bool:
        """End a `pause`; return whether it was the last one."""
        self._held_back -= 1
        return self._held_back == 0

    def dispatch(self) -> bool:
        """Offer messages until there are no more, or no consumers that can take them; return false
        if dispatching is paused."""
        if self._held_back > 0:
            return False
        registry = self._registry
        done = True
        if registry.browsers:
            for browser in list(registry.browsers.values()):
                if browser.consumer.ready and not browser.show():
                    done = False
        tier = registry.sole
        if self._entries.sessions is not None:
            self._serve_sessions(self._entries.sessions)
        elif tier is not None:
            if tier.count > 0 and (not self._is_plain(tier) or self._serve_plain(tier)):
                self._serve(tier, BOUNDLESS)
        elif registry.tiers:
            self._serve_all()
        if len(registry.views) > 1:
            for view in registry.views.values():
                if view.patience <= 0:
                    done = False
                view.patience = PATIENCE
        if not done:
            self.continuation.ask()
        elif self.draining:
            self.draining = {c: None for c in self.draining if not c.nothing_left()}
        return True

    def serve_once(self, consumer: Consumer) -> bool:
        """Give the next message to a consumer that is not subscribed and can take it; return false
        if there is none.

        The message may not be on disk yet: whoever shows it to a client waits for that.
        """
        view = self._registry.plain
        while True:
            entry = view.front(BOUNDLESS)
            if entry is None:
                return False
            if self._hand(consumer, entry, view):
                return True

    def _acquire(self, consumer: Consumer, entry: Entry) -> None:
        """Give the entry to the consumer, which has been sent the message and holds it now."""
        self.delivered += 1
        self._entries.acquire(entry)
        consumer.hold(entry)

    def _consume(self, entry: Entry) -> None:
        """Remove an entry whose message was sent settled to a consumer."""
        self.delivered += 1
        self.settled += 1
        self._entries.consume(entry)

    def _is_plain(self, tier: ViewTier) -> bool:
        """Return whether everything for the only tier is at one cursor."""
        plain = self._registry.plain
        return (
            tier.view is plain
            and len(self._entries.priority_levels) == 1
            and not plain.returned
            and not tier.eager
        )

    def _serve_plain(self, tier: ViewTier) -> bool:
        """Serve the tier at its only cursor; return true if an entry needs `_serve`."""
        entries = self._entries
        cursor = entries.default_level.plain
        stable = entries.records.stable
        # Compared once, because a constant of this size is an object.
        bounded = stable != BOUNDLESS
        # No message leaves memory meanwhile.
        may_be_out = entries.paging is not None or self._agenda.emptied != 0
        while True:
            consumer = tier.turn
            if consumer is None:
                consumer = tier.first
                if consumer is None:
                    return False
                tier.turn = consumer
            entry = cursor.next
            if entry is None or (bounded and entry.sequence > stable):
                return False
            if (
                entry.state != AVAILABLE
                or entry.expires != 0
                or entry.excluded is not None
                or entry.group is not None
            ):
                if entry.state != RUN:
                    return True
                entries.default_level.enter(entry, AHEAD)
                continue
            if may_be_out and entry.is_out() and not entries.page_in(entry):
                continue
            verdict = consumer.deliver(entry)
            if verdict == TAKEN:
                cursor.next = entry.next
                tier.turn = consumer.next_ready
                self.delivered += 1
                entries.acquire(entry)
                consumer.hold(entry)
            elif verdict == SETTLED:
                cursor.next = entry.next
                tier.turn = consumer.next_ready
                self._consume(entry)
            elif verdict == IDLE:
                self.declined += 1
                consumer.ready = False
                tier.dismiss(consumer)
            else:
                self.declined += 1
                self._registry.exclude(consumer.id, entry)

    def _serve_sessions(self, sessions: Sessions) -> None:
        """Offer the messages of each session to its owner, and free sessions to waiting
        attaches."""
        sessions.serve_waiting()
        for session in sessions.take_pending():
            self._serve_session(sessions, session)

    def _serve_session(self, sessions: Sessions, session: QueueSession) -> None:
        stable = self._entries.records.stable
        while True:
            consumer = session.owner
            entry = session.front()
            if consumer is None or entry is None or not consumer.ready:
                return
            if stable != BOUNDLESS and entry.sequence > stable:
                sessions.look_again(session)
                return
            if entry.expires != 0 and self._agenda.left(entry.expires) <= 0:
                self._lifecycle.expired(entry)
                continue
            if entry.is_out() and not self._entries.page_in(entry):
                continue
            if is_kept_from(consumer, entry):
                # The messages behind it must not overtake it: all wait for the next owner.
                return
            verdict = consumer.deliver(entry)
            if verdict == TAKEN:
                session.step()
                sessions.acquire(session, entry)
                self._acquire(consumer, entry)
            elif verdict == SETTLED:
                session.step()
                self._consume(entry)
            elif verdict == IDLE:
                self.declined += 1
                _idle(consumer)
            else:
                self.declined += 1
                self._registry.exclude(consumer.id, entry)

    def _serve_all(self) -> None:
        """Serve the tiers by priority; tiers of the same priority take turns."""
        tiers = self._registry.tiers
        start: i64 = 0
        while start < len(tiers):
            priority = tiers[start].priority
            end = start + 1
            while end < len(tiers) and tiers[end].priority == priority:
                end += 1
            if end - start == 1:
                self._serve(tiers[start], BOUNDLESS)
            else:
                self._serve_in_turns(tiers[start:end])
            start = end

    def _serve_in_turns(self, tiers: list[ViewTier]) -> None:
        """Give every message to the tier that has had the least share for its number of
        consumers."""
        least: i64 = -1
        for tier in tiers:
            if tier.count > 0 and (least < 0 or tier.taken < least):
                least = tier.taken
        for tier in tiers:
            # A tier that has taken nothing for some time is owed one message for it, not more.
            ahead = tier.taken - least
            tier.taken = 0 if ahead < 0 else _SHARE if ahead > _SHARE else ahead
        while True:
            best: ViewTier | None = None
            for tier in tiers:
                if tier.count > 0 and (best is None or tier.taken < best.taken):
                    best = tier
            if best is None:
                return
            share: i64 = _SHARE // best.count
            if self._serve(best, 1):
                best.taken += share
            else:
                tiers = [tier for tier in tiers if tier is not best]

    def _serve(self, tier: ViewTier, turns: i64) -> bool:
        """Offer the tier up to `turns` messages; return whether it took any."""
        view = tier.view
        served = False
        while turns > 0 and tier.count > 0:
            entry = view.front(self._entries.records.stable)
            if entry is None:
                if not tier.eager:
                    break
                if self._serve_eager(tier):
                    served = True
                    turns -= 1
                continue
            if entry.expires != 0 and self._agenda.left(entry.expires) <= 0:
                self._lifecycle.expired(entry)
                continue
            if entry.is_out() and not self._entries.page_in(entry):
                continue
            consumer = tier.turn
            if consumer is None:
                consumer = tier.first
                if consumer is None:
                    break
                tier.turn = consumer
            if entry.excluded is not None or entry.group is not None or consumer.own is not None:
                if self._serve_carefully(tier, consumer, entry):
                    served = True
                    turns -= 1
                continue
            verdict = consumer.deliver(entry)
            if verdict == TAKEN:
                view.step(entry)
                self._acquire(consumer, entry)
                tier.turn = consumer.next_ready
                served = True
                turns -= 1
            elif verdict == SETTLED:
                view.step(entry)
                self._consume(entry)
                tier.turn = consumer.next_ready
                served = True
                turns -= 1
            elif verdict == IDLE:
                self.declined += 1
                consumer.ready = False
                tier.dismiss(consumer)
            else:
                self.declined += 1
                self._registry.exclude(consumer.id, entry)
        return served

    def _serve_eager(self, tier: ViewTier) -> bool:
        """Offer entries to a consumer that has entries of its own, when none is left for all."""
        consumer = next(iter(tier.eager))
        tier.eager.move_to_end(consumer)
        entry = self._own_front(consumer)
        return entry is not None and self._hand(consumer, entry, None)

    def _serve_carefully(self, tier: ViewTier, consumer: Consumer, entry: Entry) -> bool:
        """Offer an entry that not every consumer may get, or that goes to a consumer with entries
        of its own."""
        if consumer.own is not None:
            own = self._own_front(consumer)
            if own is not None and own.rank < entry.rank:
                if self._hand(consumer, own, None):
                    tier.turn = consumer.next_ready
                    return True
                return False
        view = tier.view
        if entry.group is not None and not self._is_free(view, entry, entry.group, consumer):
            return False
        excluded = entry.excluded
        if excluded is not None and consumer.is_among(excluded):
            other = view.find(excluded)
            if other is None:
                view.step(entry)
                self._set_aside(view, entry, excluded)
                return False
            return self._hand(other, entry, view)
        if self._hand(consumer, entry, view):
            tier.turn = consumer.next_ready
            return True
        return False

    def _hand(self, consumer: Consumer, entry: Entry, view: FilterView | None) -> bool:
        """Deliver the entry at the front of the view, or of the consumer's own entries."""
        if entry.expires != 0 and self._agenda.left(entry.expires) <= 0:
            self._lifecycle.expired(entry)
            return False
        if entry.is_out() and not self._entries.page_in(entry):
            return False
        verdict = consumer.deliver(entry)
        if verdict != TAKEN and verdict != SETTLED:
            self.declined += 1
            if verdict == IDLE:
                _idle(consumer)
            else:
                self._registry.exclude(consumer.id, entry)
            return False
        if view is not None:
            view.step(entry)
        group = entry.group
        if group is not None and self._entries.groups is not None and group.consumer is None:
            self._entries.groups.give(group, consumer)
        if verdict == TAKEN:
            self._acquire(consumer, entry)
        else:
            self._consume(entry)
        if group is not None and group.blockers:
            self._registry.offer_waiting(group)
        return True

    def _own_front(self, consumer: Consumer) -> Entry | None:
        """Return the first of the entries that wait for this consumer alone."""
        own = consumer.own
        if own is None:
            return None
        while own:
            entry = own[0][1]
            if entry.state == AVAILABLE:
                group = entry.group
                excluded = entry.excluded
                if excluded is None or not consumer.is_among(excluded):
                    if group is None or self._is_free(None, entry, group, consumer):
                        return entry
                    if group.consumer is None and not group.blocks(entry):
                        # The entry has just been taken from another consumer.
                        continue
                elif group is not None and group.consumer is consumer:
                    self._disown(group)
            heappop(own)
        consumer.own = None
        tier = consumer.tier
        if tier is not None:
            tier.eager.pop(consumer, None)
        return None

    def _give_own(self, consumer: Consumer, entry: Entry) -> None:
        """Keep the entry for this consumer alone."""
        own = consumer.own
        if own is None:
            own = []
            consumer.own = own
            tier = consumer.tier
            if tier is not None and consumer.ready:
                tier.eager[consumer] = None
        push(own, entry, self._entries.available)

    def _set_aside(self, view: FilterView, entry: Entry, excluded: set[int]) -> None:
        """Keep an entry that no ready consumer may get, for other consumers and new ones."""
        for tier in view.tiers:
            for consumer in tier.members:
                if not consumer.is_among(excluded):
                    self._give_own(consumer, entry)
        push(view.aside, entry, self._entries.available)
        group = entry.group
        if group is not None and group.consumer is None:
            group.block(entry)

    def _is_free(
        self, view: FilterView | None, entry: Entry, group: Group, consumer: Consumer
    ) -> bool:
        """Return whether this consumer may have a message of the group.

        If not, the message is passed over, in `view` too, and waits for the consumer of the group.
        """
        owner = group.consumer
        excluded = entry.excluded
        if owner is not None and excluded is not None and owner.is_among(excluded):
            self._disown(group)
            return False
        if owner is consumer and group.left is None:
            return True
        if owner is not None and owner is not consumer:
            filter = owner.filter
            if filter is not None and not self._entries.passes(filter, entry):
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
        """Release the group, because its consumer cannot take the next message."""
        if self._entries.groups is not None:
            self._entries.groups.release(group)
        self._registry.offer_waiting(group)


def _idle(consumer: Consumer) -> None:
    tier = consumer.tier
    if tier is not None and consumer.ready:
        tier.dismiss(consumer)
    consumer.ready = False
