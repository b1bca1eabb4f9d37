"""The output of one connection: what is to be written to its client, and what waits for that.

A connection is *blocked* when it should not be given more to send: its transport is full
(`paused`), it has had its share of the pass or some of what it was given waits for room in the
output (`congested`), or the broker is about to end (`quiet`). Its consumers then wait in `stalled`,
and its producers that would get credit in `unsupplied`; a client that does not read is thus not
served, at no cost to the others. Consumers in `windowed` wait for the window of their session, or
for the client to settle something; producers in `crowded` wait for the latter as well.

A congested connection waits for its turn (`OutputTurns`). Then it first writes what it has begun,
a share at a time, and is given more only when all of that has gone.

What tells a client of a change is written when the change is on disk (`HeldOutput`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq_broker.connections.output_turns import OUTPUT_LIMIT

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq_broker.connections.client_limits import Allowance
    from ferrymq_broker.connections.link_ports import ConsumerPort
    from ferrymq_broker.connections.output_turns import BrokerOutput
    from ferrymq_broker.counters import Counters
    from ferrymq_broker.nodes.node import Producer
    from ferrymq_broker.store.changes import Changes
    from ferrymq_broker.transactions.transaction_table import Transactions


def _ignore(*_: object) -> None:
    """Take no notice: there is no transport."""


@final
class HeldOutput:
    """The output of one connection that tells of changes which are not on disk yet.

    `pieces` are in the order in which they are to be written, each with the batch it waits for;
    `bytes` is their size. `held` is whether the broker comes back to them after its next batch.
    """

    __slots__ = ("pieces", "bytes", "held")

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.bytes: i64 = 0
        self.held = False

    def take(self, connection: Connection, need: i64, stable: i64, transfers: bool) -> bytes:
        """Return what may be told when the batch `stable` is on disk, and keep the rest.

        What has gathered in the connection waits for the batch `need`. A client that causes
        changes all the time is told of the first while the next are on their way to the disk.
        `transfers` is whether deliveries that wait for room in the output go on.
        """
        pieces = self.pieces
        if connection.has_output:
            data = connection.data_to_send(transfers)
            if data:
                pieces.append((int(need), data))
                self.bytes += len(data)
        count: i64 = 0
        while count < len(pieces) and pieces[count][0] <= stable:
            count += 1
        if count == 0:
            return b""
        data = b"".join([piece for _, piece in pieces[:count]])
        del pieces[:count]
        self.bytes -= len(data)
        return data


@final
class ConnectionOutput:
    """The bytes that one connection has to write, and the links that wait for that.

    `write` is called with bytes for the client, `hang_up` once, when all are written and the
    connection is `over`. `dirty` is true while the connection waits for its flush at the end of the
    pass. What the client is told next says that the batch `need` is on disk.
    """

    __slots__ = (
        "connection",
        "allowance",
        "transactions",
        "shared",
        "changes",
        "blocked",
        "paused",
        "congested",
        "quiet",
        "waits_turn",
        "dirty",
        "need",
        "over",
        "stalled",
        "windowed",
        "unsupplied",
        "crowded",
        "_counters",
        "_held",
        "_begun",
        "_write",
        "_hang_up",
    )

    def __init__(
        self,
        connection: Connection,
        allowance: Allowance,
        transactions: Transactions,
        shared: BrokerOutput,
        changes: Changes,
        counters: Counters,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
    ) -> None:
        self.connection = connection
        self.allowance = allowance
        self.transactions = transactions
        self.shared = shared
        self.changes = changes
        self._counters = counters
        self.blocked = False
        self.paused = False
        self.congested = False
        self.quiet = False
        # Whether the connection is among those that wait for a turn.
        self.waits_turn = False
        self.dirty = False
        self.need: i64 = 0
        self.over = False
        # A consumer waits once, however often the client sends a flow meanwhile.
        self.stalled: dict[ConsumerPort, None] = {}
        self.windowed: dict[ConsumerPort, None] = {}
        self.unsupplied: dict[Producer, None] = {}
        # Producers that have too much unsettled themselves to be given credit.
        self.crowded: dict[Producer, None] = {}
        self._held = HeldOutput()
        # Whether the client has been sent our open.
        self._begun = False
        self._write = write
        self._hang_up = hang_up

    # -- the transport -------------------------------------------------------------------

    def pause(self) -> None:
        """Take note that the transport takes no more bytes for now."""
        self.paused = True
        self.blocked = True

    def resume(self) -> None:
        """Take note that the transport takes bytes again."""
        self.paused = False
        self.shared.turns.wait(self)

    def quiesce(self) -> None:
        """Send no more messages and ask for none: the client settles what it has."""
        self.quiet = True
        self.blocked = True

    def forget_transport(self) -> None:
        """Call the transport no more: it is gone."""
        self._write = self._hang_up = _ignore

    # -- writing -------------------------------------------------------------------------

    def touch(self) -> None:
        """Look at the end of this pass whether there is something to write."""
        if not self.dirty:
            self.dirty = True
            self.shared.dirty.append(self)

    def flush(self) -> None:
        """Write what has gathered and may be told by now."""
        self.dirty = False
        connection = self.connection
        held = self._held
        data = b""
        # Transfers that wait for room go on in their turn, if what is before them can be written.
        unfinished = connection.holds_back
        proceeds = unfinished and not self.congested and not self.paused
        if held.pieces or self.need > self.changes.stable:
            if held.bytes > OUTPUT_LIMIT:
                proceeds = False
            data = held.take(connection, self.need, self.changes.stable, proceeds)
        elif connection.has_output:
            data = connection.data_to_send(proceeds)
        if unfinished:
            self.congested = True
            self.blocked = True
            if proceeds:
                self.shared.turns.count()
        if data:
            self._begun = connection.opened
            self._counters.bytes_sent += len(data)
            self._write(data)
        if held.pieces:
            self._hold()
            return
        if self.congested and not self.paused:
            self.shared.turns.wait(self)
        if connection.finished and not self.over:
            self.over = True
            self._hang_up()

    def _hold(self) -> None:
        """Keep output that waits for the disk; too much of it is a reason to send no more."""
        held = self._held
        if not held.held:
            held.held = True
            self.shared.held.append(self)
        if held.bytes > OUTPUT_LIMIT:
            self.congested = True
            self.blocked = True
        elif self.congested and not self.paused:
            self.shared.turns.wait(self)

    def release_held(self) -> None:
        """Look again at output that waits for the disk: a batch is there."""
        self._held.held = False
        self.touch()

    def keep_alive(self) -> None:
        """Write an empty frame, ahead of output that waits for the disk: a slow disk is no reason
        to be taken for dead."""
        if self._held.held and self._begun and not self.paused:
            self._write(EMPTY_FRAME)

    def need_batch(self) -> None:
        """Hold back what is told next until the batch that is being filled is on disk."""
        self.need = self.changes.number

    def need_latest(self) -> None:
        """Hold back what is told next until all changes so far are on disk."""
        self.need = self.changes.latest()

    # -- shares and turns ----------------------------------------------------------------

    def limit(self) -> None:
        """Send no more in this pass if the connection has had its share."""
        if len(self.connection.output) >= OUTPUT_LIMIT:
            self.stop_sending()

    def stop_sending(self) -> None:
        """Send no more: the connection has had its share of the pass."""
        self.congested = True
        self.blocked = True
        self.shared.turns.count()

    def stand_by(self) -> None:
        """Wait for a turn: others have had what there is in this round."""
        self.congested = True
        self.blocked = True
        self.shared.turns.wait(self)

    def resume_sending(self) -> None:
        """Begin a new share: it is the connection's turn."""
        self.congested = False
        if self.connection.holds_back:
            # Transfers that have begun come before new ones.
            self.touch()
        else:
            self._unblock()

    def _unblock(self) -> None:
        self.blocked = self.paused or self.quiet
        if self.transactions.waiting:
            # The deliveries that discharges wait for may have gone out.
            self.recheck_transactions()
            self.touch()
        if self.blocked:
            return
        if self.windowed:
            self.recheck_windows()
        if self.stalled:
            stalled = self.stalled
            self.stalled = {}
            for consumer in stalled:
                if not consumer.closed:
                    consumer.go_on()
        if self.unsupplied:
            unsupplied = self.unsupplied
            self.unsupplied = {}
            for producer in unsupplied:
                producer.supply()
            self.touch()

    # -- those that wait for the client --------------------------------------------------

    def stall(self, consumer: ConsumerPort) -> None:
        """Remember a consumer that goes on when the connection is not blocked any more."""
        self.stalled[consumer] = None

    def await_window(self, consumer: ConsumerPort) -> None:
        """Remember a consumer that goes on when the session's window is open and the client has
        settled."""
        self.windowed[consumer] = None

    def await_supply(self, producer: Producer) -> None:
        """Give a producer credit when the connection is not blocked any more."""
        self.unsupplied[producer] = None

    def await_settlements(self, producer: Producer) -> None:
        """Give a producer credit when its client has settled something."""
        self.crowded[producer] = None

    def forget_consumer(self, consumer: ConsumerPort) -> None:
        """Forget a consumer that waits: its link is gone."""
        self.stalled.pop(consumer, None)
        self.windowed.pop(consumer, None)

    def forget_producer(self, producer: Producer) -> None:
        """Give a producer no more credit: its link is gone."""
        self.unsupplied.pop(producer, None)

    def recheck(self) -> None:
        """Resume what has waited for something that the client has sent now."""
        if self.windowed:
            self.recheck_windows()
        if self.crowded:
            waiting = self.crowded
            self.crowded = {}
            for producer in waiting:
                producer.supply()
        if self.transactions.waiting:
            self.recheck_transactions()

    def recheck_windows(self) -> None:
        """Resume the consumers that nothing holds up any more."""
        self.allowance.review()
        waiting = self.windowed
        self.windowed = {}
        for consumer in waiting:
            if not consumer.closed and consumer.is_held_up():
                self.windowed[consumer] = None
            elif not consumer.closed:
                consumer.go_on()

    def recheck_transactions(self) -> None:
        """Resume the discharges that have waited for a delivery to be sent."""
        before = self.changes.total
        self.transactions.recheck()
        if self.changes.total != before:
            self.need_latest()

    def forget_waiting(self) -> None:
        """Forget all that waits: the connection is over."""
        self.stalled = {}
        self.windowed = {}
        self.crowded = {}
        self.unsupplied = {}
