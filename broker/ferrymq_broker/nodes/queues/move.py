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
        # Publishing may drop other messages of this same queue.
        if chosen.state != AVAILABLE and chosen.state != DEFERRED:
            continue
        if chosen.expires != 0 and entries.agenda.left(chosen.expires) <= 0:
            lifecycle.expired(chosen)
            continue
        if chosen.is_out():
            if chosen.state == DEFERRED and entries.read_message(chosen) is None:
                continue
            if not entries.page_in(chosen):
                continue
        if target.room() <= 0:
            # No room is reserved for moved messages.
            return moved, Refusal(
                "amqp:resource-limit-exceeded",
                f"{target.address[:200]!r} is full; consume from it or raise its limits",
            )
        entries.agenda.moving = True
        try:
            refusal = target.publish(_with_time_left(chosen, entries.agenda))
        finally:
            entries.agenda.moving = False
        if refusal is not None:
            return moved, refusal
        if chosen.state == DEFERRED:
            entries.undefer(chosen)
        if chosen.state == AVAILABLE:
            entries.drop(chosen)
        moved += 1
        if target.room() < target.pledged():
            narrow(target)
    return moved, None


def _with_time_left(entry: Entry, agenda: Agenda) -> BrokerMessage:
    """Return the message of the entry for another queue: its ttl and its deliveries continue, a
    delay does not begin again."""
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
    if left == message.ttl and not message.special:
        return message
    annotations = view_of(message).message_annotations
    delayed = DELIVERY_DELAY in annotations
    if left == message.ttl and not delayed:
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
    if delayed:
        kept = dict(annotations)
        del kept[DELIVERY_DELAY]
        encode_message_annotations(w, MessageAnnotations(value=kept))
        pos = section_end(payload, pos)
    w.write(payload[pos:])
    moved = derive(message, w.getvalue(), header_end)
    moved.ttl = left
    moved.special = True
    return moved
