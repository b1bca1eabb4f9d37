"""Operations on the messages in a queue, or in the queue of a subscription."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    FAILED,
    NOT_FOUND,
    ManagementError,
    status_of,
)
from ferrymq_broker.management.locks import QueueLocks
from ferrymq_broker.management.operation import GREATEST, Call, Operation, Result
from ferrymq_broker.management.peek import PeekResult, count_of, death_of
from ferrymq_broker.management.selected import SelectedMessages
from ferrymq_broker.management.sliced_query import Steps, when_over
from ferrymq_broker.nodes.entry import ACQUIRED, DEFERRED
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.sessions import QueueSession
from ferrymq_codec.scalars import Timestamp

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace

# The states of messages in the answer of PEEK; all others are called available.
_STATES: Final = {ACQUIRED: "acquired", DEFERRED: "deferred"}

# The most messages that one request moves.
MAX_MOVED: Final = 10_000


class QueueMessages:
    """The operations on the messages of the queue that `find` returns."""

    def __init__(self, space: AddressSpace, find: Callable[[Call], Queue]) -> None:
        self._space = space
        self._find = find
        self._locks = QueueLocks(find)
        self._selected = SelectedMessages(space, find)

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        return {
            "PURGE": Operation(self.purge),
            "MOVE": Operation(self.move, ("target", "count")),
            "PEEK": Operation(self.peek, ("from-sequence", "count", "session")),
            "PEEK-SCHEDULED": Operation(self.peek_scheduled, ("from-sequence", "count")),
            "CANCEL-SCHEDULED": Operation(self.cancel_scheduled, ("sequences",)),
            **self._locks.operations(),
            **self._selected.operations(),
        }

    def purge(self, call: Call) -> Result | Steps[Result]:
        """Handle PURGE: drop the messages that no consumer holds. Scheduled messages stay, and so
        do messages that come during the operation."""
        call.expect_only()
        purge = self._find(call).purge()
        return when_over(purge, lambda: Result({"count": int(purge.count)}, description="purged"))

    def move(self, call: Call) -> Steps[Result]:
        """Handle MOVE: publish messages that no consumer holds to another address, in their order.

        One request moves at most 10 000. If the target refuses a message, the messages before it
        have been moved.
        """
        call.expect_only("target", "count")
        queue = self._find(call)
        address = call.text("target")
        count = min(call.number("count", MAX_MOVED, 1), MAX_MOVED)
        target = self._space.existing_target(address)
        if target is None:
            raise ManagementError(NOT_FOUND, f"target: there is no node {address[:200]!r}")
        if target is queue:
            raise ManagementError(BAD_REQUEST, "target: it is the node that has the messages")
        moved, refusal = yield from queue.move(target, count)
        if refusal is None:
            return Result({"count": moved}, description="moved")
        if moved == 0:
            status = CONFLICT if refusal.released else status_of(refusal.condition)
            raise ManagementError(
                status, f"{address[:200]!r} refused a message: {refusal.description}"
            )
        return Result(
            {"count": moved, "refused": refusal.description},
            description="moved some of the messages",
        )

    def peek(self, call: Call) -> Result:
        """Handle PEEK: return messages in the order of delivery, also those that consumers hold.

        Each message has the bytes of its next delivery. Nothing changes.
        """
        call.expect_only("from-sequence", "count", "session")
        queue = self._find(call)
        count = count_of(call)
        sheet = PeekResult(count)
        session: QueueSession | None = None
        id = call.text("session", "")
        if id:
            sessions = queue.entries.sessions
            if sessions is None:
                raise ManagementError(CONFLICT, f"session: {queue.address[:200]!r} has no sessions")
            session = sessions.find(id)
            if session is None:
                return Result({"messages": []})
        for entry in queue.peek(count, call.number("from-sequence", 0), session):
            message = queue.entries.read_message(entry)
            if message is None:
                reason = f"message {int(entry.sequence)} cannot be read from the disk"
                raise ManagementError(FAILED, reason)
            facts: dict[str, object] = {
                "sequence": int(entry.sequence),
                "state": _STATES.get(int(entry.state), "available"),
                "priority": int(entry.level),
                "failures": int(entry.failures),
            }
            if entry.expires != 0:
                facts["expires"] = Timestamp(queue.agenda.date_of(entry.expires))
            until = queue.locked_until(entry)
            if until:
                facts["locked-until"] = Timestamp(int(until))
            death = death_of(message)
            if death:
                facts["dead-letter"] = death
            payload = message.payload
            if entry.attempts:
                payload = message.redelivery(i64(entry.failures))
            if not sheet.add(payload, facts):
                break
        return Result({"messages": sheet.messages})

    def peek_scheduled(self, call: Call) -> Result:
        """Handle PEEK-SCHEDULED: return scheduled messages, the next one first."""
        call.expect_only("from-sequence", "count")
        sheet = PeekResult(count_of(call))
        first = call.number("from-sequence", 0)
        queue = self._find(call)
        for scheduled in queue.lifecycle.list_scheduled():
            if scheduled.sequence < first:
                continue
            facts: dict[str, object] = {
                "sequence": int(scheduled.sequence),
                "due": Timestamp(queue.agenda.date_of(scheduled.due)),
            }
            if sheet.full or not sheet.add(scheduled.message.payload, facts):
                break
        return Result({"messages": sheet.messages})

    def cancel_scheduled(self, call: Call) -> Result:
        """Handle CANCEL-SCHEDULED: drop scheduled messages, by their numbers in PEEK-SCHEDULED."""
        call.expect_only("sequences")
        sequences = call.arguments.get("sequences")
        if (
            not isinstance(sequences, list)
            or not sequences
            or any(isinstance(number, bool) or not isinstance(number, int) for number in sequences)
        ):
            raise ManagementError(BAD_REQUEST, "sequences: a list of integers is needed")
        lifecycle = self._find(call).lifecycle
        count = 0
        for number in sequences:
            if 0 < number <= GREATEST and lifecycle.cancel_scheduled(int(number)):
                count += 1
        return Result({"count": count}, description="cancelled")
