"""Which consumers of a queue are served: their places in views and crews."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.consumer import OWNER, Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.queues.browsers import Browser
from ferrymq_broker.nodes.queues.dispatcher import offer_waiting
from ferrymq_broker.nodes.queues.filter_views import FilterView, PriorityTier, push
from ferrymq_broker.nodes.queues.persistence import put_state
from ferrymq_broker.nodes.queues.priority_levels import LevelCursor, PriorityLevel

if TYPE_CHECKING:
    from ferrymq_broker.nodes.link_terms import SourceTerms
    from ferrymq_broker.nodes.queues.queue import Queue

# Consumers that an entry is kept from, of those that are gone: more are looked through.
_SLACK: Final = 64


def grant(queue: Queue, terms: SourceTerms) -> None:
    """What of its terms a link gets. Raises `BrokerError` if there may be no further consumer."""
    terms.filters.decline_position()
    if terms.distribution_mode == "copy":
        terms.granted_mode = "copy"
        terms.browses = True
        return
    _check_consumer_limit(queue, terms.exclusive or queue.policy.exclusive)
    terms.granted_mode = "move"
    terms.granted_priority = terms.priority
    terms.granted_exclusive = terms.exclusive


def _check_consumer_limit(queue: Queue, exclusive: bool) -> None:
    """Raise `BrokerError` if there may be no further consumer, or none that is to be alone."""
    others = queue.takers
    if others > 0 and (exclusive or queue.exclusive_consumers > 0):
        raise BrokerError(
            "amqp:resource-locked", f"{queue.address!r} has a consumer, and one is to be alone"
        )
    most = queue.policy.max_consumers
    if most and others >= most:
        raise BrokerError(
            "amqp:resource-limit-exceeded", f"{queue.address!r} has {most} consumers already"
        )


def add_consumer(queue: Queue, consumer: Consumer) -> None:
    """Count and seat a consumer that is new, or let it wait until one at a time comes to it."""
    queue.consumers[consumer] = None
    if consumer.copies:
        queue.browsers[consumer] = Browser(consumer)
        return
    queue.takers += 1
    if consumer.exclusive:
        queue.exclusive_consumers += 1
    if not queue.policy.single_active:
        _assign_tier(queue, consumer)
        return
    _stand_by(queue, consumer)
    if queue.active is None:
        _activate_next(queue)


def remove_consumer(queue: Queue, consumer: Consumer) -> None:
    """The consumer is none of the queue's any more, and gives up its place."""
    if consumer in queue.consumers:
        del queue.consumers[consumer]
        if not consumer.copies:
            queue.takers -= 1
            if consumer.exclusive:
                queue.exclusive_consumers -= 1
    queue.browsers.pop(consumer, None)
    _leave_tier(queue, consumer)
    _let_groups_go(queue, consumer)
    consumer.ready = False
    if queue.active is consumer:
        queue.active = None
        _activate_next(queue)


def reassign_consumers(queue: Queue) -> None:
    """Seat those who are there as the policy has it now."""
    for consumer in queue.consumers:
        _leave_tier(queue, consumer)
    queue.active = None
    queue.standby = []
    if queue.policy.single_active:
        for consumer in queue.consumers:
            if not consumer.copies:
                _stand_by(queue, consumer)
        active = _activate_next(queue)
        for consumer in queue.consumers:
            if consumer is not active:
                _let_groups_go(queue, consumer)
        return
    for consumer in queue.consumers:
        if not consumer.copies:
            _assign_tier(queue, consumer)


def _activate_next(queue: Queue) -> Consumer | None:
    """Serve the consumer of highest priority, of these the one that came first, and return it."""
    if queue.deleted:
        return None
    standby = queue.standby
    while standby:
        _, _, best = heappop(standby)
        if best in queue.consumers:
            queue.active = best
            _assign_tier(queue, best)
            queue.touch()
            return best
    return None


def _stand_by(queue: Queue, consumer: Consumer) -> None:
    """Let the consumer wait until one at a time comes to it."""
    heappush(queue.standby, (int(-consumer.priority), int(consumer.id), consumer))
    if len(queue.standby) > 2 * queue.takers + _SLACK:
        queue.standby = [one for one in queue.standby if one[2] in queue.consumers]
        heapify(queue.standby)


def _assign_tier(queue: Queue, consumer: Consumer) -> None:
    """Give the consumer a place in a view and a crew."""
    view = _view_of(queue, consumer)
    tier = _tier_of(view, consumer.priority)
    if tier is None:
        queue.tiers_made += 1
        tier = PriorityTier(view, consumer.priority, queue.tiers_made)
        queue.tiers.insert(_place_of(queue.tiers, tier), tier)
        view.tiers.insert(_place_of(view.tiers, tier), tier)
    tier.members[consumer] = None
    consumer.tier = tier
    own = [record for record in view.aside if record[1].state == AVAILABLE]
    # A heap: in order.
    own.sort(key=_rank_of)
    consumer.own = own or None
    if consumer.ready:
        tier.admit(consumer)


