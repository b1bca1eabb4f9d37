"""Outcomes of deliveries: basic.ack, basic.nack, basic.reject and basic.recover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.slices import MESSAGE
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault, not_implemented
from ferrymq_types_0_9_1.basic import BasicRecover, BasicRecoverAsync, BasicRecoverOk
from ferrymq_types_0_9_1.constants import PRECONDITION_FAILED

if TYPE_CHECKING:
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel
    from ferrymq_rabbitmq.amqp_0_9_1.unacknowledged import Unacknowledged

# The outcomes of a delivery.
ACCEPT: Final = 0
REQUEUE: Final = 1
DISCARD: Final = 2
# The greatest number that a delivery can have here; on the wire it has 64 bits without a sign.
_LAST: Final = 0x7FFF_FFFF_FFFF_FFFF


def acknowledge(channel: Channel, number: int, multiple: bool, outcome: i64) -> None:
    """Give a delivery its outcome, or with `multiple` all up to this one; the tag 0 stands for all.

    Raises `ChannelFault` if there is no such delivery.
    """
    if number > _LAST:
        raise _unknown(number)
    tag: i64 = number
    unacknowledged = channel.unacknowledged
    if not multiple:
        found = unacknowledged.pop(number, None)
        if found is None:
            raise _unknown(number)
        _settle(channel, found, outcome)
        return
    if tag == 0:
        # Without any delivery there is nothing to do.
        tag = channel.last_tag
    elif int(tag) not in unacknowledged:
        raise _unknown(number)
    settled: list[Unacknowledged] = []
    if tag - channel.first_tag < 2 * len(unacknowledged):
        # A walk from the front of the dict would pass the places of all that was removed there.
        for number in range(int(channel.first_tag), int(tag) + 1):
            found = unacknowledged.get(number)
            if found is not None:
                settled.append(found)
    else:
        for each in unacknowledged.values():
            if each.tag > tag:
                break
            settled.append(each)
    channel.first_tag = tag + 1
    _spend(channel, len(settled))
    for each in settled:
        del unacknowledged[int(each.tag)]
        _settle(channel, each, outcome)


def _spend(channel: Channel, deliveries: int) -> None:
    """Count the work for several deliveries at once: other clients go before the next method."""
    channel.space.agenda.slices.spend(deliveries * MESSAGE)


def _unknown(tag: int) -> ChannelFault:
    return ChannelFault(PRECONDITION_FAILED, f"unknown delivery tag {tag}")


def _settle(channel: Channel, each: Unacknowledged, outcome: i64) -> None:
    transaction = channel.transaction
    if transaction is not None:
        transaction.add_outcome(each, outcome)
    else:
        apply(channel, each, outcome)


def apply(channel: Channel, each: Unacknowledged, outcome: i64) -> None:
    """Apply an outcome."""
    channel.forget(each, outcome)
    entry = each.entry
    if entry is None:
        return
    each.entry = None
    node = each.node
    if outcome == ACCEPT or node.deleted:
        # A deleted queue takes nothing back, and sends no dead letters.
        node.remove(each.holder, entry)
    elif outcome == DISCARD:
        node.reject(each.holder, entry, None)
    else:
        # A quorum queue counts each return; other queues do not.
        counts = isinstance(node, Queue) and node.policy.delivery_limit != 0
        node.give_back(each.holder, entry, counts, False)


def recover(channel: Channel, method: Method) -> None:
    """Return all deliveries to their queues (``basic.recover``)."""
    assert isinstance(method, BasicRecover | BasicRecoverAsync)
    if not method.requeue:
        raise not_implemented("basic.recover with requeue=false")
    waiting = list(channel.unacknowledged.values())
    channel.unacknowledged.clear()
    _spend(channel, len(waiting))
    for each in waiting:
        apply(channel, each, REQUEUE)
    if isinstance(method, BasicRecover):
        channel.answer(BasicRecoverOk())
