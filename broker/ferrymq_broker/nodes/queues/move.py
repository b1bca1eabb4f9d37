"""Moving messages from a queue to another node, by management."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, DEFERRED
from ferrymq_broker.nodes.message import BrokerMessage, derive
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import Refusal
from ferrymq_broker.nodes.outgoing_header import delivered_before
from ferrymq_broker.nodes.queues.lifecycle.dead_letters import PATH
from ferrymq_broker.nodes.queues.lifecycle.schedule import DELIVERY_DELAY
from ferrymq_broker.nodes.sections import section_end
from ferrymq_types.messaging import (
    MessageAnnotations,
    encode_header,
    encode_message_annotations,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.node import Agenda, Node
    from ferrymq_broker.nodes.queues.entries import QueueEntries
    from ferrymq_broker.nodes.queues.lifecycle.lifecycle import MessageLifecycle


# How many messages are moved in one step.
_MOVED: Final = 100


def move(
    entries: QueueEntries, lifecycle: MessageLifecycle, target: Node, count: int
) -> Generator[None, None, tuple[int, Refusal | None]]:
    """Publish up to `count` messages that no consumer holds to `target`, in order, and drop them
    here.

    Returns how many were moved, and the refusal of `target`, if any. The remaining time to live
    stays the same, and so do the delivery counts in the headers (AMQP 1.0 §3.2.1).
    """
    moved = 0
    for turn, chosen in enumerate(entries.select_available(count), 1):
        if turn % _MOVED == 0:
            # Other clients are served in between.
            yield
        done, refusal = move_entry(entries, lifecycle, chosen, target)
        if refusal is not None:
            return moved, refusal
        if done:
            moved += 1
    return moved, None


def move_entry(
    entries: QueueEntries,
    lifecycle: MessageLifecycle,
    chosen: Entry,
    target: Node,
    requeues: bool = False,
) -> tuple[bool, Refusal | None]:
    """Publish the message of an entry to `target` and drop it here, both in one batch of the store.

    Return whether it was moved, and the refusal of `target`, if any. Without a refusal, a message
    that is not moved has left meanwhile or cannot be read. With `requeues` a dead letter begins a
    new path (`dead_letters.PATH`).
    """
    # Publishing may drop other messages of this same queue.
    if chosen.state != AVAILABLE and chosen.state != DEFERRED:
        return False, None
    if chosen.expires != 0 and entries.agenda.left(chosen.expires) <= 0:
        lifecycle.expired(chosen)
        return False, None
    if chosen.is_out():
        if chosen.state == DEFERRED and entries.read_message(chosen) is None:
            return False, None
        if not entries.page_in(chosen):
            return False, None
    if target.room() <= 0:
        # No room is reserved for moved messages.
        return False, Refusal(
            "amqp:resource-limit-exceeded",
            f"{target.address[:200]!r} is full; consume from it or raise its limits",
        )
    entries.agenda.moving = True
    try:
        refusal = target.publish(_with_time_left(chosen, entries.agenda, requeues))
    finally:
        entries.agenda.moving = False
    if refusal is not None:
        return False, refusal
    if chosen.state == DEFERRED:
        entries.undefer(chosen)
    if chosen.state == AVAILABLE:
        entries.drop(chosen)
    if target.room() < target.pledged():
        narrow(target)
    return True, None


def _with_time_left(entry: Entry, agenda: Agenda, requeues: bool) -> BrokerMessage:
    """Return the message of the entry for another queue: its ttl and its deliveries continue, a
    delay does not begin again. With `requeues` it forgets the path of its deaths."""
    message = entry.message
    if entry.attempts > 0:
        message = delivered_before(message, i64(entry.failures))
    if message.opaque:
        return message
    left: i64 = message.ttl
    # A moment comes from the ttl of the message or of the queue; a date is in the message itself.
    for moment in (entry.expires, entry.expires_too):
        if moment > 0:
            rest = agenda.left(moment)
            if left < 0 or rest < left:
                left = rest
    if left == message.ttl and not message.special and not requeues:
        return message
    annotations = view_of(message).message_annotations
    dropped = [DELIVERY_DELAY] if DELIVERY_DELAY in annotations else []
    if requeues and PATH in annotations:
        dropped.append(PATH)
    if left == message.ttl and not dropped:
        return message
    payload = message.payload
    pos = message.header_end
    w = BytesWriter()
    if left == message.ttl:
        w.write(payload[:pos])
    else:
        header = message.header()
        header.ttl = left
        encode_header(w, header)
    header_end = len(w)
    if dropped:
        kept = dict(annotations)
        for key in dropped:
            del kept[key]
        encode_message_annotations(w, MessageAnnotations(value=kept))
        pos = section_end(payload, pos)
    w.write(payload[pos:])
    moved = derive(message, w.getvalue(), header_end)
    moved.ttl = left
    moved.special = True
    return moved
