"""What of a broker outlives it, for a look at both: the one there was and the one there is then."""

from __future__ import annotations

from ferrymq_broker.broker import Broker
from ferrymq_broker.nodes.consumer import OWNER
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from tests.broker.harness import Network

Picture = dict[str, object]


def picture(broker: Broker, delays: bool) -> Picture:
    """What is stored of queues, topics and exchanges in the default virtual host.

    Not their policies, which tests change behind the back of the virtual host. `delays`: with the
    times when what was delayed is due.
    """
    seen: Picture = {"aliases": dict(broker.default._alias_ids)}
    for address, node in broker.default.nodes.items():
        if node.store_id == 0:
            continue
        if isinstance(node, Queue):
            seen[address] = (node.origin, _queue(node, delays))
        elif isinstance(node, Topic):
            seen[address] = node.origin
            for one in node.subscriptions():
                if one.store_id != 0:
                    about = (one.key, one.shared, one.declared, one.expiry_policy, one.timeout)
                    seen[one.address] = (about, one.filters, _queue(one.queue, delays))
        elif isinstance(node, Exchange):
            seen[address] = [one.describe() for one in node.bindings() if one.stored]
    return seen


def _queue(queue: Queue, delays: bool) -> object:
    entries = []
    for priority_level in queue.entries.priority_levels:
        entry = priority_level.first
        while entry is not None:
            if entry.stored:
                message = entry.message
                facts = (entry.sequence, entry.level, entry.size, entry.failures, entry.expires)
                lasting = {one for one in entry.excluded or () if one <= OWNER}
                kept_from = sorted(lasting & queue.agenda.remembered)
                entries.append(
                    (facts, kept_from, message.durable, message.priority, message.special)
                )
            entry = entry.next
    scheduled = [
        (one.sequence, one.due if delays else None, one.message.payload)
        for one in queue.lifecycle.list_scheduled()
        if one.stored
    ]
    if queue.policy.last_value_key:
        # What a consumer held may have been replaced.
        entries = []
    return sorted(entries), scheduled


def check(net: Network) -> None:
    """Stop the broker and start it: what outlives it is what was there."""
    store = net.store
    assert store is not None
    store.release()
    net.broker.begin_pass(net.now)
    net.finish()
    # A delay is stored as a date: a clock that was set has moved it.
    before = picture(net.broker, not net.steps)
    net._start(None)
    after = picture(net.broker, not net.steps)
    for address, was in before.items():
        assert after.get(address) == was, address
    assert after.keys() == before.keys()
