"""Which consumers of a queue are served: their places in views and crews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.entry import AVAILABLE, Entry
from ferrymq_broker.nodes.queues.dispatching import offer_waiting
from ferrymq_broker.nodes.queues.lanes import Cursor, Lane
from ferrymq_broker.nodes.queues.views import Crew, View, push

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.queue import Queue
    from ferrymq_broker.nodes.terms import SourceTerms

# Consumers that an entry is kept from, of those that are gone: more are looked through.
_SLACK: Final = 64


def grant(queue: Queue, terms: SourceTerms) -> None:
    """What of its terms a link gets. Raises `BrokerError` if there may be no further consumer."""
    terms.filters.decline_position()
    if terms.distribution_mode == "copy":
        terms.granted_mode = "copy"
        terms.browses = True
        return
    _expect_vacancy(queue, terms.exclusive or queue.policy.exclusive)
    terms.granted_mode = "move"
    terms.granted_priority = terms.priority
    terms.granted_exclusive = terms.exclusive


def _expect_vacancy(queue: Queue, exclusive: bool) -> None:
    """Raise `BrokerError` if there may be no further consumer, or none that is to be alone."""
    others = 0
    for consumer in queue.consumers:
        if not consumer.copies:
            others += 1
            exclusive = exclusive or consumer.exclusive
    if others > 0 and exclusive:
        raise BrokerError(
            "amqp:resource-locked", f"{queue.address!r} has a consumer, and one is to be alone"
        )
    most = queue.policy.max_consumers
    if most and others >= most:
        raise BrokerError(
            "amqp:resource-limit-exceeded", f"{queue.address!r} has {most} consumers already"
        )


def welcome(queue: Queue, consumer: Consumer) -> None:
    """Seat a consumer that is new, or let it wait until one at a time comes to it."""
    if not queue.policy.single_active:
        _seat(queue, consumer)
    elif queue.active is None:
        _activate_next(queue)


def leave(queue: Queue, consumer: Consumer) -> None:
    """The consumer, which is none of the queue's any more, gives up its place."""
    _unseat(queue, consumer)
    consumer.ready = False
    if queue.active is consumer:
        queue.active = None
        _activate_next(queue)


def reseat(queue: Queue) -> None:
    """Seat those who are there as the policy has it now."""
    for consumer in queue.consumers:
        _unseat(queue, consumer)
    queue.active = None
    if queue.policy.single_active:
        _activate_next(queue)
        return
    for consumer in queue.consumers:
        if not consumer.copies:
            _seat(queue, consumer)


def _activate_next(queue: Queue) -> None:
    """Serve the one of highest priority, of these the one that came first."""
    best: Consumer | None = None
    if queue.deleted:
        return
    for consumer in queue.consumers:
        if not consumer.copies and (best is None or consumer.priority > best.priority):
            best = consumer
    queue.active = best
    if best is not None:
        _seat(queue, best)
        queue.touch()


def _seat(queue: Queue, consumer: Consumer) -> None:
    """Give the consumer a place in a view and a crew."""
    view = _view_of(queue, consumer)
    crew: Crew | None = None
    for other in view.crews:
        if other.priority == consumer.priority:
            crew = other
    if crew is None:
        crew = Crew(view, consumer.priority)
        at: i64 = 0
        while at < len(queue.crews) and queue.crews[at].priority >= crew.priority:
            at += 1
        queue.crews.insert(at, crew)
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


def _view_of(queue: Queue, consumer: Consumer) -> View:
    filter = consumer.filter
    if filter is None:
        return queue.plain
    for view in queue.views:
        if view.filter is not None and view.filter.key == filter.key:
            return view
    view = View(queue, filter)
    queue.views.append(view)
    for lane in queue.lanes:
        view.cursors.append(new_cursor(queue, lane, view))
    return view


def _unseat(queue: Queue, consumer: Consumer) -> None:
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
        queue.crews.remove(crew)
        view.crews.remove(crew)
    if not view.crews:
        _abandon(queue, view)
    groups = queue.groups
    if groups is not None:
        for group in groups.owned_by(consumer):
            groups.release(group)
            offer_waiting(queue, group)


def _abandon(queue: Queue, view: View) -> None:
    """Nobody has this view any more."""
    if view.filter is not None:
        queue.views.remove(view)
        queue.plain.evaluations += view.evaluations
        for cursor in view.cursors:
            others = cursor.lane.others
            if others is not None:
                others.remove(cursor)
                if not others:
                    cursor.lane.others = None
        return
    for _, entry in view.aside:
        if entry.state == AVAILABLE:
            push(view.returned, entry, queue.available)
    view.aside = []


def exclude(queue: Queue, consumer: Consumer, entry: Entry) -> None:
    """Keep the message of an entry from this consumer from now on."""
    entry.exclude(consumer.id)
    excluded = entry.excluded
    if excluded is not None and len(excluded) > 2 * len(queue.consumers) + _SLACK:
        # Most of them are gone, and nobody has their numbers again.
        entry.excluded = {one.id for one in queue.consumers if one.id in excluded}


def new_lane(queue: Queue, level: i64) -> Lane:
    """The lane of a level that had none; every view has a cursor in it."""
    lane = Lane(level)
    at: i64 = 0
    while at < len(queue.lanes) and queue.lanes[at].level > level:
        at += 1
    queue.lanes.insert(at, lane)
    for view in queue.views:
        view.cursors.insert(at, new_cursor(queue, lane, view))
    return lane


def new_cursor(queue: Queue, lane: Lane, view: View) -> Cursor:
    """Where a view begins in a lane; made known to the lane."""
    if view.filter is None:
        return lane.plain
    cursor = Cursor(lane)
    if lane.others is None:
        lane.others = [cursor]
    else:
        lane.others.append(cursor)
    return cursor


def _rank_of(record: tuple[int, Entry]) -> int:
    return record[0]
