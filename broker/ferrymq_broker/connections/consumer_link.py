"""Links on which the broker sends: consumers and browsers of a queue.

One module because it is one thing: what a link does with a message from its delivery to its
outcome, and what becomes of the messages when the link ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from ferrymq.engine.delivery import OutgoingDelivery
from ferrymq.engine.sender import SenderLink
from ferrymq_broker.connections.client_limits import count_walk
from ferrymq_broker.connections.durable_links.resume import SourceResumption
from ferrymq_broker.connections.link_ports import ConsumerPort
from ferrymq_broker.connections.message_rate import MessageRate
from ferrymq_broker.connections.outcomes import (
    FAILED,
    LOST,
    REJECTED,
    RELEASED,
    apply_outcome,
    is_terminal,
    judge,
    symbol,
)
from ferrymq_broker.connections.output_turns import LARGE, OUTPUT_LIMIT
from ferrymq_broker.nodes.consumer import IDLE, OWNER, SETTLED, TAKEN, UNFIT, Consumer
from ferrymq_broker.nodes.entry import Entry
from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.outgoing_header import outgoing_header
from ferrymq_broker.nodes.personality import MOST_STAMPED
from ferrymq_broker.nodes.queues.locks import LOCK_OVER, ConsumerLocks, LockOver, MessageLocks
from ferrymq_types.messaging import Rejected
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.durable_links.source import SourceTerminus
    from ferrymq_broker.connections.output import ConnectionOutput
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.nodes.personality import Personality
    from ferrymq_broker.transactions.transaction import BrokerTransaction
    from ferrymq_broker.transactions.txn_delivery import TxnDelivery
    from ferrymq_types.unions import Outcome


class ConsumerLink(ConsumerPort):
    """The broker's end of a link whose source is a node.

    `asked` is the node that the client named, `node` is the node that it consumes from: the same
    node or a part of it. `memory` is the terminus that outlives the link, if there is one. `rate`
    is how fast messages are sent.
    """

    __slots__ = (
        "parts",
        "output",
        "asked",
        "terms",
        "rate",
        "default_outcome",
        "memory",
        "_locks",
        "_special",
        "_judged",
        "_personality",
        "_resuming",
        "_acquired",
        "_enlisted",
        "_fate",
        "_for_good",
        "_left",
        "_holds_back",
        "_absent",
        "_most",
    )

    # Attributes of `ConsumerPort` that the methods assign: their types for type checkers.
    known_as: i64
    priority: i64
    exclusive: bool
    session_id: str

    def __init__(
        self,
        link: SenderLink,
        parts: ConnectionParts,
        asked: Node,
        node: Node,
        terms: SourceTerms,
        default_outcome: Outcome | None,
        outcomes: list[str] | None = None,
    ) -> None:
        # A default outcome without a list of outcomes applies to all deliveries.
        imposed = None if outcomes is not None else default_outcome
        super().__init__(parts.shared.numbers.next(), terms.browses, link, node, outcomes, imposed)
        self.priority = terms.priority
        self.exclusive = terms.exclusive
        self.filter = terms.filters.predicate
        self.session_id = terms.session
        self.parts: ConnectionParts = parts
        self.output: ConnectionOutput = parts.output
        self.asked: Node = asked
        self.terms: SourceTerms = terms
        self.rate: MessageRate = MessageRate(parts.shared.agenda.now)
        if asked is not node and not terms.part and "shared" not in terms.capabilities:
            # The subscription belongs to this link, however often the link is attached.
            self.known_as = OWNER
        self.default_outcome: Outcome | None = default_outcome
        self.memory: SourceTerminus | None = None
        # The locks of messages, if the node locks those that are sent unsettled.
        self._locks: ConsumerLocks | None = None
        # What clients of another broker expect of the virtual host.
        self._personality: Personality | None = node.space.personality
        # Whether an outcome may be another one than the client's.
        self._judged = imposed is not None or self._personality is not None
        # Whether messages are sent in another way than the plain one.
        self._special = self._personality is not None
        # Deliveries of earlier links, which come before new ones.
        self._resuming: SourceResumption | None = None
        # The state of deliveries in the transaction in which the link acquires.
        self._acquired: TransactionalState | None = None
        # The deliveries that are part of transactions; None if there never were any.
        self._enlisted: dict[TxnDelivery, None] | None = None
        # The outcome of held messages once the link is closed; whether it was closed for good;
        # whether the node has removed the link.
        self._fate: Outcome = RELEASED
        self._for_good = False
        self._left = False
        # Whether the node stops dispatching until the link is closed.
        self._holds_back = False
        # The holder of locked messages after the end of the link.
        self._absent: Consumer | None = None
        link.count_available = self.count_available
        # The most messages that the link may hold.
        self._most: i64 = parts.allowance.limits.unsettled

    def connection_number(self) -> i64:
        """See `ClientConsumer.connection_number`."""
        return self.parts.client.id

    def deliver(self, entry: Entry) -> i64:
        """Send the message if the link and the connection can take one now."""
        if not self._is_free():
            return IDLE
        if entry.attempts == 0 and entry.expires == 0:
            return self._transfer(entry, b"", 0)
        left: i64 = 0
        if entry.expires != 0:
            left = self.node.agenda.left(entry.expires)
        head = outgoing_header(entry, left)
        return self._transfer(entry, head, entry.message.header_end if head else 0)

    def deliver_headed(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Send a message that consists of `head` and the payload from `start` on, as `deliver`
        does."""
        return self._transfer(entry, head, start) if self._is_free() else IDLE

    def _transfer(self, entry: Entry, head: bytes, start: i64) -> i64:
        link = self.link
        output = self.output
        message = entry.message
        payload = message.payload
        size: i64 = len(head) + len(payload) - start
        limit = link.remote_max_message_size
        if limit != 0 and size > limit:
            return UNFIT
        if size > LARGE and output.shared.turns.spent:
            output.stand_by()
            output.stall(self)
            return IDLE
        if self._special:
            if self._personality is not None and limit != 0 and size + MOST_STAMPED > limit:
                return UNFIT
            if self.acquiring is not None:
                return self._deliver_acquired(entry, head, start)
            if self._locks is not None:
                return self._deliver_locked(self._locks, entry, head, start)
            if self.memory is not None and self.memory.holds:
                return self._deliver_remembered(entry, head, start)
            return self._deliver_stamped(entry, head, start)
        delivery = link.send(
            payload,
            settled=link.always_settled,
            message_format=message.format,
            head=head,
            start=start,
        )
        if not output.dirty:
            output.touch()
        if output.connection.output_size() >= OUTPUT_LIMIT:
            output.stop_sending()
        if delivery.settled:
            if entry.stored and not self.copies:
                # The message is removed from disk before it is sent: at most once.
                output.need_batch()
            return SETTLED
        if not self.copies:
            delivery.context = entry
        return TAKEN

    def _is_free(self) -> bool:
        """Return whether link and connection can take a message now; if not, note what to wait
        for."""
        link = self.link
        if link.credit <= 0 or not link.usable:
            return False
        output = self.output
        if output.blocked:
            output.stall(self)
            return False
        outgoing = link.session.outgoing
        allowance = output.allowance
        if (
            outgoing.remote_window <= 0
            or link.parked > 0
            or self.held >= self._most
            or outgoing.unsettled.count >= allowance.share
            or allowance.is_spent(output.connection)
        ):
            # A message is acquired only when its sending can begin: until then it may go to others
            # or expire, and the client may take back the credit.
            output.await_window(self)
            if outgoing.remote_window <= 0:
                outgoing.ask_for_window()
                output.touch()
            return False
        allowance.take()
        return True

    def takes_more(self) -> bool:
        """Return whether a message would be sent at once."""
        if not self._is_free():
            return False
        if self._special:
            # The link is woken when the resumption, or the transaction, is over.
            if self._resuming is not None:
                return False
            transaction = self.acquiring
            if transaction is not None:
                return not transaction.is_full()
            if self._locks is not None:
                return True
            memory = self.memory
            return memory is None or not memory.holds or not memory.is_full()
        return True

    def count_available(self) -> int:
        """Return how many messages wait for credit (AMQP 1.0 §2.6.7)."""
        return 0 if self.closed else int(self.node.count_available(self))

    def is_behind(self) -> bool:
        """Return whether the session's window or the connection still holds back something that the
        link sent."""
        return self.link.parked > 0 or self.output.blocked

    def _deliver_acquired(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Send the message as part of a transaction, if the transaction is not full (AMQP 1.0
        §4.4.3).

        The link holds the message even if it is sent settled: a rollback makes it available again.
        """
        transaction = self.acquiring
        if transaction is None or transaction.is_full() or self._resuming is not None:
            return IDLE
        link = self.link
        output = self.output
        locks = self._locks
        locked = locks is not None and not link.always_settled
        if locks is not None and locked:
            locks.lock(entry)
        personality = self._personality
        if personality is not None:
            head, start = personality.stamp(self.node, entry, head, start)
        delivery = link.send(
            entry.message.payload,
            settled=link.always_settled,
            message_format=entry.message.format,
            state=self._acquired,
            head=head,
            start=start,
        )
        if locked:
            entry.lock = delivery
        output.touch()
        output.limit()
        self.parts.transactions.acquire(self, delivery, None if self.copies else entry)
        return TAKEN

    def _deliver_locked(self, locks: ConsumerLocks, entry: Entry, head: bytes, start: i64) -> i64:
        """Send the message and lock it; the delivery-tag is the token of the lock."""
        if self._resuming is not None:
            return IDLE
        link = self.link
        output = self.output
        settled = link.always_settled
        if not settled:
            locks.lock(entry)
        personality = self._personality
        if personality is not None:
            head, start = personality.stamp(self.node, entry, head, start)
        delivery = link.send(
            entry.message.payload,
            settled=settled,
            message_format=entry.message.format,
            head=head,
            start=start,
        )
        if not output.dirty:
            output.touch()
        if output.connection.output_size() >= OUTPUT_LIMIT:
            output.stop_sending()
        if settled:
            if entry.stored:
                output.need_batch()
            return SETTLED
        entry.lock = delivery
        delivery.context = entry
        return TAKEN

    def _deliver_remembered(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Send the message after the record of its sending is stored."""
        memory = self.memory
        if memory is None or self._resuming is not None or memory.is_full():
            return IDLE
        link = self.link
        output = self.output
        delivery = link.send(
            entry.message.payload,
            settled=link.always_settled,
            message_format=entry.message.format,
            head=head,
            start=start,
        )
        output.touch()
        output.limit()
        if delivery.settled:
            if entry.stored:
                output.need_batch()
            return SETTLED
        delivery.context = entry
        if memory.add(delivery.tag, entry, entry.attempts == 0):
            output.need_batch()
        return TAKEN

    def _deliver_stamped(self, entry: Entry, head: bytes, start: i64) -> i64:
        """Send the message with what its personality adds."""
        personality = self._personality
        if personality is None or self._resuming is not None:
            return IDLE
        head, start = personality.stamp(self.node, entry, head, start)
        link = self.link
        output = self.output
        delivery = link.send(
            entry.message.payload,
            settled=link.always_settled,
            message_format=entry.message.format,
            head=head,
            start=start,
        )
        output.touch()
        output.limit()
        if delivery.settled:
            if entry.stored and not self.copies:
                output.need_batch()
            return SETTLED
        if not self.copies:
            delivery.context = entry
        return TAKEN

    def is_full(self) -> bool:
        """Return whether the client must settle something before it gets more."""
        output = self.output
        return (
            self.held >= self._most
            or self.link.session.outgoing.unsettled.count >= output.allowance.share
            or output.allowance.is_spent(output.connection)
        )

    def is_held_up(self) -> bool:
        """Return whether the link still waits for the session's window or for the client's
        settlements."""
        link = self.link
        # A drain is answered without a window if nothing is left.
        shut = link.session.outgoing.remote_window <= 0 and not link.drain
        return shut or link.parked > 0 or self.is_full()

    def on_credit(self, properties: dict[str, object] | None) -> None:
        """Continue to send, or answer a drain: the receiver's flow, with these properties, has
        arrived (AMQP 1.0 §2.6.7)."""
        link = self.link
        if properties is not None and not self.closed:
            self.parts.transactions.associate(self, properties)
        if self.closed:
            return
        if link.credit > 0:
            self.go_on()
        if link.drain and not self.closed:
            self.node.want_drained(self)

    def go_on(self) -> None:
        """Continue to send: the client can take messages again."""
        resuming = self._resuming
        if resuming is not None:
            resuming.proceed()
            if self.closed:
                return
            if resuming.over:
                self._resuming = None
        self.node.wake(self)

    def nothing_left(self) -> bool:
        """Answer a drain, unless messages still wait for the connection."""
        link = self.link
        if not link.drain or not link.usable:
            return True
        if link.parked > 0:
            # The link is asked again when the parked transfers have gone.
            if self.output.blocked:
                self.output.stall(self)
            else:
                self.output.await_window(self)
            return False
        if link.credit > 0 and not self.ready and not self._is_stopped():
            # The messages that the link waited to send may have gone to other consumers.
            if self.output.blocked or self.node.count_available(self) > 0:
                return False
        link.drained()
        self.output.touch()
        return True

    def on_outcome(self, delivery: OutgoingDelivery) -> None:
        """Process a disposition of the receiver: a state, a settlement or both (AMQP 1.0 §3.4)."""
        if self.closed:
            # The messages that the link held have been given back already, unless the terminus
            # remembers them.
            if self.memory is not None:
                self.memory.on_outcome(delivery)
            return
        entry = delivery.context
        state = delivery.remote_state
        if entry is None and delivery.state is not None and is_terminal(delivery.state):
            # The broker has chosen the outcome itself, and the client confirms it.
            if not delivery.remote_settled and is_terminal(state):
                delivery.settle()
                self.output.touch()
            return
        if self.outcomes is not None and is_terminal(state) and symbol(state) not in self.outcomes:
            self.refuse(
                "amqp:not-allowed",
                f"the outcome {symbol(state)} is not among the outcomes of the source",
            )
            return
        if isinstance(entry, Entry):
            if entry.lock_deadline != 0 and not self.still_holds(entry):
                self._answer_lost(delivery)
                return
        else:
            if isinstance(entry, LockOver):
                self._answer_lost(delivery)
            elif entry is not None:
                self.parts.transactions.outcome(self, delivery)
            elif not delivery.remote_settled and is_terminal(state):
                # The outcome of a browser changes nothing.
                self._settle(delivery)
            return
        if isinstance(state, TransactionalState):
            # The state comes from a later disposition, which is still to be processed.
            return
        if self._judged and is_terminal(state):
            imposed = self.imposed
            state = judge(
                self.node,
                entry,
                state if imposed is None else imposed,
                self.link.drain or self.link.remote_detached,
            )
        if apply_outcome(self.node, self, entry, state):
            delivery.context = None
            if not delivery.remote_settled:
                self._settle(delivery)
        elif delivery.remote_settled:
            # The client has settled without an outcome: the default outcome of the source applies
            # (AMQP 1.0 §3.5.3).
            delivery.context = None
            apply_outcome(self.node, self, entry, self.fate(False))
        else:
            return
        if self.memory is not None:
            self.forget(delivery)

    def _answer_lost(self, delivery: OutgoingDelivery) -> None:
        """Answer an outcome, which changes nothing: the lock of the message is lost."""
        if delivery.remote_settled:
            delivery.context = None
        elif is_terminal(delivery.remote_state):
            delivery.context = None
            delivery.settle(LOST if self._personality is None else self._lost())
            self.output.touch()

    def _lost(self) -> Outcome:
        """Return `LOST` in the words of the client."""
        error = LOST.error
        return LOST if error is None else Rejected(error=self.parts.told(error))

    def _settle(self, delivery: OutgoingDelivery) -> None:
        # The confirmation repeats the outcome, but not the details that the receiver sent.
        state = self.imposed
        if state is None and isinstance(delivery.remote_state, Rejected):
            state = REJECTED
        delivery.settle(state)
        self.output.touch()

    def fate(self, lost: bool) -> Outcome:
        """Return the outcome of a message on which the client has not decided (AMQP 1.0 §3.5.3)."""
        outcome = self.default_outcome
        if outcome is None:
            return FAILED if lost else RELEASED
        return outcome

    # -- locks ---------------------------------------------------------------------------------

    def use_locks(self, locks: MessageLocks | None) -> None:
        """See `Consumer.use_locks`."""
        if not self.copies:
            self._locks = None if locks is None else locks.register(self)
            self.link.tag_prefix = b"" if self._locks is None else self._locks.prefix
            self._find_special()

    def still_holds(self, entry: Entry) -> bool:
        """See `ConsumerPort.still_holds`."""
        return self.locks is None or self.locks.holds(entry)

    def find_locked(self, token: bytes) -> Entry | None:
        """See `Consumer.find_locked`."""
        for holding in self._enlisted or ():
            if holding.delivery.tag == token:
                return holding.entry
        delivery = self.link.find_unsettled(token)
        context = None if delivery is None else delivery.context
        return context if isinstance(context, Entry) else None

    def token_of(self, entry: Entry) -> bytes:
        """See `Consumer.token_of`."""
        assert isinstance(entry.lock, OutgoingDelivery)
        return entry.lock.tag

    def on_unlocked(self, entry: Entry) -> None:
        """See `Consumer.on_unlocked`."""
        delivery = entry.lock
        if isinstance(delivery, OutgoingDelivery) and delivery.context is entry:
            delivery.context = LOCK_OVER

    # -- durable terminus --------------------------------------------------------------------

    def remember(self, memory: SourceTerminus, unsettled: dict[bytes, OutgoingDelivery]) -> bool:
        """Use a terminus that outlives the link, and resume its deliveries of earlier links.

        Return false if the client's attach has an outcome that the source does not allow.
        """
        self.memory = memory
        memory.imposed = self.imposed
        self.known_as = memory.number
        self._find_special()
        memory.pass_to(self)
        resuming = SourceResumption(self, self.output, memory, unsettled)
        fine = resuming.begin()
        if not resuming.over:
            self._resuming = resuming
        return fine

    def recall(self, delivery: OutgoingDelivery, entry: Entry) -> None:
        """Remember a delivery again that left its transaction without an outcome."""
        memory = self.memory
        if memory is not None and memory.holds and delivery.tag not in memory.sent:
            if memory.add(delivery.tag, entry, entry.attempts <= 1):
                self.output.need_batch()

    def forget(self, delivery: OutgoingDelivery) -> None:
        """Forget a delivery that has its outcome, if it was remembered."""
        memory = self.memory
        if memory is None:
            return
        if self.closed:
            memory.forget_handed(self.id, delivery.tag)
            return
        full = memory.is_full()
        memory.forget(delivery.tag)
        if self._resuming is not None:
            self._resuming.on_outcome()
        elif full and self.link.credit > 0:
            self.node.wake(self)

    # -- transactions ----------------------------------------------------------------------

    def enlist(self, holding: TxnDelivery) -> None:
        """Note that a delivery has become part of a transaction."""
        if self._enlisted is None:
            self._enlisted = {}
        self._enlisted[holding] = None

    def delist(self, holding: TxnDelivery) -> None:
        """Note that a delivery has left its transaction."""
        if self._enlisted is not None:
            self._enlisted.pop(holding, None)

    def acquire_under(self, transaction: BrokerTransaction | None) -> None:
        """Acquire in this transaction from now on, or in none."""
        self.acquiring = transaction
        self._acquired = None if transaction is None else TransactionalState(txn_id=transaction.id)
        self._find_special()

    def _find_special(self) -> None:
        """Find out whether messages are sent in another way than the plain one."""
        self._special = (
            self.acquiring is not None
            or self._personality is not None
            or self._locks is not None
            or (self.memory is not None and self.memory.holds)
        )

    def stop_acquiring(self, transaction: BrokerTransaction) -> None:
        """Stop acquiring in a transaction that has been discharged; the credit stays (AMQP 1.0
        §4.4.3)."""
        if self.acquiring is transaction and not self.closed:
            self.acquire_under(None)
            if self.link.credit > 0:
                self.node.wake(self)

    def _is_stopped(self) -> bool:
        """Return whether the link gets no more messages until its transaction is discharged, or
        until it is attached again."""
        transaction = self.acquiring
        resuming = self._resuming
        return (
            (transaction is not None and transaction.is_full())
            or (resuming is not None and resuming.stuck)
            or self.is_full()
        )

    def evict(self, error: Error) -> None:
        """End the link, because the queue is going away."""
        count_walk(self.parts.shared.agenda.slices, self.link)
        self.link.detach(closed=True, error=self.parts.told(error))
        self.output.touch()
        self.close(False, True)

    def forfeit(self, error: Error) -> None:
        """End the link, because it has lost a lock: the client may have seen the messages."""
        self.link.detach(closed=True, error=self.parts.told(error))
        self.output.touch()
        self.close(True, True)

    def refuse(self, condition: str, description: str) -> None:
        """End the link and return the messages that it held, because the client has sent something
        that is not allowed.

        A terminus that outlives its link stays. Otherwise the detach is closing, because some
        clients ignore a detach that is not.
        """
        terms = self.terms
        gone = terms.granted_expiry_policy == "link-detach" and terms.granted_timeout == 0
        self.link.detach(closed=gone, error=self.parts.error(condition, description))
        self.output.touch()
        self.close(False, gone)

    def close(self, lost: bool, closed: bool) -> None:
        """Settle the messages that the link held by the default outcome, because the link is gone
        (AMQP 1.0 §3.5.3).

        Locked messages stay locked, except those of a session. Without a default outcome, other
        messages return to the queue. If the link was `lost` with its connection, the client may
        have seen them, so that counts as a failed delivery. `closed` is whether the link is gone
        for good, with its terminus; a terminus that outlives the link continues to hold the
        messages.
        """
        self.begin_close(lost, closed)
        while self.give_back_next():
            pass
        self.finish_close()

    def begin_close(self, lost: bool, closed: bool, slowly: bool = False) -> None:
        """Do the first part of `close`: nothing more is sent over the link.

        If the other parts follow `slowly`, in other passes, the node stops dispatching until then.
        """
        if self.closed:
            return
        self.closed = True
        if slowly:
            self._holds_back = True
            self.node.pause_dispatch()
        self._for_good = closed
        self.output.forget_consumer(self)
        outcome = self.fate(lost)
        self._fate = outcome
        if self.acquiring is not None:
            self.acquiring.acquirers.pop(self, None)
            self.acquiring = None
        memory = self.memory
        if self._enlisted:
            for holding in list(self._enlisted):
                if memory is not None:
                    memory.hand_to_link(self.id, holding.delivery.tag)
                holding.orphan(outcome)
        if memory is not None:
            self._resuming = None
            if closed:
                memory.end()
            else:
                memory.stand_in(self.id)
                memory.leave(self.terms.party.session, self.parts.client.id, lost)

    def give_back_next(self) -> bool:
        """Do a step of the second part of `close`: settle one message; return false if there is
        none left."""
        entry = self.first_held()
        if entry is None:
            return False
        if entry.lock_deadline != 0 and not self.node.deleted:
            # The message stays locked.
            self.node.hand_over(entry, self, self._stand_in())
        else:
            apply_outcome(self.node, self, entry, self._fate)
        return True

    def _stand_in(self) -> Consumer:
        """Return the consumer that holds locked messages in place of the link, which is gone."""
        absent = self._absent
        if absent is None:
            absent = Consumer(self.id, False)
            absent.known_as = self.known_as
            self._absent = absent
        return absent

    def finish_close(self) -> None:
        """Do the last part of `close`: remove the link from the node."""
        if self._left:
            return
        self._left = True
        self.link.count_available = None
        if self._holds_back:
            self.node.resume_dispatch()
        self.node.unsubscribe(self)
        self.asked.close_source(self.terms, self._for_good)
        self.asked.link_closed()
