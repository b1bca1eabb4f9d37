"""One transaction: its list of work, its time, and its end.

A transaction is *live* until it is discharged or *doomed*. The broker dooms one that cannot be
committed any more: a message of it was refused, it took too long or grew too large, a delivery of
it got into two transactions. Its work is rolled back there and then; the transaction itself waits
for its discharge, to say why, and takes no more work.
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
    """Limits of what transactions of one connection may cost the broker.

    `open` is how many may be declared and not discharged; `timeout` how long one may take, in
    milliseconds, 0 for ever; `work` how many messages and deliveries one may have; `bytes` how much
    the messages to be published by one may add up to.
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

    `doomed` says that it can only be rolled back, for the reason that `error` has, and that its
    work has been. `acquirers` are the links whose flow state names it (AMQP 1.0 §4.4.3).
    `discharge` is the delivery that asked for its end, and `fails` whether it is to be rolled back;
    `fence` is what it is to be known by once it is committed.
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
        "_timers",
        "_limits",
    )

    def __init__(
        self, id: bytes, coordinator: ControlPort, timers: TimerHeap, limits: TransactionLimits
    ) -> None:
        super().__init__()
        self.id = id
        self.coordinator = coordinator
        self.doomed = False
        self.error: Error | None = None
        self.acquirers: dict[ConsumerPort, None] = {}
        self.discharge: IncomingDelivery | None = None
        self.fails = False
        self.fence: FenceRecord | None = None
        self.bytes: i64 = 0
        self._work: list[TxnWork] = []
        self._timers = timers
        self._limits = limits

    def __repr__(self) -> str:
        return f"<transaction {self.id.hex()} of {len(self._work)}>"

    def __len__(self) -> int:
        return len(self._work)

    # -- while it lasts --------------------------------------------------------------------

    def add(self, work: TxnWork, size: i64 = 0) -> None:
        """Remember a piece of work, with a message of `size` bytes."""
        self._work.append(work)
        self.bytes += size

    def excess(self, size: i64) -> str:
        """Return which limit one more piece of work, of `size` bytes, would break; empty if
        none."""
        limits = self._limits
        if len(self._work) >= limits.work:
            return f"it has {limits.work} messages and deliveries, which is the limit"
        if self.bytes + size > limits.bytes:
            return f"its messages are larger than {limits.bytes} bytes together, the limit"
        return ""

    def is_full(self) -> bool:
        """Return whether no delivery may become part of it any more."""
        return self.doomed or len(self._work) >= self._limits.work

    def is_sending(self) -> bool:
        """Return whether a message acquired in it has yet to be sent to its end."""
        return any(work.is_sending() for work in self._work)

    def on_time(self, now: i64) -> None:
        """Roll back: the transaction has taken too long."""
        seconds = self._limits.timeout // 1000
        self.mark_rollback_only(TIMEOUT, f"it was not discharged within {seconds} s")

    def mark_rollback_only(
        self, condition: str, reason: str, info: dict[str, object] | None = None
    ) -> None:
        """Undo the transaction now, for it cannot be committed any more, and say so when it is
        discharged."""
        if self.doomed:
            return
        self.error = Error(
            condition=condition,
            description=f"the transaction was rolled back: {reason}",
            info=info,
        )
        self._undo(False)
        # The nodes may have work now, and the client may be told of deliveries that returned.
        self.coordinator.touch()

    # -- its end ---------------------------------------------------------------------------

    def commit(self) -> bool:
        """Do all of it, in order; false if that is impossible, and all of it is undone."""
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
        """Undo all of it. `lost` is whether that is because the connection was lost."""
        if not self.doomed:
            self._undo(lost)
        self._end()

    def settle(self, committed: bool) -> None:
        """Tell of the deliveries, after the discharge has been answered."""
        for work in self._work:
            work.settle(committed)
        self._work = []

    def _undo(self, lost: bool) -> None:
        """Roll back the work, the last first."""
        self.doomed = True
        self._timers.cancel(self)
        for work in reversed(self._work):
            work.roll_back(lost)

    def _end(self) -> None:
        """Release the links that acquire in the transaction, whatever credit they have."""
        acquirers = self.acquirers
        self.acquirers = {}
        for link in acquirers:
            link.stop_acquiring(self)
