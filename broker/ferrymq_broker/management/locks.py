"""RENEW-LOCKS and SETTLE: operations on the locked messages of a queue, by the tokens of the locks.

Each request does everything or nothing. If a lock is lost, the answer has the status 410 and names
the tokens of all lost locks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ferrymq_broker.connections.outcomes import ACCEPTED, RELEASED, apply_outcome
from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, GONE, ManagementError
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.nodes.queues.locks import LOCK_LOST, TOKEN
from ferrymq_codec.scalars import Symbol, Timestamp
from ferrymq_types.messaging import Modified, Rejected
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.queues.locks import MessageLock
    from ferrymq_broker.nodes.queues.queue import Queue
    from ferrymq_types.unions import Outcome

# The most tokens in one request.
MAX_TOKENS: Final = 1000

# The arguments of SETTLE that belong to one outcome only.
_OF_OUTCOMES: Final = {
    "accepted": (),
    "released": (),
    "modified": ("delivery-failed", "undeliverable-here", "annotations"),
    "rejected": ("condition", "description", "info"),
}


class QueueLocks:
    """The operations on the locks of the queue that `find` returns."""

    def __init__(self, find: Callable[[Call], Queue]) -> None:
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        details = [key for keys in _OF_OUTCOMES.values() for key in keys]
        return {
            "RENEW-LOCKS": Operation(self.renew, ("tokens",)),
            "SETTLE": Operation(self.settle, ("tokens", "outcome", *details)),
        }

    def renew(self, call: Call) -> Result:
        """Handle RENEW-LOCKS: let locks hold for the whole lock-duration from now on."""
        call.expect_only("tokens")
        queue = self._find(call)
        tokens = _tokens(call)
        locks, lost = _find_locks(queue, tokens)
        if lost:
            return _lost(lost)
        agenda = queue.agenda
        expirations: list[Timestamp] = []
        for lock in locks:
            assert queue.locks is not None
            expirations.append(Timestamp(agenda.date_of(queue.locks.renew(lock))))
        return Result({"expirations": expirations}, description="renewed")

    def settle(self, call: Call) -> Result:
        """Handle SETTLE: give locked messages an outcome, as a disposition on a link does."""
        outcome = _outcome(call)
        queue = self._find(call)
        locks, lost = _find_locks(queue, _tokens(call))
        if lost:
            return _lost(lost)
        if any(lock.enlisted for lock in locks):
            raise ManagementError(CONFLICT, "tokens: a transaction decides on one of the messages")
        for lock in locks:
            entry = lock.entry
            if entry is not None:
                apply_outcome(queue, lock.holder, entry, outcome)
        return Result({"count": len(locks)}, description="settled")


def _tokens(call: Call) -> list[bytes]:
    """Return the tokens, each of them once or as often as the request has it. Raises
    `ManagementError`."""
    tokens = call.arguments.get("tokens")
    if (
        not isinstance(tokens, list)
        or not tokens
        or not all(isinstance(token, bytes) and len(token) == TOKEN for token in tokens)
    ):
        raise ManagementError(
            BAD_REQUEST, f"tokens: a list of binaries of {TOKEN} bytes is needed: delivery-tags"
        )
    if len(tokens) > MAX_TOKENS:
        raise ManagementError(
            BAD_REQUEST,
            f"tokens: the list has {len(tokens)} items; at most {MAX_TOKENS} are allowed",
        )
    return [bytes(token) for token in tokens]


def _find_locks(queue: Queue, tokens: list[bytes]) -> tuple[list[MessageLock], list[bytes]]:
    """Return the locks of the tokens, and the tokens without a lock."""
    locks: list[MessageLock] = []
    lost: list[bytes] = []
    for token in tokens:
        lock = None if queue.locks is None else queue.locks.find(token)
        if lock is None:
            lost.append(token)
        else:
            locks.append(lock)
    return locks, lost


def _lost(tokens: list[bytes]) -> Result:
    """Return the answer to a request with tokens whose locks are lost."""
    named = ", ".join(token.hex() for token in tokens[:10])
    more = f" and {len(tokens) - 10} more" if len(tokens) > 10 else ""
    return Result(
        {"tokens": tokens},
        GONE,
        f"locks are lost, nothing was changed: {named}{more}",
        {"errorCondition": Symbol(LOCK_LOST)},
    )


def _outcome(call: Call) -> Outcome:
    """Return the outcome that the request describes. Raises `ManagementError`."""
    name = call.text("outcome")
    details = _OF_OUTCOMES.get(name)
    if details is None:
        known = ", ".join(_OF_OUTCOMES)
        raise ManagementError(
            BAD_REQUEST, f"outcome: {name[:100]!r} is none; the outcomes are {known}"
        )
    call.expect_only("tokens", "outcome", *details)
    if name == "accepted":
        return ACCEPTED
    if name == "released":
        return RELEASED
    if name == "modified":
        return Modified(
            delivery_failed=call.flag("delivery-failed"),
            undeliverable_here=call.flag("undeliverable-here"),
            message_annotations=_map(call, "annotations"),
        )
    condition = call.text("condition", "")
    if not condition:
        return Rejected()
    return Rejected(
        error=Error(
            condition=Symbol(condition),
            description=call.text("description", "") or None,
            info=_map(call, "info"),
        )
    )


def _map(call: Call, key: str) -> dict[str, object] | None:
    """Return an argument that is a map with string keys; None if it is missing."""
    value = call.arguments.get(key)
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ManagementError(BAD_REQUEST, f"{key}: a map with string keys is needed")
    return {str(name): item for name, item in value.items()}
