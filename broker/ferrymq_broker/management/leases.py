"""Operations on the leases of a queue: messages kept for a holder, under a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from ferrymq_broker.management.errors import BAD_REQUEST, CONFLICT, GONE, ManagementError
from ferrymq_broker.management.operation import GREATEST, Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.nodes.disabling import receiving_disabled
from ferrymq_broker.nodes.queues.lease import LEASE_LOST, RELEASED, SETTLED, QueueLease
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_codec.scalars import Symbol, Timestamp

# The most characters of a holder's name.
MAX_HOLDER: Final = 256
# The messages and bytes of a lease, if the request does not say; the most messages.
DEFAULT_MESSAGES: Final = 10_000
MAX_MESSAGES: Final = 65_536
DEFAULT_BYTES: Final = 64 * 1024 * 1024
# How long a lease holds, in milliseconds.
DEFAULT_DURATION: Final = 300_000
MIN_DURATION: Final = 1_000
MAX_DURATION: Final = 86_400_000
# How many messages a lease gets in one step.
_STEP: Final = 1_000

# Policies by which a message goes to a certain consumer, in words.
_REFUSED: Final = (
    ("sessions", "sessions"),
    ("groups", "message groups"),
    ("single_active", "a single active consumer"),
    ("exclusive", "an exclusive consumer"),
)


class QueueLeaseOperations:
    """The operations on the leases of the queue that `find` returns."""

    def __init__(self, find: Callable[[Call], Queue]) -> None:
        self._find = find

    def operations(self) -> dict[str, Operation]:
        """Return the operations by name."""
        return {
            "LEASE": Operation(self.lease, ("holder", "number", "messages", "bytes", "duration")),
            "RENEW-LEASES": Operation(self.renew, ("holder", "duration")),
            "SETTLE-LEASES": Operation(self.settle, ("holder", "until")),
            "RELEASE-LEASES": Operation(self.release, ("holder",)),
            "LIST-LEASES": Operation(self.list, ("holder",)),
        }

    def lease(self, call: Call) -> Steps[Result]:
        """Handle LEASE: keep messages for a holder, under a number. The same request again returns
        the same lease. Raises `ManagementError` or `BrokerError`."""
        call.expect_only("holder", "number", "messages", "bytes", "duration")
        holder = _holder(call)
        number = _required(call, "number")
        messages = min(call.number("messages", DEFAULT_MESSAGES, 1), MAX_MESSAGES)
        size = call.number("bytes", DEFAULT_BYTES, 1)
        duration = _duration(call, DEFAULT_DURATION)
        queue = self._find(call)
        _expect_leases(queue)
        leases = queue.use_leases()
        queue.agenda.changes.claim()
        lease = leases.find(holder, number)
        if lease is None:
            lease = leases.begin(holder, number)
            while not queue.fill_lease(lease, messages, size, _STEP):
                yield None
                if queue.deleted:
                    raise ManagementError(GONE, f"{queue.address[:200]!r} has been deleted")
            leases.grown(lease, duration)
        while lease.growing:
            # Another request of the same name is being answered.
            yield True
            if queue.deleted:
                raise ManagementError(GONE, f"{queue.address[:200]!r} has been deleted")
        return Result({**_described(queue, lease), "available": int(queue.available)})

    def renew(self, call: Call) -> Result:
        """Handle RENEW-LEASES: all leases of a holder hold for the duration from now on."""
        call.expect_only("holder", "duration")
        holder = _holder(call)
        duration = _duration(call, 0)
        queue = self._find(call)
        leases = queue.leases
        found = [] if leases is None else [one for one in leases.of(holder) if not one.growing]
        if leases is None or not found:
            return Result(
                None,
                GONE,
                f"{holder[:200]!r} has no lease on {queue.address[:200]!r}",
                {"errorCondition": Symbol(LEASE_LOST)},
            )
        for lease in found:
            leases.renew(lease, duration or lease.duration)
        return Result({"leases": [_described(queue, lease) for lease in found]})

    def settle(self, call: Call) -> Steps[Result]:
        """Handle SETTLE-LEASES: remove the messages of a holder's leases up to a number."""
        call.expect_only("holder", "until")
        until = _required(call, "until")
        return (yield from self._end(call, SETTLED, until))

    def release(self, call: Call) -> Steps[Result]:
        """Handle RELEASE-LEASES: give the messages of all leases of a holder back. That counts as
        no delivery that failed."""
        call.expect_only("holder")
        return (yield from self._end(call, RELEASED, GREATEST))

    def _end(self, call: Call, fate: i64, until: int) -> Steps[Result]:
        holder = _holder(call)
        queue = self._find(call)
        queue.agenda.changes.claim()
        leases = queue.leases
        numbers: list[int] = []
        count = 0
        for lease in [] if leases is None else leases.of(holder):
            if leases is None or lease.growing or lease.number > until:
                continue
            if leases.find(holder, lease.number) is not lease:
                # It has ended between two steps.
                continue
            numbers.append(int(lease.number))
            ending = leases.end(lease, fate)
            while not ending.over:
                yield True
            count += int(ending.count)
        return Result({"numbers": numbers, "messages": count}, description="ended")

    def list(self, call: Call) -> Result:
        """Handle LIST-LEASES: return the leases of the queue, or those of a holder, the oldest
        first, and how many messages are available."""
        call.expect_only("holder")
        holder = call.text("holder", "")
        queue = self._find(call)
        leases = queue.leases
        queue.agenda.changes.claim()
        return Result(
            {
                "leases": [
                    _described(queue, lease)
                    for lease in ([] if leases is None else leases.all())
                    if not lease.growing and holder in ("", lease.holder)
                ],
                "available": int(queue.available),
            }
        )


def _holder(call: Call) -> str:
    holder = call.text("holder")
    if not 0 < len(holder) <= MAX_HOLDER:
        raise ManagementError(
            BAD_REQUEST, f"holder: a name of 1 to {MAX_HOLDER} characters is needed"
        )
    return holder


def _required(call: Call, key: str) -> int:
    if key not in call.arguments:
        raise ManagementError(BAD_REQUEST, f"{key} is missing: an integer is needed")
    return call.number(key, 0)


def _duration(call: Call, default: int) -> int:
    duration = call.number("duration", default)
    if duration != default and not MIN_DURATION <= duration <= MAX_DURATION:
        raise ManagementError(
            BAD_REQUEST, f"duration: {MIN_DURATION} to {MAX_DURATION} milliseconds are possible"
        )
    return duration


def _expect_leases(queue: Queue) -> None:
    """Raise `ManagementError` or `BrokerError` if the queue gives no leases: the tasks that read a
    lease are many, and none of them is the consumer that a message has to go to."""
    for setting, words in _REFUSED:
        if getattr(queue.policy, setting):
            raise ManagementError(
                CONFLICT, f"{queue.address[:200]!r} has {words}, and therefore no leases"
            )
    if queue.locked_to != 0 or queue.registry.exclusive_consumers > 0:
        raise ManagementError(
            CONFLICT, f"{queue.address[:200]!r} belongs to one consumer at present"
        )
    if queue.policy.receive_disabled:
        raise receiving_disabled(queue)


def _described(queue: Queue, lease: QueueLease) -> dict[str, object]:
    held = bool(lease.entries)
    return {
        "holder": lease.holder,
        "number": int(lease.number),
        "messages": len(lease.entries),
        "bytes": int(lease.bytes),
        "expiry": Timestamp(int(queue.agenda.date_of(lease.deadline))) if held else None,
    }
