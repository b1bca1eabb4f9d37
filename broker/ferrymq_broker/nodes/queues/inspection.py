"""What management and metrics may see of a queue, and do to what is in it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from ferrymq_broker.nodes.entry import AVAILABLE, RUN, Entry
from ferrymq_broker.nodes.message import BrokerMessage, derive
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import Refusal
from ferrymq_broker.nodes.outgoing_header import delivered_before
from ferrymq_broker.nodes.paging.pager import page_in
from ferrymq_broker.nodes.queues.lifecycle.schedule import DELIVERY_DELAY
from ferrymq_broker.nodes.sections import section_end
from ferrymq_types.messaging import (
    MessageAnnotations,
    encode_header,
    encode_message_annotations,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.node import Agenda, Node
    from ferrymq_broker.nodes.queues.queue import Queue


# Messages that are moved in one step.
_MOVED: Final = 100


def describe_queue(queue: Queue) -> dict[str, object]:
    """The settings and figures of a queue by their public names."""
    described: dict[str, object] = {"name": queue.address, "type": queue.kind}
    policy = queue.policy
    for setting in fields(policy):
        described[setting.name.replace("_", "-")] = getattr(policy, setting.name)
    described.update(figures_of(queue))
    return described


def figures_of(queue: Queue) -> dict[str, int]:
    """What a queue counts, by its public names."""
    paging = queue.paging
    figures: dict[str, int] = {
        "messages": int(queue.message_count()),
        "available": int(queue.available),
        "acquired": int(queue.acquired),
        "bytes": int(queue.bytes),
        "paged-out": 0 if paging is None else int(paging.count),
        "consumers": len(queue.consumers),
        "producers": len(queue.producers),
        "scheduled": int(queue.lifecycle.scheduled()),
        "excess": int(queue.lifecycle.excess()),
        "excess-bytes": int(queue.lifecycle.excess_bytes()),
        "filter-evaluations": int(queue.evaluations()),
    }
    figures.update(totals_of(queue))
    return figures


def totals_of(queue: Queue) -> dict[str, int]:
    """Return the counters of a queue since the broker was started, by their public names."""
    totals: dict[str, int] = {
        "published": int(queue.published - queue.recovered),
        "delivered": int(queue.delivered),
        "accepted": int(queue.accepted),
        "released": int(queue.released),
        "modified": int(queue.modified),
        "rejected": int(queue.rejected),
        "declined": int(queue.declined),
    }
    totals.update(queue.lifecycle.totals())
    return totals


def available_to(queue: Queue, consumer: Consumer) -> i64:
    """Count what is available, if the consumer or browser may still be offered some of it."""
    browser = queue.browsers.get(consumer)
    tier = consumer.tier
    if browser is not None:
        more = browser.has_more(queue)
    else:
        more = consumer.own is not None or (tier is not None and tier.view.has_more())
    return queue.available if more else 0


def peek(queue: Queue, count: i64, from_sequence: i64 = 0) -> list[Entry]:
    """Up to `count` messages in the order they would be delivered in, held ones among them.

    Those with a sequence below `from_sequence` are left out. Nothing changes.
    """
    found: list[Entry] = []
    for priority_level in queue.priority_levels:
        entry = priority_level.first
        while entry is not None and len(found) < count:
            if entry.state == RUN and priority_level.runs is not None:
                runs = priority_level.runs
                run = runs.of(entry)
                index = run.begin
                while index < run.end and len(found) < count:
                    if run.sequence(index) >= from_sequence:
                        found.append(runs.stand_in(run, index))
                    index += 1
            elif entry.sequence >= from_sequence:
                found.append(entry)
            entry = entry.next
    return found


def move(
    queue: Queue, target: Node, count: int
) -> Generator[None, None, tuple[int, Refusal | None]]:
    """Publish up to `count` messages that nobody holds to `target`, in order, and drop them here.

    Answers how many were moved, and why it ended if `target` did not want one. The time that they
    have left stays the same, and so does what their headers tell of deliveries (AMQP 1.0 §3.2.1).
    """
    entries: list[Entry] = []
    for priority_level in queue.priority_levels:
        entry = priority_level.first
        while entry is not None and len(entries) < count:
            if entry.state == RUN:
                entry = priority_level.enter(entry, count - len(entries))
            if entry.state == AVAILABLE:
                entries.append(entry)
            entry = entry.next
    moved = 0
    for turn, chosen in enumerate(entries, 1):
        if turn % _MOVED == 0:
            # Others are served in between.
            yield
        # What is published may push others out of this very queue.
        if chosen.state != AVAILABLE:
            continue
        if chosen.expires != 0 and queue.agenda.left(chosen.expires) <= 0:
            queue.lifecycle.expired(chosen)
            continue
        if chosen.is_out() and not page_in(queue, chosen):
            continue
        if target.room() <= 0:
            # Nobody has promised room for what is moved.
            return moved, Refusal(
                "amqp:resource-limit-exceeded", f"{target.address[:200]!r} is full"
            )
        refusal = target.publish(_with_time_left(chosen, queue.agenda))
        if refusal is not None:
            return moved, refusal
        if chosen.state == AVAILABLE:
            queue.drop(chosen)
        moved += 1
        if target.room() < target.pledged():
            narrow(target)
    return moved, None


def _with_time_left(entry: Entry, agenda: Agenda) -> BrokerMessage:
    """The message of the entry as another queue gets it: its ttl and its deliveries count on, no
    delay begins."""
    message = entry.message
    if entry.attempts > 0:
        message = delivered_before(message, i64(entry.failures))
    if message.opaque:
        return message
    left: i64 = message.ttl
    # A moment, which a ttl or that of the queue has set; a date the message says itself.
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
