"""The broker that would be there if this one were stopped now: it has to be the same.

Whatever changes in memory and is to outlive the process has to be written as it changes. So when
nothing is under way to the disk, a broker made of the records has what this one has.
"""

from __future__ import annotations

from librt.strings import read_i32_be, read_i64_be

from ferrymq_broker.broker import Broker
from ferrymq_broker.config.nodes import policy_attributes
from ferrymq_broker.connections.durable_links.source import SourceTerminus
from ferrymq_broker.connections.durable_links.target import TargetTerminus
from ferrymq_broker.connections.durable_links.terminus import Terminus
from ferrymq_broker.management.nodes import policy_of
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.recovery.recover import recover
from ferrymq_broker.store.changes import DROP_RANGE, PUT
from ferrymq_broker.store.tables import (
    BODY,
    DELIVERY,
    ENTRY,
    HELD,
    HOLD,
    NAMES,
    PARTITION,
    RECORD,
    STATE,
    SUBSCRIPTION,
    TERMINUS,
)
from tests.broker.chaos.consistency import all_queues
from tests.broker.harness import EPOCH, Network
from tests.broker.stores import Key, ManualStore

Portrait = dict[str, object]


def mirror(net: Network) -> Broker:
    """A broker made of the records of the other one's store, which stay as they are."""
    store = ManualStore()
    assert net.store is not None and net.store.batch is None, "something is under way"
    store.records = dict(net.store.records)
    store.batches = net.store.batches
    epoch = EPOCH + net.stepped
    broker = Broker(lambda call: None, lambda due: None, epoch, max_nodes=net.max_nodes)
    broker.begin_pass(net.now)
    store.open(broker.agenda.changes, lambda: None)
    recover(broker, store)
    return broker


def compare(net: Network) -> None:
    """The broker is as its store says. Raises `AssertionError`."""
    assert net.store is not None
    # What time things have left, only the wall clock tells those who come after.
    timed = net.steps == 0
    there = portrait(net.broker, timed)
    other = mirror(net)
    found = portrait(other, timed)
    assert found.keys() == there.keys(), f"stored {sorted(found)}, there are {sorted(there)}"
    for name, was in there.items():
        assert found[name] == was, f"{name}: stored {found[name]}, in memory {was}"
    replacing = _replacing(net.broker)
    divided = _divided_anew(net.broker, other, timed)
    for kind, table, id in changes_of(b"".join(other.agenda.changes.close())):
        if table in (PARTITION, RECORD):
            fine = id in divided
        elif kind == PUT:
            # Time that begins to run.
            fine = table in (SUBSCRIPTION, TERMINUS)
        else:
            # What was replaced while somebody held it, and that he did.
            fine = table == BODY or (table in (ENTRY, STATE, DELIVERY) and id in replacing)
            fine = fine and kind != DROP_RANGE
        assert fine, f"records of {NAMES[table]} {id} that nothing has"
    bodies = {key[1] for key in net.store.records if key[0] == BODY}
    assert bodies == set(net.broker.agenda.bodies.values()), "bodies of nobody, or none"
    stored = {key for key in net.store.records if key[0] in (PARTITION, RECORD, HOLD, HELD)}
    known = _records_of_streams(net.broker)
    assert stored == known, f"records of nobody: {stored - known}, or none: {known - stored}"


def _replacing(broker: Broker) -> set[int]:
    """The ids of queues in which a message takes the place of another, and of termini of these."""
    queues = [q for q in all_queues(broker) if q.lifecycle._last_values is not None]
    return {int(queue.store_id) for queue in queues if queue.store_id != 0} | {
        int(terminus.store_id)
        for terminus in broker.shared.termini._by_key.values()
        if isinstance(terminus, SourceTerminus) and terminus.node in queues
    }


def _divided_anew(broker: Broker, other: Broker, timed: bool) -> set[int]:
    """The ids of partitions of which the other broker lets go more: its segments are others.

    No more than limits and holds say.
    """
    ids: set[int] = set()
    for address, node in broker.default.nodes.items():
        found = other.default.nodes.get(address)
        if not isinstance(node, Stream) or not isinstance(found, Stream):
            continue
        policy = node.policy
        for here, there in zip(node.partitions, found.partitions, strict=True):
            log = there.log
            if log.first == here.log.first:
                continue
            assert here.log.first < log.first <= there.held
            segment = here.find(log.first - 1)
            age = other.agenda.now - segment.times[log.first - 1 - segment.first]
            assert (
                0 < policy.max_records <= log.next - log.first
                or 0 < policy.max_bytes <= log.bytes
                or (policy.max_age > 0 and (not timed or policy.max_age <= age))
            ), f"{here}: the other broker lets go up to {log.first}"
            ids.add(int(here.store_id))
    return ids


