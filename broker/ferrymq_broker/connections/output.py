"""The output of one connection: the bytes for its client, and the links that wait.

A connection is *blocked* when its links must not send more: its transport is full (`paused`), it
has used its share of the pass or some of its transfers wait for room in the output (`congested`),
or the broker is about to stop (`quiet`). Its consumers then wait in `stalled`, and producers that
need credit wait in `unsupplied`. So a client that does not read is not served, at no cost to
others. Consumers in `windowed` wait for the window of their session, or for the client to settle
something; producers in `crowded` also wait for settlements.

A congested connection waits for its turn (`OutputTurns`). In its turn it first writes the rest of
its transfers, a share at a time, and its links send more only when all of that is written.

A message that tells a client of a change is written when the change is on disk (`HeldOutput`).
A broker that is replicated writes only while it has the lease (`OutputGate`).
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
    from ferrymq_broker.connections.link_ports import ClientConsumer, ConsumerPort
    from ferrymq_broker.connections.output_turns import BrokerOutput
    from ferrymq_broker.counters import Counters
    from ferrymq_broker.nodes.node import Producer
    from ferrymq_broker.store.changes import Changes
    from ferrymq_broker.transactions.transaction_table import Transactions


def _ignore(*_: object) -> None:
    """Do nothing, because there is no transport."""


@final
class HeldOutput:
    """The output of one connection about changes that are not on disk yet.

    `pieces` are in the order of writing, each with the batch for which it waits; `bytes` is their
    size. `held` is whether the broker releases them after its next batch.
    """

    __slots__ = ("pieces", "bytes", "held")

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []
        self.bytes: i64 = 0
        self.held: bool = False

    def take(self, data: bytes, need: i64, stable: i64) -> bytes:
        """Return the output that may be written when the batch `stable` is on disk, and keep the
        rest.

        New output of the connection, `data`, waits for the batch `need`. So a client that causes
        changes all the time is told of the first ones while the next are being written to disk.
        """
        pieces = self.pieces
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


class ClientOutput:
    """The bytes that one connection has to write, whatever its protocol, and the consumers that
    wait for the client to read.

    `write` is called with bytes for the client; `hang_up` is called once, when all bytes are
    written and the connection is `over`. `dirty` is true while the connection waits for its flush
    at the end of the pass. The next output must wait until the batch `need` is on disk.
    """

    __slots__ = (
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
        "_counters",
        "_held",
        "_begun",
        "write_pieces",
        "_write",
        "_hang_up",
    )

    def __init__(
        self,
        shared: BrokerOutput,
        changes: Changes,
        counters: Counters,
        write: Callable[[bytes], object],
        hang_up: Callable[[], object],
    ) -> None:
        self.shared: BrokerOutput = shared
        self.changes: Changes = changes
        self._counters = counters
        self.blocked: bool = False
        self.paused: bool = False
        self.congested: bool = False
        self.quiet: bool = False
        # Whether the connection waits for a turn.
        self.waits_turn: bool = False
        self.dirty: bool = False
        self.need: i64 = 0
        self.over: bool = False
        # A consumer is listed once, however often it is told that the client can take messages.
        self.stalled: dict[ClientConsumer, None] = {}
        self._held = HeldOutput()
        # Whether the client has been sent the broker's open.
        self._begun = False
        # Writes pieces in order. None while `write` has to get them joined.
        self.write_pieces: Callable[[list[bytes | memoryview]], object] | None = None
        self._write = write
        self._hang_up = hang_up

    @property
    def begun(self) -> bool:
        """Whether the client has been sent the broker's open."""
        return self._begun

    # -- from the engine of the protocol ---------------------------------------------------

    def holds_back(self) -> bool:
        """Return whether messages are written in part, and wait for room in the output."""
        return False

    def take_output(self, proceeds: bool) -> bytes:
        """Return the output so far; with `proceeds` messages that wait for room continue."""
        raise NotImplementedError

    def take_pieces(self, proceeds: bool) -> bytes | list[bytes | memoryview]:
        """Return what `take_output` returns, as one or in pieces that refer to payloads."""
        return self.take_output(proceeds)

    def pending_bytes(self) -> i64:
        """Return how many bytes wait for the next `take_output`."""
        return 0

    def is_opened(self) -> bool:
        """Return whether the client has been told that the connection is open."""
        return False

    def is_finished(self) -> bool:
        """Return whether the connection is over, so that nothing follows what is written."""
        return False

    def idle_frame(self) -> bytes:
        """Return a frame that only shows that the broker is there."""
        return b""

    # -- the transport -------------------------------------------------------------------

    def pause(self) -> None:
        """Note that the transport takes no more bytes for now."""
        self.paused = True
        self.blocked = True

    def resume(self) -> None:
        """Note that the transport takes bytes again."""
        self.paused = False
        self.shared.turns.wait(self)

    def quiesce(self) -> None:
        """Send no more messages and give no more credit, so that the client can settle what it
        has."""
        self.quiet = True
        self.blocked = True

    def forget_transport(self) -> None:
        """Stop calling the transport, which is gone."""
        self._write = self._hang_up = _ignore
        self.write_pieces = None

    # -- writing -------------------------------------------------------------------------

    def touch(self) -> None:
        """At the end of this pass, check whether there is something to write."""
        if not self.dirty:
            self.dirty = True
            self.shared.dirty.append(self)

    def flush(self) -> None:
        """Write the output that has gathered and may be written now."""
        self.dirty = False
        gate = self.shared.gate
        if gate is not None and not gate.lets_pass(self):
            return
        held = self._held
        data: bytes | list[bytes | memoryview]
        # Messages that wait for room continue in their turn, if the output before them can be
        # written.
        unfinished = self.holds_back()
        proceeds = unfinished and not self.congested and not self.paused
        if held.pieces or self.need > self.changes.stable:
            if held.bytes > OUTPUT_LIMIT:
                proceeds = False
            data = held.take(self.take_output(proceeds), self.need, self.changes.stable)
        else:
            data = self.take_pieces(proceeds)
        if unfinished:
            self.congested = True
            self.blocked = True
            if proceeds:
                self.shared.turns.count()
        if data:
            self._begun = self.is_opened()
            if isinstance(data, bytes):
                self._counters.bytes_sent += len(data)
                self._write(data)
            else:
                self._send(data)
        if held.pieces:
            self._hold()
            return
        if self.congested and not self.paused:
            self.shared.turns.wait(self)
        if not self.over and self.is_finished():
            self.over = True
            self._hang_up()

    def _send(self, pieces: list[bytes | memoryview]) -> None:
        """Write the pieces in order, and count their bytes."""
        for piece in pieces:
            self._counters.bytes_sent += len(piece)
        if self.write_pieces is None:
            self._write(b"".join(pieces))
        else:
            self.write_pieces(pieces)

    def _hold(self) -> None:
        """Keep output that waits for the disk; if there is too much of it, stop sending."""
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
        """Check output that waits for the disk again, because a batch is on disk."""
        self._held.held = False
        self.touch()

    def keep_alive(self) -> None:
        """Write a frame that says nothing before the output that waits for the disk, so that the
        client does not close the connection because of a slow disk."""
        if self._held.held and self._begun and not self.paused:
            gate = self.shared.gate
            if gate is None or gate.may_write():
                self._write(self.idle_frame())

    def need_batch(self) -> None:
        """Hold the next output back until the batch that is being filled is on disk."""
        self.need = self.changes.number

    def need_latest(self) -> None:
        """Hold the next output back until all changes so far are on disk."""
        self.need = self.changes.latest()

    # -- shares and turns ----------------------------------------------------------------

    def limit(self) -> None:
        """Stop sending in this pass if the connection has used its share."""
        if self.pending_bytes() >= OUTPUT_LIMIT:
            self.stop_sending()

    def stop_sending(self) -> None:
        """Stop sending, because the connection has used its share of the pass."""
        self.congested = True
        self.blocked = True
        self.shared.turns.count()

    def stand_by(self) -> None:
        """Wait for a turn, because other connections have used this round."""
        self.congested = True
        self.blocked = True
        self.shared.turns.wait(self)

    def resume_sending(self) -> None:
        """Begin a new share, because it is the connection's turn."""
        self.congested = False
        if self.holds_back():
            # The rest of messages comes before new messages.
            self.touch()
        else:
            self.unblock()

    def unblock(self) -> None:
        """Resume sending, unless something else blocks the connection."""
        self.blocked = self.paused or self.quiet
        if not self.blocked:
            self.resume_stalled()

    def resume_stalled(self) -> None:
        """Resume the consumers that have waited for the client to read."""
        if self.stalled:
            stalled = self.stalled
            self.stalled = {}
            for consumer in stalled:
                if not consumer.closed:
                    consumer.go_on()

    def stall(self, consumer: ClientConsumer) -> None:
        """Add a consumer that continues when the connection is not blocked any more."""
        self.stalled[consumer] = None


