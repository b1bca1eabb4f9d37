"""What has to be true of a broker at rest, whatever its clients have done before.

The checks walk the lists, heaps and counters of every node from the inside: what the figures say
must be what is there, nothing may lie where nobody will ever look, and nobody may wait for what he
could have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.durable_links.source import SourceTerminus
from ferrymq_broker.connections.producer_link import ProducerLink
from ferrymq_broker.nodes.consumer import Consumer
from ferrymq_broker.nodes.entry import ACQUIRED, AVAILABLE, Entry
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.node import BOUNDLESS, Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.chunk_reader import ChunkStreamReader
from ferrymq_broker.nodes.streams.partition_log import PartitionLog
from ferrymq_broker.nodes.streams.stored_log import StoredLog
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from tests.broker.chaos.reading import check_gathering, check_stream


def all_queues(broker: Broker) -> list[Queue]:
    """The queues under addresses of their own and those of subscriptions."""
    queues: list[Queue] = []
    for space in broker.spaces.values():
        for node in space.nodes.values():
            if isinstance(node, Queue):
                queues.append(node)
            elif isinstance(node, Topic):
                queues.extend(subscription.queue for subscription in node.subscriptions())
    return queues


def entries_of(queue: Queue) -> list[Entry]:
    """Everything in the queue, in the order of its lanes; these are found to be in order."""
    found: list[Entry] = []
    levels = [priority_level.level for priority_level in queue.entries.priority_levels]
    assert levels == sorted(set(levels), reverse=True), "lanes out of order"
    for priority_level in queue.entries.priority_levels:
        before: Entry | None = None
        entry = priority_level.first
        while entry is not None:
            assert entry.prev is before, "a lane that is not the same both ways"
            assert entry.level == priority_level.level
            assert entry.state in (AVAILABLE, ACQUIRED), "what is gone lies in a lane"
            assert before is None or before.sequence < entry.sequence
            found.append(entry)
            before = entry
            entry = entry.next
        assert priority_level.last is before
    return found


def check(broker: Broker) -> None:
    """All of it."""
    assert not broker.agenda.nodes and not broker.output.dirty, "the pass is not over"
    held: dict[int, BrokerMessage] = {}
    size = 0
    readers: list[ChunkStreamReader] = []
    for queue in all_queues(broker):
        check_queue(queue, _stand_ins(broker, queue))
        for entry in entries_of(queue):
            held[id(entry.message)] = entry.message
        for scheduled in queue.lifecycle.list_scheduled():
            held[id(scheduled.message)] = scheduled.message
    holders: Counter[int] = Counter()
    for queue in all_queues(broker):
        holders.update(id(entry.message) for entry in entries_of(queue))
        holders.update(id(s.message) for s in queue.lifecycle.list_scheduled())
    for space in broker.spaces.values():
        for node in space.nodes.values():
            check_node(node)
            if isinstance(node, Stream):
                size += sum(_in_memory(partition.log) for partition in node.partitions)
                readers += check_stream(node)
    size += check_gathering(broker.agenda.chunk_budget, readers)
    for key, message in held.items():
        assert message.holders == holders[key], "holders of a message"
    size += sum(len(message.payload) for message in held.values())
    assert broker.agenda.held == size, f"held {broker.agenda.held}, found {size}"


def _in_memory(log: PartitionLog) -> int:
    """Bytes of the records that are not on disk only."""
    return int(log.memory + log.pages.bytes if isinstance(log, StoredLog) else log.bytes)


def check_node(node: Node) -> None:
    """What holds for nodes of every kind."""
    assert not node.deleted, "a deleted node has an address"
    assert not node.dirty
    promised = 0
    for producer in node.producers:
        assert isinstance(producer, ProducerLink)
        assert not producer.closed
        promised += producer._promised
    assert node.promised == promised, f"{node.promised} are promised, links have {promised}"
    assert node.links >= len(node.producers)
    for waiting_for_room in node.waiting_for_room or ():
        assert not isinstance(waiting_for_room, ProducerLink) or not waiting_for_room.closed
    if not isinstance(node, Queue):
        # To ask a node in front of others is to wait for these.
        return
    room = node.room() if node.producers else BOUNDLESS
    for producer in node.producers:
        assert isinstance(producer, ProducerLink)
        idle = producer.output.blocked or producer.parts.shared.credit.withheld
        if not idle and producer.link.credit == 0 and producer.link.usable:
            assert room <= node.pledged(), f"{node!r} has room, and a sender no credit"


def _stand_ins(broker: Broker, queue: Queue) -> list[Consumer]:
    """What holds messages in place of links that are gone."""
    return [
        terminus.holder
        for terminus in broker.shared.termini._by_key.values()
        if isinstance(terminus, SourceTerminus)
        and terminus.node is queue
        and terminus.holder not in queue.consumers
    ]


def check_queue(queue: Queue, stand_ins: Sequence[Consumer] = ()) -> None:
    """One queue from the inside."""
    entries = entries_of(queue)
    by_id = {id(entry): entry for entry in entries}
    available = [entry for entry in entries if entry.state == AVAILABLE]
    assert queue.available == len(available)
    assert queue.acquired == len(entries) - len(available)
    assert queue.bytes == sum(len(entry.message.payload) for entry in entries)
    assert len({id(c) for c in queue.consumers}) == len(queue.consumers)
    _check_held(queue, by_id, stand_ins)
    _check_places(queue, by_id, available)
    _check_seats(queue)
    _check_groups(queue, entries)
    _check_lifecycle(queue, by_id, available)
    _check_nobody_waits(queue, available)


def _check_held(queue: Queue, by_id: dict[int, Entry], stand_ins: Sequence[Consumer]) -> None:
    seen: set[int] = set()
    for consumer in (*queue.consumers, *stand_ins):
        count = 0
        before: Entry | None = None
        entry = consumer.first_held()
        while entry is not None:
            assert entry.held_prev is before
            assert entry.state == ACQUIRED and id(entry) in by_id
            assert id(entry) not in seen, "two consumers hold one message"
            seen.add(id(entry))
            count += 1
            before = entry
            entry = entry.held_next
        assert consumer.held == count
        assert not consumer.copies or count == 0
    assert queue.acquired == len(seen), "a message is held by nobody"
    assert (
        queue.dispatcher._held_back == 0 and queue.entries.purges == 0
    ), "nothing is pending, and all wait for it"


def _check_places(queue: Queue, by_id: dict[int, Entry], available: list[Entry]) -> None:
    """Every available message is where each view that wants it will find it."""
    assert queue.registry.views[""] is queue.registry.plain
    for view in queue.registry.views.values():
        assert len(view.cursors) == len(queue.entries.priority_levels)
        places: set[int] = {id(e) for _, e in view.returned} | {id(e) for _, e in view.aside}
        for tier in view.tiers:
            for consumer in tier.members:
                places |= {id(e) for _, e in consumer.own or ()}
        for cursor, priority_level in zip(view.cursors, queue.entries.priority_levels, strict=True):
            assert cursor.priority_level is priority_level
            assert cursor.next is None or id(cursor.next) in by_id, "a cursor points nowhere"
        at = {
            priority_level.level: cursor.next
            for cursor, priority_level in zip(
                view.cursors, queue.entries.priority_levels, strict=True
            )
        }
        for entry in available:
            next = at[entry.level]
            if next is not None and next.sequence <= entry.sequence:
                continue
            if id(entry) in places or (
                entry.group is not None and any(e is entry for e in entry.group.waiting)
            ):
                continue
            assert view.filter is not None and not view.filter.matches(
                entry.message
            ), f"{entry.sequence} of {queue!r} is where nobody looks"


def _check_seats(queue: Queue) -> None:
    members: list[Consumer] = []
    for tier in queue.registry.tiers:
        assert tier.members and tier in tier.view.tiers
        assert tier.view in queue.registry.views.values()
        ready = tier.ready()
        assert set(tier.eager) <= set(ready) <= set(tier.members)
        assert tier.count == len(ready) == len(set(ready))
        assert tier.turn is None or tier.turn in ready
        for consumer in tier.members:
            assert consumer.tier is tier
            assert consumer.ready == (consumer in ready)
            assert (consumer in tier.eager) <= (consumer.own is not None)
        members += tier.members
    assert len(members) == len(set(members))
    takers = [consumer for consumer in queue.consumers if not consumer.copies]
    assert queue.registry.takers == len(takers)
    assert queue.registry.exclusive_consumers == len(
        [consumer for consumer in takers if consumer.exclusive]
    )
    if queue.policy.single_active:
        assert members == ([] if queue.registry.active is None else [queue.registry.active])
        assert (queue.registry.active is None) == (not takers)
    else:
        assert set(members) == set(takers)
    for view in queue.registry.views.values():
        assert view.tiers or view is queue.registry.plain, "a view of nobody"


def _check_groups(queue: Queue, entries: list[Entry]) -> None:
    groups = queue.entries.groups
    if groups is None:
        return
    counts = Counter(id(entry.group) for entry in entries if entry.group is not None)
    known = {id(group): group for group in groups._groups.values()}
    assert set(counts) == set(known), "groups that are not those of the messages"
    for key, group in known.items():
        assert group.count == counts[key]
        left = group.left
        assert left is None or (left and all(entry.state == ACQUIRED for entry in left))
        consumer = group.consumer
        if consumer is not None:
            assert consumer in queue.consumers, "a group of a consumer who has left"
            assert groups._owned[consumer.id][group.id] is group
    for owned in groups._owned.values():
        assert owned
        for group in owned.values():
            assert id(group) in known and group.consumer is not None


def _check_lifecycle(queue: Queue, by_id: dict[int, Entry], available: list[Entry]) -> None:
    lifecycle = queue.lifecycle
    agenda = queue.agenda
    expiry = lifecycle._expiry
    lines = [] if expiry is None else [(expiry._times, agenda.now), (expiry._dates, agenda.wall)]
    waiting: dict[int, int] = {}
    for line, now in lines:
        if line is None:
            continue
        heap = line._heap
        records = [(each.due, each.order, each.item) for each in (*heap._line, *heap._swept_line)]
        records += [*heap._heap, *heap._swept]
        for due, _, expiring in records:
            if expiring.state == AVAILABLE:
                assert 0 < line.due <= due, "nobody will look"
            waiting[id(expiring)] = min(int(due - now), waiting.get(id(expiring), BOUNDLESS))
        live = sum(1 for _, _, expiring in records if id(expiring) in by_id)
        assert len(records) <= 3 * live + 130, "entries that are gone"
    for entry in available:
        if entry.expires != 0:
            assert id(entry) in waiting, "nobody knows that it expires"
            assert waiting[id(entry)] <= agenda.left(entry.expires), "it expires earlier"
    schedule = lifecycle._schedule
    if schedule is not None:
        listed = schedule.listed()
        assert schedule.count == len(listed)
        assert schedule.bytes == sum(len(s.message.payload) for s in listed)
        for one in listed:
            coming = schedule._delays if one.due > 0 else schedule._dates
            assert 0 < coming.due <= abs(one.due), "nobody will let it in"
    values = lifecycle._last_values
    if values is not None:
        sequences = {entry.sequence: entry for entry in by_id.values()}
        assert set(values._values) <= set(sequences), "values of what is gone"
        for newest in values._newest.values():
            assert id(newest) in by_id, "the newest is gone"
        lying = Counter(
            repr(value)
            for sequence, value in values._values.items()
            if sequences[sequence].state == AVAILABLE
        )
        assert all(count == 1 for count in lying.values()), "two last values"


def _check_nobody_waits(queue: Queue, available: list[Entry]) -> None:
    """Whoever could have a message now has got it."""
    for tier in queue.registry.tiers:
        for consumer in tier.members:
            assert isinstance(consumer, ConsumerLink)
            link = consumer.link
            open = link.session.outgoing.remote_window > 0
            waits = link.parked > link.overdrawn
            assert not (waits and open) or consumer.output.blocked, "a message waits for nothing"
            if link.credit <= 0 or not link.usable or link.parked > 0 or consumer.output.blocked:
                continue
            if not open:
                continue
            assert consumer.ready, "a consumer with credit is taken for one without"
            for entry in available:
                if entry.group is not None:
                    continue
                if entry.excluded is not None and consumer.is_among(entry.excluded):
                    continue
                filter = consumer.filter
                assert filter is not None and not filter.matches(
                    entry.message
                ), f"{entry.sequence} of {queue!r} could be delivered"
    assert not [c for c in queue.dispatcher.draining if isinstance(c, ConsumerLink) and c.closed]
