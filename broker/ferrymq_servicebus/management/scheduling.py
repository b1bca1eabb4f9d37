"""Operations on scheduled messages, and their sequence numbers.

A queue numbers its scheduled messages apart from its others. Clients see these numbers above all
others, from `_BASE` on. A topic schedules in each of its subscriptions, which have numbers of their
own; the message carries one number for all of them, in an annotation that clients cannot set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.node import refuse_together
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_codec.errors import DecodeError
from ferrymq_servicebus.annotations import SCHEDULED_TIME, SEQUENCE
from ferrymq_servicebus.clock_numbers import CLOCK_NUMBERS, LEAST
from ferrymq_servicebus.management.asked import Asked, Handler, longs
from ferrymq_servicebus.management.failures import (
    MESSAGE_NOT_FOUND,
    NOT_FOUND,
    RequestFailed,
    invalid,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.nodes.queues.lifecycle.schedule import Scheduled
    from ferrymq_servicebus.management.entity import Entity

# The first number of scheduled messages of a queue. No queue has had as many messages.
_BASE: Final = 1 << 51


def number_of(scheduled: Scheduled) -> int:
    """Return the sequence number of a scheduled message, as clients see it."""
    return _carried(scheduled.message) or _BASE + int(scheduled.sequence)


def _carried(message: BrokerMessage) -> int:
    """Return the number that a message of a topic carries, 0 if it carries none."""
    number = view_of(message).message_annotations.get(SEQUENCE)
    return int(number) if isinstance(number, int) and number >= LEAST else 0


class EntitySchedule:
    """The operations on the scheduled messages of an entity."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity

    def operations(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return {
            "schedule-message": self.schedule,
            "cancel-scheduled-message": self.cancel,
        }

    def schedule(self, asked: Asked) -> dict[str, object] | None:
        """Publish messages that become available later, all or none; return their numbers."""
        entity = self._entity
        entity.expect_send(asked)
        node = entity.target(asked.request.party)
        messages = [self._message(one.get("message"), node) for one in asked.maps("messages")]
        _expect_room(node, messages)
        return {"sequence-numbers": longs([_publish(node, message) for message in messages])}

    def _message(self, encoded: object, node: Node) -> BrokerMessage:
        if not isinstance(encoded, bytes):
            raise invalid("messages: each needs a message, a binary")
        try:
            message = admit(encoded, 0)
        except DecodeError as error:
            raise invalid(f"messages: {error}") from error
        personality = self._entity.space.personality
        if personality is not None:
            message = personality.admit(message, node)
        if SCHEDULED_TIME not in view_of(message).message_annotations:
            raise invalid(f"messages: each needs the annotation {SCHEDULED_TIME}")
        if isinstance(node, Topic):
            message = message.annotated({SEQUENCE: CLOCK_NUMBERS.next(int(node.agenda.wall))})
        return message

    def cancel(self, asked: Asked) -> dict[str, object] | None:
        """Drop scheduled messages by their numbers, all or none."""
        entity = self._entity
        entity.expect_send(asked)
        node = entity.target(asked.request.party)
        numbers = set(asked.numbers("sequence-numbers"))
        found: list[tuple[Queue, int]] = []
        missing = set(numbers)
        if isinstance(node, Queue):
            for number in numbers:
                if 0 < number - _BASE < _BASE and node.lifecycle.has_scheduled(number - _BASE):
                    found.append((node, number - _BASE))
                    missing.remove(number)
        elif isinstance(node, Topic):
            for subscription in node.subscriptions():
                for one in subscription.queue.lifecycle.list_scheduled():
                    number = _carried(one.message)
                    if number in numbers:
                        found.append((subscription.queue, int(one.sequence)))
                        missing.discard(number)
        if missing:
            listed = ", ".join(map(str, sorted(missing)[:10]))
            raise RequestFailed(NOT_FOUND, MESSAGE_NOT_FOUND, f"not scheduled: {listed}")
        for queue, sequence in found:
            queue.lifecycle.cancel_scheduled(sequence)
        return {}


def _expect_room(node: Node, messages: list[BrokerMessage]) -> None:
    """Raise `BrokerError` if the node would refuse one of the messages."""
    refusal = refuse_together(node, messages)
    if refusal is not None:
        raise BrokerError(refusal.condition, refusal.description)


def _publish(node: Node, message: BrokerMessage) -> int:
    """Publish a message; return its number. Raises `BrokerError` if it is refused."""
    before = int(node.lifecycle.last_scheduled()) if isinstance(node, Queue) else 0
    refusal = node.publish(message)
    if refusal is not None:
        raise BrokerError(refusal.condition, refusal.description)
    if not isinstance(node, Queue):
        return _carried(message)
    last = int(node.lifecycle.last_scheduled())
    # A message whose time has come is available already.
    return _BASE + last if last > before else int(node.published)
