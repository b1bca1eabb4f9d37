"""Messages out of a queue: to one crew at one cursor (`serve_plain`), or where there is a choice:
several crews, filters, exclusions, groups."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.consumer import IDLE, SETTLED, TAKEN, Consumer
from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, Entry
from ferrymq_broker.nodes.node import BOUNDLESS
from ferrymq_broker.nodes.paging.pager import page_in, passes
from ferrymq_broker.nodes.queues.filter_views import FilterView, PriorityTier, push
from ferrymq_broker.nodes.queues.groups import Group

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.queue import Queue

# What a crew of one counts for a message it takes.
_SHARE: Final = 1 << 20


def is_plain(queue: Queue, tier: PriorityTier) -> bool:
    """Whether all that can be offered to the only crew is at one cursor."""
    plain = queue.plain
    return (
        tier.view is plain
        and len(queue.priority_levels) == 1
        and not plain.returned
        and not tier.eager
        and queue.paging is None
        and queue.agenda.emptied == 0
    )


def serve_plain(queue: Queue, tier: PriorityTier) -> bool:
    """What `serve` does, where there is one cursor; true if an entry is for `serve`."""
    cursor = queue.priority_level.plain
    stable = queue.stable
    while True:
        consumer = tier.turn
        if consumer is None:
            consumer = tier.first
            if consumer is None:
                return False
            tier.turn = consumer
        entry = cursor.next
        if entry is None or (stable != BOUNDLESS and entry.sequence > stable):
            return False
        if (
            entry.state != AVAILABLE
            or entry.expires != 0
            or entry.excluded is not None
            or entry.group is not None
        ):
            return True
        verdict = consumer.deliver(entry)
        if verdict == TAKEN:
            cursor.next = entry.next
            tier.turn = consumer.next_ready
            entry.state = ACQUIRED
            entry.attempts += 1
            queue.delivered += 1
            queue.available -= 1
            queue.acquired += 1
            consumer.hold(entry)
        elif verdict == SETTLED:
            cursor.next = entry.next
            tier.turn = consumer.next_ready
            queue.consume(entry)
        elif verdict == IDLE:
            queue.declined += 1
            consumer.ready = False
            tier.dismiss(consumer)
        else:
            queue.declined += 1
            queue.exclude(consumer, entry)


def serve_all(queue: Queue) -> None:
    """Serve the crews by priority, those of the same one in turns."""
    tiers = queue.tiers
    start: i64 = 0
    while start < len(tiers):
        priority = tiers[start].priority
        end = start + 1
        while end < len(tiers) and tiers[end].priority == priority:
            end += 1
        if end - start == 1:
            serve(queue, tiers[start], BOUNDLESS)
        else:
            _serve_in_turns(queue, tiers[start:end])
        start = end


def _serve_in_turns(queue: Queue, tiers: list[PriorityTier]) -> None:
    """Give every message to the crew that has had the least for its size."""
    least: i64 = -1
    for tier in tiers:
        if tier.count > 0 and (least < 0 or tier.taken < least):
            least = tier.taken
    for tier in tiers:
        # Nobody is owed more than one message for the time when he took none.
        ahead = tier.taken - least
        tier.taken = 0 if ahead < 0 else _SHARE if ahead > _SHARE else ahead
    while True:
        best: PriorityTier | None = None
        for tier in tiers:
            if tier.count > 0 and (best is None or tier.taken < best.taken):
                best = tier
        if best is None:
            return
        share: i64 = _SHARE // best.count
        if serve(queue, best, 1):
            best.taken += share
        else:
            tiers = [tier for tier in tiers if tier is not best]


def serve(queue: Queue, tier: PriorityTier, turns: i64) -> bool:
    """Let the crew have up to so many messages; whether it took any."""
    view = tier.view
    served = False
    while turns > 0 and tier.count > 0:
        entry = view.front(queue.stable)
        if entry is None:
            if not tier.eager:
                break
            if _serve_eager(queue, tier):
                served = True
                turns -= 1
            continue
        if entry.expires != 0 and queue.agenda.left(entry.expires) <= 0:
            queue.lifecycle.expired(entry)
            continue
        if entry.is_out() and not page_in(queue, entry):
            continue
        consumer = tier.turn
        if consumer is None:
            consumer = tier.first
            if consumer is None:
                break
            tier.turn = consumer
        if entry.excluded is not None or entry.group is not None or consumer.own is not None:
            if _serve_carefully(queue, tier, consumer, entry):
                served = True
                turns -= 1
            continue
        verdict = consumer.deliver(entry)
        if verdict == TAKEN:
            view.step(entry)
            queue.acquire(consumer, entry)
            tier.turn = consumer.next_ready
            served = True
            turns -= 1
        elif verdict == SETTLED:
            view.step(entry)
            queue.consume(entry)
            tier.turn = consumer.next_ready
            served = True
            turns -= 1
        elif verdict == IDLE:
            queue.declined += 1
            consumer.ready = False
            tier.dismiss(consumer)
        else:
            queue.declined += 1
            queue.exclude(consumer, entry)
    return served


def _serve_eager(queue: Queue, tier: PriorityTier) -> bool:
    """Nothing is left for everybody; there may be something for one of those with their own."""
    consumer = next(iter(tier.eager))
    tier.eager.move_to_end(consumer)
    entry = _own_front(queue, consumer)
    return entry is not None and _hand(queue, consumer, entry, None)


def _serve_carefully(queue: Queue, tier: PriorityTier, consumer: Consumer, entry: Entry) -> bool:
    """Offer an entry that not everybody may get, or to one that has entries of his own."""
    if consumer.own is not None:
        own = _own_front(queue, consumer)
        if own is not None and own.rank < entry.rank:
            if _hand(queue, consumer, own, None):
                tier.turn = consumer.next_ready
                return True
            return False
    view = tier.view
    if entry.group is not None and not _is_free(queue, view, entry, entry.group, consumer):
        return False
    excluded = entry.excluded
    if excluded is not None and consumer.is_among(excluded):
        other = view.find(excluded)
        if other is None:
            view.step(entry)
            _set_aside(queue, view, entry, excluded)
            return False
        return _hand(queue, other, entry, view)
    if _hand(queue, consumer, entry, view):
        tier.turn = consumer.next_ready
        return True
    return False


def _hand(queue: Queue, consumer: Consumer, entry: Entry, view: FilterView | None) -> bool:
    """Deliver the entry at the front of the view, or of the consumer's own."""
    if entry.expires != 0 and queue.agenda.left(entry.expires) <= 0:
        queue.lifecycle.expired(entry)
        return False
    if entry.is_out() and not page_in(queue, entry):
        return False
    verdict = consumer.deliver(entry)
    if verdict != TAKEN and verdict != SETTLED:
        queue.declined += 1
        if verdict == IDLE:
            _idle(consumer)
        else:
            queue.exclude(consumer, entry)
        return False
    if view is not None:
        view.step(entry)
    group = entry.group
    if group is not None and queue.groups is not None and group.consumer is None:
        queue.groups.give(group, consumer)
    if verdict == TAKEN:
        queue.acquire(consumer, entry)
    else:
        queue.consume(entry)
    if group is not None and group.blockers:
        offer_waiting(queue, group)
    return True