def _records_of_streams(broker: Broker) -> set[Key]:
    """The keys of everything that streams have in the store."""
    keys: set[Key] = set()
    for node in broker.default.nodes.values():
        if not isinstance(node, Stream) or node.store_id == 0:
            continue
        for partition in node.partitions:
            log, id = partition.log, int(partition.store_id)
            keys.add((PARTITION, id, 0))
            keys |= {(RECORD, id, offset) for offset in range(log.first, log.next)}
        for hold in node.holds._holds.values():
            keys.add((HOLD, int(hold.id), 0))
            keys |= {(HELD, int(hold.id), number) for number in hold.offsets}
    return keys


def changes_of(batch: bytes) -> list[tuple[int, int, int]]:
    """The kinds, the tables and the ids of the changes of a batch."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(batch):
        kind = batch[at]
        found.append((kind, batch[at + 1], int(read_i64_be(batch, at + 2))))
        at += 18
        if kind == PUT:
            at += 8 + read_i32_be(batch, at)
        elif kind == DROP_RANGE:
            at += 8
    return found


def portrait(broker: Broker, timed: bool = True) -> Portrait:
    """All that is to outlive a broker; with the time that it has left, if that is asked for."""
    space = broker.default
    seen: Portrait = {"aliases": {name: space.aliases[name] for name in space._alias_ids}}
    for address, node in space.nodes.items():
        if node.store_id == 0:
            continue
        common = (node.kind, int(node.store_id), node.origin, policy_attributes(policy_of(node)))
        if isinstance(node, Queue):
            seen[address] = (common, _queue(node, timed))
        elif isinstance(node, Topic):
            seen[address] = common
            for one in node.subscriptions():
                if one.store_id != 0:
                    about = (one.key, one.shared, one.declared, one.expiry_policy, one.timeout)
                    seen[one.address] = (about, one.filters, _queue(one.queue, timed))
        elif isinstance(node, Exchange):
            seen[address] = (common, [one.describe() for one in node.bindings() if one.stored])
        elif isinstance(node, Stream):
            ends = [int(one.log.next) for one in node.partitions]
            seen[address] = (common, ends, node.incarnation, _holds(node))
    for terminus in broker.shared.termini.of(space.name):
        if terminus.store_id != 0:
            life = (int(terminus.durable), terminus.expiry_policy, int(terminus.timeout))
            seen[f"terminus {terminus.key}"] = (int(terminus.store_id), life, _unsettled(terminus))
    return seen


def _holds(stream: Stream) -> object:
    return [
        (hold.holder, int(hold.id), int(hold.since), hold.whole, sorted(hold.offsets.items()))
        for hold in sorted(stream.holds._holds.values(), key=lambda hold: hold.id)
    ]


def _unsettled(terminus: Terminus) -> object:
    if isinstance(terminus, SourceTerminus):
        held = [
            (tag, int(sent.number), int(sent.entry.sequence), sent.first, int(sent.left))
            for tag, sent in (
                *terminus.sent.items(),
                *((k[1], s) for k, s in terminus._lent.items()),
            )
            if sent.number != 0
        ]
        values = terminus.node.lifecycle._last_values if isinstance(terminus.node, Queue) else None
        # See below.
        return (int(terminus.node.store_id), [] if values is not None else sorted(held))
    assert isinstance(terminus, TargetTerminus)
    return sorted(
        (tag, int(one.number), one.outcome)
        for tag, one in terminus.known.items()
        if one.number != 0
    )


def _queue(queue: Queue, timed: bool) -> object:
    agenda = queue.agenda
    entries = []
    newest: dict[object, int] = {}
    values = queue.lifecycle._last_values
    for priority_level in queue.entries.priority_levels:
        entry = priority_level.first
        while entry is not None:
            if entry.stored:
                message = entry.message
                expires = 0 if entry.expires == 0 else 1
                # When the time of what a consumer holds was over, nobody needs to know.
                if expires and timed and agenda.left(entry.expires) > 0:
                    expires = agenda.date_of(entry.expires)
                facts = (entry.sequence, entry.level, entry.failures, expires)
                entries.append((facts, message.durable, message.special, message.payload))
                value = None if values is None else values._values.get(int(entry.sequence))
                if value is not None:
                    newest[value] = max(newest.get(value, 0), int(entry.sequence))
            entry = entry.next
    if values is not None:
        # What a consumer holds while a newer one has come does not come back.
        known = values._values
        entries = [
            one
            for one in entries
            if one[0][0] not in known or newest[known[one[0][0]]] == one[0][0]
        ]
    scheduled = [
        (one.sequence, agenda.date_of(one.due) if timed else 0, one.message.payload)
        for one in queue.lifecycle.list_scheduled()
        if one.stored
    ]
    if not timed:
        # Whose turn is next follows from the times that they have left.
        scheduled.sort()
    duplicates = queue.lifecycle._duplicates
    identities = [
        (agenda.date_of(moment) if timed else 0, identity, number)
        for moment, identity, number in ([] if duplicates is None else duplicates._order)
        if number != 0
    ]
    return sorted(entries), scheduled, identities
