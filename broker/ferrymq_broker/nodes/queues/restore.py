"""A queue as it was, from what `storing` has written; nothing is written on the way.

    restore_queue(queue, id, fields)              # what describe_stored gave
    for each entry, in order: restore_entry(...)    # or restore_run, for those of a run
    for each message that is to come: restore_scheduled(...)
    for each identity, in order: restore_identity(...)
    finish(queue)

What consumers held is available again, and counts as delivered before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i32, i64

from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.paging.pager import page_in
from ferrymq_broker.nodes.queues.persistence import take_state

if TYPE_CHECKING:
    from ferrymq_broker.nodes.message import BrokerMessage
    from ferrymq_broker.nodes.queues.disk_runs import DiskRun
    from ferrymq_broker.nodes.queues.queue import Queue


def describe_stored(queue: Queue) -> dict[str, object]:
    """What is to be known of the queue beside its policy."""
    policy_history = queue.lifecycle.policy_history
    return {} if policy_history is None else policy_history.fields()


def restore_queue(queue: Queue, id: i64, fields: dict[str, object]) -> None:
    """The queue, which is new, was stored with this id, and `describe_stored`.

    Raises `StoreDamaged`.
    """
    queue.agenda.changes.has_id(id)
    queue.store_id = id
    if "unkeyed" in fields or "ttls" in fields:
        _count_from(queue, queue.lifecycle.restore_policy_history(fields))


def _count_from(queue: Queue, sequence: i64) -> None:
    """Leave out messages up to this sequence: they came before the broker was started."""
    if sequence > queue.published:
        queue.published = sequence
        queue.recovered = sequence


def restore_entry(
    queue: Queue,
    sequence: i64,
    level: i64,
    time: i64,
    expires: bool,
    message: BrokerMessage,
    size: i64,
    state: bytes,
) -> None:
    """Append an entry, after all those of lower sequences. `time` is when it came or, if so,
    `expires`. `size` is that of the payload of the message, which may have left memory again since
    another entry had it. `state` is the value of its `STATE`, empty if it has none."""
    entry = Entry(message, sequence, level)
    entry.stored = True
    # Perhaps somebody has had it.
    entry.attempts = 1
    take_state(entry, state)
    entry.size = i32(size)
    queue.priority_level_of(level).append(entry)
    _count_from(queue, sequence)
    queue.available += 1
    queue.bytes += size
    message.holders += 1
    if message.holders == 1:
        queue.agenda.held += size
    groups = queue.groups
    watched = (
        queue.guarded or message.special or expires or queue.lifecycle.policy_history is not None
    )
    if (watched or groups is not None) and entry.is_out():
        # What follows may read the message.
        page_in(queue, entry)
    if groups is not None:
        groups.join(entry)
    if watched:
        queue.lifecycle.restore_entry(entry, time, expires)
    pager = queue.agenda.pager
    if pager is not None:
        pager.leave_restored(queue, entry)


def is_indifferent(queue: Queue) -> bool:
    """Whether the queue need not see plain messages to have them as entries."""
    return (
        queue.groups is None
        and queue.lifecycle.policy_history is None
        and queue.policy.message_ttl == 0
        and not queue.policy.last_value_key
    )


def can_rest(queue: Queue) -> bool:
    """Whether entries of the queue can be restored without their messages."""
    pager = queue.agenda.pager
    return pager is not None and queue.agenda.held > pager.low and is_indifferent(queue)


def restore_unread(
    queue: Queue, sequence: i64, level: i64, size: i64, state: bytes, origin: i64
) -> None:
    """Append an entry as `restore_entry` does, of a queue that `can_rest`; its message, with a
    payload of this size, is plain and stays on disk."""
    pager = queue.agenda.pager
    assert pager is not None
    entry = Entry(pager.blank_of(origin), sequence, level)
    entry.stored = True
    entry.attempts = 1
    take_state(entry, state)
    entry.size = i32(size)
    queue.priority_level_of(level).append(entry)
    _count_from(queue, sequence)
    queue.available += 1
    queue.bytes += size
    pager.leave_unread(queue, entry)


def restore_run(queue: Queue, level: i64, run: DiskRun) -> None:
    """Append messages that stay on disk, of a queue that `is_indifferent`, after all those of the
    level with lower sequences."""
    pager = queue.agenda.pager
    assert pager is not None
    pager.leave_run(queue, queue.priority_level_of(level), run)
    queue.available += run.count()
    queue.bytes += run.bytes
    _count_from(queue, run.sequence(run.end - 1))


def restore_scheduled(
    queue: Queue, sequence: i64, due: i64, message: BrokerMessage, size: i64
) -> None:
    """Keep a message that is to come at `due`, with a payload of this size."""
    queue.lifecycle.restore_scheduled(sequence, due, message, size)


def restore_identity(queue: Queue, number: i64, time: i64, identity: object) -> bool:
    """A message came at `time`, known by this; False if the queue does not care any more."""
    return queue.lifecycle.restore_identity(number, time, identity)


def finish(queue: Queue) -> None:
    """All is there: what was replaced while a consumer held it goes. Changes are written again."""
    paging = queue.paging
    if paging is not None:
        # Lanes have come side by side.
        paging.safe = paging.restored = queue.recovered
    queue.lifecycle.drop_replaced()
    queue.touch()