def _idle(consumer: Consumer) -> None:
    tier = consumer.tier
    if tier is not None and consumer.ready:
        tier.dismiss(consumer)
    consumer.ready = False


def _own_front(queue: Queue, consumer: Consumer) -> Entry | None:
    """The first of the entries that wait for this consumer."""
    own = consumer.own
    if own is None:
        return None
    while own:
        entry = own[0][1]
        if entry.state == AVAILABLE:
            group = entry.group
            excluded = entry.excluded
            if excluded is None or not consumer.is_among(excluded):
                if group is None or _is_free(queue, None, entry, group, consumer):
                    return entry
                if group.consumer is None and not group.blocks(entry):
                    # It has just been taken from another consumer.
                    continue
            elif group is not None and group.consumer is consumer:
                _disown(queue, group)
        heappop(own)
    consumer.own = None
    tier = consumer.tier
    if tier is not None:
        tier.eager.pop(consumer, None)
    return None


def _give_own(queue: Queue, consumer: Consumer, entry: Entry) -> None:
    """Let the entry wait for this consumer."""
    own = consumer.own
    if own is None:
        own = []
        consumer.own = own
        tier = consumer.tier
        if tier is not None and consumer.ready:
            tier.eager[consumer] = None
    push(own, entry, queue.available)


def _set_aside(queue: Queue, view: FilterView, entry: Entry, excluded: set[int]) -> None:
    """No consumer that is ready may get the entry: it waits for the others, and new ones."""
    for tier in view.tiers:
        for consumer in tier.members:
            if not consumer.is_among(excluded):
                _give_own(queue, consumer, entry)
    push(view.aside, entry, queue.available)
    group = entry.group
    if group is not None and group.consumer is None:
        group.block(entry)


def _is_free(
    queue: Queue, view: FilterView | None, entry: Entry, group: Group, consumer: Consumer
) -> bool:
    """Whether this consumer may have a message of the group.

    If not, the message is passed over, in `view` too, and waits for the one that may.
    """
    owner = group.consumer
    excluded = entry.excluded
    if owner is not None and excluded is not None and owner.is_among(excluded):
        _disown(queue, group)
        return False
    if owner is consumer and group.left is None:
        return True
    if owner is not None and owner is not consumer:
        filter = owner.filter
        if filter is not None and not passes(queue, filter, entry):
            return True
        if view is not None:
            view.step(entry)
        group.wait(entry)
        _give_own(queue, owner, entry)
        return False
    if group.blocks(entry):
        if view is not None:
            view.step(entry)
        group.wait(entry)
        return False
    return True


def _disown(queue: Queue, group: Group) -> None:
    """The group's consumer cannot take its next message: another one may."""
    if queue.groups is not None:
        queue.groups.release(group)
    offer_waiting(queue, group)


def offer_waiting(queue: Queue, group: Group) -> None:
    """Offer what has been passed over again: the group has another consumer, or none."""
    for entry in group.take_waiting():
        queue.offer_again(entry)
    queue.touch()
