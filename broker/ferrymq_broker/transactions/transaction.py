"""A transaction: its list of work, its time limit, and its end.

A transaction is *live* until it is discharged or *doomed*. The broker dooms a transaction that
cannot be committed any more: a message of it was refused, it took too long or became too large, or
a delivery of it was used in two transactions. Then its work is rolled back at once. The transaction
itself waits for its discharge, to tell the reason, and takes no more work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.timers import Timer
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq.engine.delivery import IncomingDelivery
    from ferrymq_broker.connections.link_ports import ConsumerPort, ControlPort
    from ferrymq_broker.nodes.fences import FenceRecord
    from ferrymq_broker.timers import TimerHeap
    from ferrymq_broker.transactions.txn_work import TxnWork

UNKNOWN_ID: Final = "amqp:transaction:unknown-id"
ROLLBACK: Final = "amqp:transaction:rollback"
TIMEOUT: Final = "amqp:transaction:timeout"


@final
class TransactionLimits:
    """The limits of the transactions of one connection.

    `open` is how many transactions may be declared and not discharged; `timeout` is how long one
    may take, in milliseconds, 0 for ever; `work` is how many messages and deliveries one may have;
    `bytes` is the size of the messages that one may publish.
    """

    __slots__ = ("open", "timeout", "work", "bytes")

    def __init__(
        self,
        open: i64 = 100,
        timeout: i64 = 300_000,
        work: i64 = 100_000,
        bytes: i64 = 104_857_600,
    ) -> None:
        self.open: i64 = open
        self.timeout: i64 = timeout
        self.work: i64 = work
        self.bytes: i64 = bytes


@final
class BrokerTransaction(Timer):
    """A transaction that was declared under `id` on a control link, the `coordinator`.

    `doomed` is whether it can only be rolled back, for the reason in `error`; its work has been
    rolled back already. `acquirers` are the links whose flow state names it (AMQP 1.0 §4.4.3).
    `discharge` is the delivery that asked for its end, `fails` whether it must be rolled back, and
    `fence` its fence, which is stored with the commit.
    """

    __slots__ = (
        "id",
        "coordinator",
        "doomed",
        "error",
        "acquirers",
        "discharge",
        "fails",
        "fence",
        "bytes",
        "_work",
        "_count",
        "_timers",
        "_limits",
    )

    def __init__(
        self, id: bytes, coordinator: ControlPort, timers: TimerHeap, limits: TransactionLimits
    ) -> None:
        super().__init__()
        self.id: bytes = id
        self.coordinator: ControlPort = coordinator
        self.doomed: bool = False
        self.error: Error | None = None
        self.acquirers: dict[ConsumerPort, None] = {}
        self.discharge: IncomingDelivery | None = None
        self.fails: bool = False
        self.fence: FenceRecord | None = None
        self.bytes: i64 = 0
        self._work: list[TxnWork] = []
        # The number of its messages and deliveries: work may be several messages.
        self._count: i64 = 0
        self._timers = timers
        self._limits = limits

    def __repr__(self) -> str:
        return f"<transaction {self.id.hex()} of {self._count}>"

    def __len__(self) -> int:
        return int(self._count)

    # -- work ---------------------------------------------------------------------------------

    def add(self, work: TxnWork, size: i64 = 0, count: i64 = 1) -> None:
        """Add a piece of work: `count` messages or deliveries, with `size` bytes of messages."""
        self._work.append(work)
        self._count += count
        self.bytes += size

    def excess(self, size: i64, count: i64 = 1) -> str:
        """Return the limit that `count` more messages or deliveries, of `size` bytes together,
        would exceed; empty if none."""
        limits = self._limits
        if self._count + count > limits.work:
            return f"the transaction has {limits.work} messages and deliveries, which is the limit"
        if self.bytes + size > limits.bytes:
            return (
                f"the messages of the transaction would have more than {limits.bytes} bytes "
                "together, which is the limit"
            )
        return ""

    def is_full(self) -> bool:
        """Return whether the transaction can take no more deliveries."""
        return self.doomed or self._count >= self._limits.work

    def is_sending(self) -> bool:
        """Return whether a message that was acquired in it is not completely sent yet."""
        return any(work.is_sending() for work in self._work)

    def on_time(self, now: i64) -> None:
        """Roll back the transaction, which has taken too long."""
        seconds = self._limits.timeout // 1000
        self.mark_rollback_only(TIMEOUT, f"it was not discharged within {seconds} s")

    def mark_rollback_only(
        self, condition: str, reason: str, info: dict[str, object] | None = None
    ) -> None:
        """Roll back the transaction now, because it cannot be committed any more; the discharge
        will get the reason."""
        if self.doomed:
            return
        self.error = Error(
            condition=condition,
            description=f"the transaction was rolled back: {reason}",
            info=info,
        )
        self._undo(False)
        # Nodes may have messages to dispatch now, and the client may have to be told of returned
        # deliveries.
        self.coordinator.touch()

    # -- its end ---------------------------------------------------------------------------

    def commit(self) -> bool:
        """Do all work, in order; return false if that is impossible, and all is undone."""
        for work in self._work:
            problem = work.renew()
            if problem:
                self.mark_rollback_only(ROLLBACK, problem)
                break
        if self.doomed:
            return False
        self._timers.cancel(self)
        for work in self._work:
            work.commit()
        fence = self.fence
        if fence is not None:
            self.coordinator.pass_fence(fence)
        self._end()
        return True

    def roll_back(self, lost: bool) -> None:
        """Undo all work. `lost` is whether the reason is a lost connection."""
        if not self.doomed:
            self._undo(lost)
        self._end()

    def settle(self, committed: bool) -> None:
        """Settle the deliveries, after the discharge has been answered."""
        for work in self._work:
            work.settle(committed)
        self._work = []

    def _undo(self, lost: bool) -> None:
        """Roll back the work, the last piece first."""
        self.doomed = True
        self._timers.cancel(self)
        for work in reversed(self._work):
            work.roll_back(lost)

    def _end(self) -> None:
        """Release the links that acquire in the transaction; they keep their credit."""
        acquirers = self.acquirers
        self.acquirers = {}
        for link in acquirers:
            link.stop_acquiring(self)