def _place_of(tiers: list[PriorityTier], tier: PriorityTier) -> int:
    """The index that the crew has, or is to have, among crews in the order of their turns: those of
    higher priority first, of equal ones the one that was made first."""
    low = 0
    high = len(tiers)
    while low < high:
        middle = (low + high) // 2
        other = tiers[middle]
        if other.priority > tier.priority or (
            other.priority == tier.priority and other.number < tier.number
        ):
            low = middle + 1
        else:
            high = middle
    return low


def _tier_of(view: FilterView, priority: i64) -> PriorityTier | None:
    """The crew of a priority in a view, which has one of each at most."""
    low = 0
    high = len(view.tiers)
    while low < high:
        middle = (low + high) // 2
        tier = view.tiers[middle]
        if tier.priority == priority:
            return tier
        if tier.priority > priority:
            low = middle + 1
        else:
            high = middle
    return None


def _view_of(queue: Queue, consumer: Consumer) -> FilterView:
    filter = consumer.filter
    if filter is None:
        return queue.plain
    known = queue.views.get(filter.key)
    if known is not None:
        return known
    view = FilterView(queue, filter)
    queue.views[filter.key] = view
    for priority_level in queue.priority_levels:
        view.cursors.append(new_cursor(queue, priority_level, view))
    return view


def _leave_tier(queue: Queue, consumer: Consumer) -> None:
    """Take the consumer's place away; what waited for it alone is for others."""
    tier = consumer.tier
    if tier is None:
        return
    if consumer.ready:
        tier.dismiss(consumer)
    consumer.tier = None
    consumer.own = None
    del tier.members[consumer]
    view = tier.view
    if not tier.members:
        del queue.tiers[_place_of(queue.tiers, tier)]
        del view.tiers[_place_of(view.tiers, tier)]
    if not view.tiers:
        _abandon(queue, view)


def _let_groups_go(queue: Queue, consumer: Consumer) -> None:
    """The groups of the consumer may go to others, when what it goes on holding of them is decided
    on."""
    groups = queue.groups
    if groups is None:
        return
    owned = groups.owned_by(consumer)
    if owned:
        entry = consumer.first_held()
        while entry is not None:
            group = entry.group
            if group is not None and group.consumer is consumer:
                group.leave_behind(entry)
            entry = entry.held_next
    for group in owned:
        groups.release(group)
        offer_waiting(queue, group)


def _abandon(queue: Queue, view: FilterView) -> None:
    """Nobody has this view any more."""
    if view.filter is not None:
        del queue.views[view.filter.key]
        queue.plain.evaluations += view.evaluations
        for cursor in view.cursors:
            cursor.priority_level.drop_cursor(cursor)
        return
    for _, entry in view.aside:
        if entry.state == AVAILABLE:
            push(view.returned, entry, queue.available)
    view.aside = []


def exclude(queue: Queue, number: i64, entry: Entry) -> None:
    """Keep the message of an entry from the consumer that has this number from now on.

    Where the number means something behind a restart, so does this.
    """
    entry.exclude(number)
    excluded = entry.excluded
    if excluded is not None and len(excluded) > 2 * len(queue.consumers) + _SLACK:
        # Most of them are gone, and nobody has their numbers again.
        alive = {int(one.id) for one in queue.consumers}
        entry.excluded = excluded & (alive | queue.agenda.remembered)
    if number <= OWNER and entry.stored and queue.store_id != 0:
        put_state(queue, entry)


def new_priority_level(queue: Queue, level: i64) -> PriorityLevel:
    """The lane of a level that had none; every view has a cursor in it."""
    priority_level = PriorityLevel(level)
    at: i64 = 0
    while at < len(queue.priority_levels) and queue.priority_levels[at].level > level:
        at += 1
    queue.priority_levels.insert(at, priority_level)
    for view in queue.views.values():
        view.cursors.insert(at, new_cursor(queue, priority_level, view))
    return priority_level


def new_cursor(queue: Queue, priority_level: PriorityLevel, view: FilterView) -> LevelCursor:
    """Where a view begins in a lane; made known to the lane."""
    if view.filter is None:
        return priority_level.plain
    cursor = LevelCursor(priority_level)
    priority_level.add_cursor(cursor)
    return cursor


def _rank_of(record: tuple[int, Entry]) -> int:
    return record[0]
