"""Recovery of durable termini and their unsettled deliveries from the store.

The messages of leases are recovered along with those: both are held by somebody.
"""

from __future__ import annotations

from typing import final

from ferrymq_broker.broker import Broker
from ferrymq_broker.connections.durable_links.link_identity import LinkIdentity
from ferrymq_broker.connections.durable_links.records import (
    decode_outcome,
    decode_source,
    decode_target,
    read_tag,
)
from ferrymq_broker.connections.durable_links.source import SourceTerminus, UnsettledSend
from ferrymq_broker.connections.durable_links.target import TargetTerminus
from ferrymq_broker.connections.durable_links.terminus import Terminus
from ferrymq_broker.connections.outcomes import is_terminal
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.node import Agenda
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.recovery.leases import StoredLease, find_leases, restore_leases
from ferrymq_broker.recovery.recovered_state import Fields, RecoveredState
from ferrymq_broker.store.changes import LAST
from ferrymq_broker.store.map_values import decode_map
from ferrymq_broker.store.store import Store
from ferrymq_broker.store.tables import DELIVERY, TERMINUS

_POLICIES = ("link-detach", "session-end", "connection-close", "never")


@final
class _Wanted:
    """A stored delivery of a source."""

    __slots__ = ("terminus", "tag", "number", "sequence", "first", "time", "left")

    def __init__(
        self,
        terminus: SourceTerminus,
        tag: bytes,
        number: int,
        sequence: int,
        first: bool,
        time: int,
        left: int | None,
    ) -> None:
        self.terminus = terminus
        self.tag = tag
        self.number = number
        self.sequence = sequence
        self.first = first
        # Records of an earlier version have the time of sending, others the time that was left.
        self.time = time
        self.left = left


def recover_termini(broker: Broker, store: Store, found: RecoveredState) -> int:
    """Recover all termini, and all leases, and return the number of termini. Call it after the
    queues are recovered.

    The links of the termini are gone: their timeouts run from now on. Raises `StoreDamaged`.
    """
    termini: dict[int, Terminus] = {}
    for record in store.scan(TERMINUS):
        broker.agenda.changes.has_id(record.id)
        fields = Fields(f"terminus {record.id}", decode_map(record.value))
        terminus = _read(broker, found, record.id, fields)
        if terminus is not None:
            termini[record.id] = terminus
    _recover_deliveries(broker, store, found, termini, find_leases(broker, store, found))
    agenda = broker.agenda
    for terminus in termini.values():
        if terminus.expiry_policy != "never":
            # The time of the detach is unknown if the broker was killed.
            since = terminus.since or agenda.wall
            if since != terminus.since:
                terminus.since = since
                terminus.keep()
            broker.timers.set(terminus, agenda.moment_of(since) + terminus.timeout * 1000)
    return len(termini)


def _read(broker: Broker, found: RecoveredState, id: int, fields: Fields) -> Terminus | None:
    """Return a terminus; None if it is kept aside or dropped."""
    changes = broker.agenda.changes
    space = fields.text("space")
    if space not in broker.spaces:
        found.aside.add(id)
        log.warning(
            "a terminus of a virtual host that is not configured is kept aside", space=space
        )
        return None
    sends = fields.flag("sends")
    user = None if fields.map.get("user") is None else fields.text("user")
    key = (space, user, fields.text("container"), fields.text("link"), sends)
    told = fields.map.get("told")
    durable = fields.number("durable")
    # Records of earlier versions have no mode.
    mode = None if fields.map.get("mode") is None else fields.text("mode")
    policy = fields.text("expiry-policy")
    if policy not in _POLICIES:
        raise fields.wrong("expiry-policy")
    terminus: Terminus
    if sends:
        number = fields.number("queue")
        queue = found.queues.get(number)
        if queue is None:
            if number in found.aside:
                found.aside.add(id)
                return None
            log.warning("a terminus is dropped: its queue is gone", link=key[3], queue=number)
            changes.drop(TERMINUS, id, 0)
            changes.drop_range(DELIVERY, id, 0, LAST)
            found.aside.add(id)
            return None
        source = decode_source(told)
        identity = LinkIdentity(key, queue.address, durable, mode)
        sender = SourceTerminus(identity, broker.shared.termini, source, queue, id)
        sender.fresh = False
        sender.holds = fields.flag("holds")
        if is_terminal(source.default_outcome):
            sender.default = source.default_outcome
        terminus = sender
    else:
        target = decode_target(told)
        address = fields.map.get("address")
        if not isinstance(address, str):
            # A record of an earlier version has only the address that the client used.
            address = _meant_by(broker, space, target.address or "")
        identity = LinkIdentity(key, address, durable, mode)
        terminus = TargetTerminus(identity, broker.shared.termini, target)
    terminus.store_id = id
    terminus.lost = True
    terminus.since = fields.number("since")
    terminus.grant(policy, fields.number("timeout"))
    broker.shared.termini.add(terminus)
    return terminus


def _meant_by(broker: Broker, space: str, named: str) -> str:
    """Resolve the address that a client used; return the address itself if they form a cycle."""
    try:
        return broker.spaces[space].meant_by(named)
    except BrokerError:
        return named


def _recover_deliveries(
    broker: Broker,
    store: Store,
    found: RecoveredState,
    termini: dict[int, Terminus],
    leases: dict[Queue, list[StoredLease]],
) -> None:
    wanted: dict[Queue, list[_Wanted]] = {}
    for record in store.scan(DELIVERY):
        terminus = termini.get(record.id)
        if terminus is None:
            if record.id not in found.aside:
                broker.agenda.changes.drop(DELIVERY, record.id, record.number)
            continue
        fields = Fields(
            f"delivery {record.number} of terminus {record.id}", decode_map(record.value)
        )
        tag = read_tag(fields.map, record.id)
        if isinstance(terminus, TargetTerminus):
            terminus.restore(tag, record.number, decode_outcome(fields.map.get("state")))
        elif isinstance(terminus, SourceTerminus) and isinstance(terminus.node, Queue):
            left = fields.map.get("left")
            one = _Wanted(
                terminus,
                tag,
                record.number,
                fields.number("sequence"),
                fields.flag("first"),
                fields.number("time") if left is None else 0,
                None if left is None else fields.number("left"),
            )
            wanted.setdefault(terminus.node, []).append(one)
    for queue in {**wanted, **leases}:
        deliveries = wanted.get(queue, [])
        leased = leases.get(queue, [])
        sequences = {one.sequence for one in deliveries}
        for lease in leased:
            sequences.update(lease.sequences)
        held = queue.restorer().acquire(sequences)
        for one in deliveries:
            entry = held.pop(one.sequence, None)
            if entry is None:
                # The entry has left the queue in another way.
                broker.agenda.changes.drop(DELIVERY, one.terminus.store_id, one.number)
            else:
                one.terminus.restore(
                    one.tag,
                    UnsettledSend(one.number, entry, one.first, _left(broker.agenda, entry, one)),
                )
        if leased:
            restore_leases(queue, leased, held)


def _left(agenda: Agenda, entry: Entry, one: _Wanted) -> int:
    """Return how many milliseconds of the entry's time to live were left when it was sent."""
    if one.left is not None:
        return one.left
    if entry.expires == 0:
        return 0
    return int(agenda.left(entry.expires) + agenda.wall - one.time)