@final
class ConnectionOutput(ClientOutput):
    """The output of a connection of AMQP 1.0, with the links that wait for windows, credit and
    settlements."""

    __slots__ = (
        "connection",
        "allowance",
        "transactions",
        "windowed",
        "unsupplied",
        "crowded",
    )

    # Attributes of `ClientOutput` that the methods assign: their types for type checkers.
    blocked: bool
    stalled: dict[ClientConsumer, None]

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
        super().__init__(shared, changes, counters, write, hang_up)
        self.connection: Connection = connection
        self.allowance: Allowance = allowance
        self.transactions: Transactions = transactions
        # A consumer is listed once, however many flows the client sends meanwhile.
        self.windowed: dict[ConsumerPort, None] = {}
        self.unsupplied: dict[Producer, None] = {}
        # Producers that have too many unsettled deliveries to get credit.
        self.crowded: dict[Producer, None] = {}

    # -- from the engine -----------------------------------------------------------------

    def holds_back(self) -> bool:
        """Return whether transfers wait for room in the output."""
        return self.connection.holds_back

    def take_output(self, proceeds: bool) -> bytes:
        """Return the output so far; with `proceeds` transfers that wait for room continue."""
        connection = self.connection
        return connection.data_to_send(proceeds) if connection.has_output else b""

    def take_pieces(self, proceeds: bool) -> bytes | list[bytes | memoryview]:
        """Return what `take_output` returns, as one or in pieces that refer to payloads."""
        connection = self.connection
        return connection.pieces_to_send(proceeds) if connection.has_output else b""

    def pending_bytes(self) -> i64:
        """Return how many bytes wait in the engine."""
        return self.connection.output_size()

    def is_opened(self) -> bool:
        """Return whether the broker's open has been sent."""
        return self.connection.opened

    def is_finished(self) -> bool:
        """Return whether the connection is over."""
        return self.connection.finished

    def idle_frame(self) -> bytes:
        """Return an empty frame (AMQP 1.0 §2.4.5)."""
        return EMPTY_FRAME

    # -- turns ---------------------------------------------------------------------------

    def unblock(self) -> None:
        """Resume the links, unless something else blocks the connection."""
        self.blocked = self.paused or self.quiet
        if self.transactions.waiting:
            # Deliveries for which discharges wait may have been sent.
            self.recheck_transactions()
            self.touch()
        if self.blocked:
            return
        if self.windowed:
            self.recheck_windows()
        self.resume_stalled()
        if self.unsupplied:
            unsupplied = self.unsupplied
            self.unsupplied = {}
            for producer in unsupplied:
                producer.supply()
            self.touch()

    # -- links that wait for the client ----------------------------------------------------

    def await_window(self, consumer: ConsumerPort) -> None:
        """Add a consumer that continues when the session's window is open and the client has
        settled."""
        self.windowed[consumer] = None

    def await_supply(self, producer: Producer) -> None:
        """Add a producer that gets credit when the connection is not blocked any more."""
        self.unsupplied[producer] = None

    def await_settlements(self, producer: Producer) -> None:
        """Add a producer that gets credit when its client has settled something."""
        self.crowded[producer] = None

    def forget_consumer(self, consumer: ConsumerPort) -> None:
        """Remove a consumer that waits, because its link is gone."""
        self.stalled.pop(consumer, None)
        self.windowed.pop(consumer, None)

    def forget_producer(self, producer: Producer) -> None:
        """Remove a producer that waits, because its link is gone."""
        self.unsupplied.pop(producer, None)

    def recheck(self) -> None:
        """Resume links that have waited for something that the client has sent now."""
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
        """Resume the consumers whose session window is open and whose client has settled."""
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
        """Remove all waiting links, because the connection is over."""
        self.stalled = {}
        self.windowed = {}
        self.crowded = {}
        self.unsupplied = {}
