"""Operations of receivers: RENEW-LOCKS and SETTLE on the locked messages of a queue, by the tokens
of the locks; RECEIVE-DEFERRED on deferred messages, by their numbers.

In a queue with sessions, the tokens hold as long as the lock of their session, which RENEW-SESSION
renews (`management/sessions.py`). Deferred messages are received for the owner of their session.

Each request does everything or nothing. If a lock is lost, the answer has the status 410 and names
the tokens of all lost locks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from ferrymq_broker.connections.outcomes import ACCEPTED, RELEASED, apply_outcome
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    FAILED,
    GONE,
    NOT_FOUND,
    ManagementError,
)
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.peek import PeekResult
from ferrymq_broker.nodes.entry import DEFERRED
from ferrymq_broker.nodes.queues.locks import LOCK_LOST, TOKEN
from ferrymq_codec.scalars import Symbol, Timestamp
from ferrymq_types.messaging import Modified, Rejected
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.entry import Entry
    from ferrymq_broker.nodes.queues.locks import MessageLock
    from ferrymq_broker.nodes.queues.queue import Queue
    from ferrymq_broker.nodes.queues.sessions import QueueSession
    from ferrymq_types.unions import Outcome

# The most tokens in one request.
MAX_TOKENS: Final = 1000

# The arguments that say whose session is meant.
_OF_SESSIONS: Final = ("session", "link")

# The arguments of SETTLE that belong to one outcome only.
_OF_OUTCOMES: Final = {
    "accepted": (),
    "released": (),
    "modified": ("delivery-failed", "undeliverable-here", "annotations"),
    "rejected": ("condition", "description", "info"),
    "deferred": ("annotations",),
}


class QueueLocks:
    """The operations on the locks of the queue that `find` returns."""

    def __init__(self, find: Callable[[Call], Queue]) -> None:
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        details = dict.fromkeys(key for keys in _OF_OUTCOMES.values() for key in keys)
        return {
            "RENEW-LOCKS": Operation(self.renew, ("tokens",)),
            "SETTLE": Operation(self.settle, ("tokens", "outcome", *_OF_SESSIONS, *details)),
            "RECEIVE-DEFERRED": Operation(
                self.receive_deferred, ("sequences", "settled", *_OF_SESSIONS)
            ),
        }

    def renew(self, call: Call) -> Result:
        """Handle RENEW-LOCKS: let locks hold for the whole lock-duration from now on."""
        call.expect_only("tokens")
        queue = self._find(call)
        tokens = _tokens(call)
        locks, lost = _find_locks(queue, tokens)
        if lost:
            return _lost(lost)
        if not all(lock.entry.lock_deadline for lock in locks):
            raise ManagementError(
                CONFLICT, "tokens: the messages are locked with their session; renew the session"
            )
        expirations: list[Timestamp] = []
        for lock in locks:
            assert queue.locks is not None
            deadline = queue.locks.of(lock.holder).renew(lock.entry)
            expirations.append(Timestamp(queue.agenda.date_of(deadline)))
        return Result({"expirations": expirations}, description="renewed")

    def settle(self, call: Call) -> Result:
        """Handle SETTLE: give locked messages an outcome, as a disposition on a link does."""
        outcome = _outcome(call)
        queue = self._find(call)
        if call.text("outcome") == "deferred" and not queue.policy.deferral:
            raise ManagementError(CONFLICT, "outcome: the queue has no deferral")
        session = _session(call, queue)
        locks, lost = _find_locks(queue, _tokens(call), session)
        if lost:
            return _lost(lost)
        if any(lock.entry.enlisted for lock in locks):
            raise ManagementError(CONFLICT, "tokens: a transaction decides on one of the messages")
        for lock in locks:
            apply_outcome(queue, lock.holder, lock.entry, outcome)
        return Result({"count": len(locks)}, description="settled")

    def receive_deferred(self, call: Call) -> Result:
        """Handle RECEIVE-DEFERRED: lock deferred messages and return them, or remove them at
        once."""
        call.expect_only("sequences", "settled", *_OF_SESSIONS)
        sequences = _sequences(call)
        settled = call.flag("settled")
        queue = self._find(call)
        if not settled and not queue.locks_messages():
            raise ManagementError(
                CONFLICT, "settled: it must be true, because the queue has no lock-duration"
            )
        session = _session(call, queue)
        if session is None and queue.entries.sessions is not None:
            raise ManagementError(
                BAD_REQUEST, "session: the queue has sessions: the request must name one"
            )
        chosen: list[Entry] = []
        missing: list[int] = []
        deferred = queue.entries.deferred
        for number in sequences:
            entry = None if deferred is None else deferred.find(number)
            if entry is None or entry.state != DEFERRED or entry.session is not session:
                missing.append(number)
            elif entry.expires != 0 and queue.agenda.left(entry.expires) <= 0:
                queue.lifecycle.expired(entry)
                missing.append(number)
            else:
                chosen.append(entry)
        if missing:
            return Result(
                {"sequences": missing},
                NOT_FOUND,
                "not deferred, or locked: "
                + ", ".join(map(str, missing[:10]))
                + (f" and {len(missing) - 10} more" if len(missing) > 10 else ""),
            )
        sheet = PeekResult(len(chosen))
        for entry in chosen:
            message = queue.entries.read_message(entry)
            if message is None:
                reason = f"message {int(entry.sequence)} cannot be read from the disk"
                raise ManagementError(FAILED, reason)
            facts: dict[str, object] = {
                "sequence": int(entry.sequence),
                "priority": int(entry.level),
                "failures": int(entry.failures),
            }
            if not sheet.add(message.redelivery(i64(entry.failures)), facts):
                raise ManagementError(
                    BAD_REQUEST, "sequences: the messages are too large for one answer"
                )
        for entry, facts in zip(chosen, sheet.messages, strict=True):
            lock = queue.receive_deferred(entry, settled)
            if lock is not None:
                facts["token"] = lock.token
                until = queue.locked_until(entry)
                if until:
                    facts["locked-until"] = Timestamp(int(until))
        return Result({"messages": sheet.messages}, description="received")


def _session(call: Call, queue: Queue) -> QueueSession | None:
    """Return the session that the request names, which has an owner; None if it names none. Raises
    `ManagementError` or `BrokerError`."""
    id = call.text("session", "")
    link = call.text("link", "")
    if not id:
        if link:
            raise ManagementError(BAD_REQUEST, "link: the request must name its session")
        return None
    sessions = queue.entries.sessions
    if sessions is None:
        raise ManagementError(CONFLICT, f"session: {queue.address[:200]!r} has no sessions")
    return sessions.expect_owner(id, link)


def _tokens(call: Call) -> list[bytes]:
    """Return the distinct tokens in the request. Raises `ManagementError`."""
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
    return list(dict.fromkeys(bytes(token) for token in tokens))


def _sequences(call: Call) -> list[int]:
    """Return the distinct sequence numbers in the request. Raises `ManagementError`."""
    sequences = call.arguments.get("sequences")
    if (
        not isinstance(sequences, list)
        or not sequences
        or any(isinstance(number, bool) or not isinstance(number, int) for number in sequences)
    ):
        raise ManagementError(BAD_REQUEST, "sequences: a list of integers is needed")
    if len(sequences) > MAX_TOKENS:
        raise ManagementError(
            BAD_REQUEST,
            f"sequences: the list has {len(sequences)} items; at most {MAX_TOKENS} are allowed",
        )
    return list(dict.fromkeys(int(number) for number in sequences))


def _find_locks(
    queue: Queue, tokens: list[bytes], session: QueueSession | None = None
) -> tuple[list[MessageLock], list[bytes]]:
    """Return the locks of the tokens, and the tokens without a lock. With a session, locks of other
    messages do not count."""
    locks: list[MessageLock] = []
    lost: list[bytes] = []
    for token in tokens:
        lock = None if queue.locks is None else queue.locks.find(token)
        if lock is None or (session is not None and lock.entry.session is not session):
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
    call.expect_only("tokens", "outcome", *_OF_SESSIONS, *details)
    if name == "accepted":
        return ACCEPTED
    if name == "released":
        return RELEASED
    if name == "deferred":
        return Modified(undeliverable_here=True, message_annotations=_map(call, "annotations"))
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
