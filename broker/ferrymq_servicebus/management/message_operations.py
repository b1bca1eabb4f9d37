"""Operations on messages in a queue: looking at them, and receiving deferred ones."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ferrymq_broker.management.errors import NOT_FOUND
from ferrymq_broker.management.messages import QueueMessages
from ferrymq_broker.management.operation import Result
from ferrymq_broker.management.peek import MAX_BYTES, MAX_COUNT
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_codec.scalars import Timestamp
from ferrymq_servicebus.management import payloads
from ferrymq_servicebus.management.asked import Asked, Handler
from ferrymq_servicebus.management.entity import Entity
from ferrymq_servicebus.management.failures import (
    MESSAGE_NOT_FOUND,
    RequestFailed,
    done,
    expect,
    invalid,
)
from ferrymq_servicebus.management.scheduling import number_of

# The receiver-settle-mode of a receiver that keeps no locks.
_FIRST: Final = 0


class EntityMessages:
    """The operations on the messages of an entity."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        operations = QueueMessages(entity.space, lambda call: entity.queue()).operations()
        self._peek = operations["PEEK"].handler
        self._receive = operations["RECEIVE-DEFERRED"].handler

    def operations(self) -> dict[str, Handler]:
        """Return the operations by name."""
        return {
            "peek-message": self.peek,
            "receive-by-sequence-number": self.receive,
        }

    def peek(self, asked: Asked) -> dict[str, object] | None:
        """Return messages from a sequence number on, in all states. Nothing changes."""
        self._entity.expect_listen(asked)
        first = max(asked.number("from-sequence-number", 0), 0)
        count = asked.number("message-count", 1)
        if count < 1:
            raise invalid("message-count: a number above 0 is needed")
        count = min(count, MAX_COUNT)
        whole = not asked.flag("omit-message-body")
        session = asked.session()
        arguments: dict[str, object] = {"from-sequence": first, "count": count}
        if session is not None:
            arguments["session"] = session
        found: list[dict[str, object]] = []
        for facts in _messages(done(self._peek(asked.call(arguments)))):
            state = payloads.DEFERRED if facts["state"] == "deferred" else payloads.ACTIVE
            found.append({"message": self._stamped(facts, state, whole)})
        if len(found) < count:
            queue = self._entity.queue()
            _add_scheduled(queue, found, count, first, session, whole)
        return {"messages": found} if found else None

    def receive(self, asked: Asked) -> dict[str, object] | None:
        """Return deferred messages by their sequence numbers: locked, or removed at once."""
        self._entity.expect_listen(asked)
        settled = asked.number("receiver-settle-mode", 1) == _FIRST
        numbers = asked.numbers("sequence-numbers")
        call = asked.call({"sequences": numbers, "settled": settled, **asked.of_session()})
        result = done(self._receive(call))
        if result.status == NOT_FOUND:
            raise RequestFailed(NOT_FOUND, MESSAGE_NOT_FOUND, result.description)
        found: list[dict[str, object]] = []
        for facts in _messages(result):
            given = facts.get("token")
            token = UUID(bytes_le=given) if isinstance(given, bytes) else None
            message: dict[str, object] = {
                "message": self._stamped(facts, payloads.DEFERRED, True, token)
            }
            if token is not None:
                message["lock-token"] = token
            found.append(message)
        return {"messages": found}

    def _stamped(
        self, facts: dict[str, object], state: int, whole: bool, token: UUID | None = None
    ) -> bytes:
        """Return the bytes of a message in an answer of the broker, with annotations."""
        payload, sequence, until = facts["message"], facts["sequence"], facts.get("locked-until")
        assert isinstance(payload, bytes) and isinstance(sequence, int)
        locked_until = until if isinstance(until, Timestamp) else None
        named = self._entity.named
        return payloads.stamped(payload, sequence, state, locked_until, whole, token, named=named)


def _messages(result: Result) -> list[dict[str, object]]:
    """Return the messages of an answer of the broker."""
    found = expect(result).get("messages")
    return found if isinstance(found, list) else []


def _add_scheduled(
    queue: Queue,
    found: list[dict[str, object]],
    count: int,
    first: int,
    session: str | None,
    whole: bool,
) -> None:
    """Add scheduled messages, whose numbers are above those of all others."""
    size = 0
    scheduled = [(number_of(one), one) for one in queue.lifecycle.list_scheduled()]
    for number, one in sorted(scheduled, key=lambda pair: pair[0]):
        if number < first:
            continue
        if session is not None and view_of(one.message).group_id != session:
            continue
        size += len(one.message.payload)
        if len(found) >= count or (found and size > MAX_BYTES):
            return
        payload = payloads.stamped(
            one.message.payload, number, payloads.SCHEDULED, with_body=whole, named=str
        )
        found.append({"message": payload})
