"""Links on which the broker receives: producers, with or without an address of their own.

A link publishes arriving messages and tells their outcomes, and its credit depends on both: each
delivery that is taken, refused or part of a transaction changes what its node has promised.

One module because it is one class, which takes a transfer from its first frame to its outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.batches import BATCH_FORMAT
from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_broker.connections.client_limits import count_walk
from ferrymq_broker.connections.durable_links.tags import Tags
from ferrymq_broker.connections.durable_links.target import RememberedTags, TargetTerminus
from ferrymq_broker.connections.link_ports import ProducerPort
from ferrymq_broker.connections.message_batches import (
    not_unpacked,
    publish_batch,
    unpack,
    unpacks,
)
from ferrymq_broker.connections.message_rate import MessageRate
from ferrymq_broker.connections.outcomes import (
    ACCEPTED,
    MODIFIED_SYMBOL,
    REJECTED_SYMBOL,
    RELEASED,
    RELEASED_SYMBOL,
    is_terminal,
    symbol,
)
from ferrymq_broker.connections.permissions import meant_by, put_on_record, require_message
from ferrymq_broker.connections.seen_tags import WINDOW
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.message import BrokerMessage, admit
from ferrymq_broker.nodes.node import BOUNDLESS, Node, Refusal
from ferrymq_broker.nodes.queues.relay import Relay
from ferrymq_broker.transactions.txn_publish import TxnPublish
from ferrymq_codec.errors import DecodeError
from ferrymq_types.messaging import Accepted, Modified, Rejected
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Error, ReceiverSettleMode

if TYPE_CHECKING:
    from ferrymq_broker.connections.output import ConnectionOutput
    from ferrymq_broker.connections.parts import ConnectionParts
    from ferrymq_broker.connections.throttle import ClientThrottle
    from ferrymq_broker.nodes.personality import Personality
    from ferrymq_types.unions import Outcome


@final
class ProducerLink(ProducerPort):
    """The broker's end of a link whose target is a node.

    `node` is None for the anonymous terminus, where every message names its address in its
    properties. `outcomes` are those that the client understands, by their symbols, or None for all.
    `low` is the credit at which the client gets more. `address` is that of the target, with aliases
    resolved; empty for the anonymous terminus. `rate` is how fast messages come.
    """

    __slots__ = (
        "parts",
        "output",
        "address",
        "outcomes",
        "rate",
        "low",
        "_direct",
        "_personality",
        "_ordered",
        "_metered",
        "_promised",
        "_tags",
        "memory",
    )

    # Attributes of `ProducerPort` that the methods assign: their types for type checkers.
    window: i64
    batched: i64

    def __init__(
        self,
        link: ReceiverLink,
        parts: ConnectionParts,
        node: Node | None,
        outcomes: list[str] | None = None,
        address: str = "",
    ) -> None:
        super().__init__(link, node, parts.client.id)
        self.parts: ConnectionParts = parts
        self.output: ConnectionOutput = parts.output
        self.address: str = address
        self.outcomes: list[str] | None = outcomes
        self.rate: MessageRate = MessageRate(parts.shared.agenda.now)
        self.low: i64 = 0
        # The node, if messages go there without further checks.
        self._direct = node
        if link.rcv_settle_mode is ReceiverSettleMode.SECOND:
            # A message in the queue must not also be kept by the delivery if the client never
            # settles.
            self._direct = None
        self.check_messages()
        if parts.shared.screen is not None:
            self._direct = None
        # What changes the messages of clients of another broker; services take requests as they
        # are.
        self._personality: Personality | None = None
        if node is None or node.kind != "service":
            self._personality = parts.client.space.personality
        if self._personality is not None:
            self._direct = None
        # Requests may have their sections in any order, as Proton encodes them, because they are
        # not sent on.
        self._ordered = node is None or node.kind != "service"
        # Whether the node has a bound, and which part of the node's `promised` belongs to this
        # link.
        self._metered = False
        self._promised: i64 = 0
        self._tags: Tags | None = None
        # The terminus that outlives the link, or None.
        self.memory: TargetTerminus | None = None

    def check_messages(self) -> None:
        """Check every message from now on if its rights may not be those of the link."""
        access = self.parts.client.access
        if isinstance(self.node, Exchange) and access.asks_for_parts():
            # Access rules may exist for the routing keys of messages.
            self._direct = None
        if isinstance(self.node, Relay) and not access.open:
            # The right at the destination may end before the link does.
            self._direct = None

    def remember_tags(self, tags: Tags) -> None:
        """Remember the outcomes of this link's deliveries, by their tags."""
        self._tags = tags
        self._direct = None

    def message_count(self) -> i64:
        """Return how many messages have come, modulo 2^32."""
        return i64(self.link.deliveries) + self.batched

    def remember(self, memory: TargetTerminus, session: i64) -> None:
        """Use a terminus that outlives the link, which is in the session of this number."""
        self.memory = memory
        self.remember_tags(RememberedTags(memory, session, self.origin))

    # -- messages ------------------------------------------------------------------------

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Publish a message that has arrived, and tell its outcome."""
        node = self._direct
        if delivery.remote_state is not None or node is None:
            self._on_unusual(delivery)
        elif delivery.message_format == BATCH_FORMAT:
            self._on_batch(delivery, node)
            if self._metered:
                self._keep_promise(node)
        else:
            try:
                message = admit(delivery.payload, delivery.message_format, self._ordered)
            except DecodeError as error:
                self.reject(delivery, "amqp:decode-error", str(error), None)
            else:
                message.origin = self.origin
                refusal = node.publish(message)
                if refusal is not None:
                    self._refuse(delivery, refusal)
                elif not delivery.remote_settled:
                    delivery.settle(ACCEPTED)
            if self._metered:
                self._keep_promise(node)
        if self.link.credit <= self.low:
            self._ask_for_credit()

    def _ask_for_credit(self) -> None:
        """Ask for credit. If room is counted, do that at the end of the pass: other messages of
        this pass have used credit, and take their room only when they are published."""
        node = self.node
        if self._metered and node is not None and not self.closed:
            node.wait_for_room(self)
            node.touch()
        else:
            self.supply()

    def _on_unusual(self, delivery: IncomingDelivery) -> None:
        """Publish a message of the anonymous terminus, of a delivery with a state, or of a link
        whose deliveries count once."""
        state = delivery.remote_state
        if self.closed:
            # The node was deleted while the message was on its way: an unsettled delivery stays
            # with the sender.
            if delivery.remote_settled:
                self.count_dropped()
            if isinstance(state, TransactionalState):
                self.parts.transactions.miss(self.link, state)
            return
        node = self.node
        if is_terminal(state) and not isinstance(state, Accepted):
            if delivery.resumed:
                # The sender has set an outcome itself (AMQP 1.0 §3.4.6).
                delivery.settle(state)
            else:
                self.refuse(
                    "amqp:not-allowed",
                    f"delivery {delivery.tag!r} comes with the outcome {symbol(state)}, but "
                    "only the receiver may set an outcome",
                )
            return
        if isinstance(state, TransactionalState):
            posting = self.parts.transactions.post(self, delivery, state)
            if posting is not None and self._metered:
                # The room that the node has promised to the link now belongs to the transaction.
                if self._promised > 0:
                    self._promised -= 1
                elif node is not None:
                    # The message was on its way when its credit was taken back.
                    node.promised += 1
                posting.promised = True
                return
        elif self.is_resent(delivery):
            if not delivery.remote_settled:
                delivery.settle(ACCEPTED)
        elif self.posting(delivery) is not None:
            self.reject(
                delivery,
                "amqp:illegal-state",
                "the message with this delivery-tag is part of a transaction that is not "
                "discharged yet",
                None,
            )
        elif delivery.message_format == BATCH_FORMAT:
            self._on_batch(delivery, node)
        else:
            try:
                message = admit(delivery.payload, delivery.message_format, self._ordered)
                target = self.route(message)
                message = self.admitted(message, target)
            except DecodeError as error:
                self.reject(delivery, "amqp:decode-error", str(error), None)
            except BrokerError as error:
                self.reject(delivery, error.condition, error.description, error.info)
            else:
                message.origin = self.origin
                full = self.refusal_if_full(target) if node is None else None
                if full is not None:
                    self._refuse(delivery, full)
                else:
                    self._publish(target, message, delivery)
        if self._metered and node is not None:
            self._keep_promise(node)

    def _on_batch(self, delivery: IncomingDelivery, node: Node | None) -> None:
        """Publish the messages of a batch if the node or the link takes batches."""
        if node is None:
            # The messages could be for different nodes.
            self._refuse(delivery, not_unpacked("the anonymous terminus"))
            return
        if not (self.batches or unpacks(node)):
            self._refuse(delivery, not_unpacked(node.address))
            return
        try:
            messages = unpack(delivery.payload)
            self.batched += len(messages) - 1
            for message in messages:
                self.route(message)
            if self._personality is not None:
                messages = [self.admitted(message, node) for message in messages]
        except DecodeError as error:
            self.reject(delivery, "amqp:decode-error", str(error), None)
            return
        except BrokerError as error:
            self.reject(delivery, error.condition, error.description, error.info)
            return
        refusal = publish_batch(node, messages, self.origin, self._metered)
        if refusal is not None:
            self._refuse(delivery, refusal)
        elif not delivery.remote_settled:
            # Stored messages would be there twice if the batch came again.
            kept = self.memory is not None and any(node.keeps(message) for message in messages)
            self._tell(delivery, ACCEPTED, kept)

    def _keep_promise(self, node: Node) -> None:
        """Use the room that was promised for a message that has come.

        If the message took no room after all, offer the room to others.
        """
        if self._promised > 0:
            # Otherwise the message was on its way when its credit was taken back.
            self._promised -= 1
            node.promised -= 1
        node.regain_room()

    def _publish(self, node: Node, message: BrokerMessage, delivery: IncomingDelivery) -> None:
        refusal = node.publish(message)
        if refusal is not None:
            self._refuse(delivery, refusal)
        elif not delivery.remote_settled:
            self._tell(delivery, ACCEPTED, self.keeps(node, message))

    def _tell(self, delivery: IncomingDelivery, outcome: Outcome, kept: bool = True) -> None:
        """Give an unsettled delivery its outcome and remember it; `kept` is whether the result of
        its message outlives a crash."""
        if self._tags is not None:
            self._tags.add(delivery, outcome, kept)
        delivery.settle(outcome)
        if not delivery.settled:
            # The delivery stays until the client settles, which may take long.
            delivery.payload = b""

    def on_settlement(self, delivery: IncomingDelivery) -> None:
        """Process a delivery that the sender has settled after it was told the outcome, or has
        resumed."""
        tags = self._tags
        if tags is None or self.closed:
            return
        stated = delivery.remote_state
        if (
            is_terminal(stated)
            and is_terminal(delivery.state)
            and type(stated) is not type(delivery.state)
        ):
            # Conflicting outcomes are an error, also for a resumed delivery: the broker's outcome
            # is final, because it has taken effect at the node.
            self.refuse(
                "amqp:illegal-state",
                f"delivery {delivery.tag!r} has the outcome {symbol(delivery.state)}, but its "
                f"sender says {symbol(stated)}",
            )
            return
        if delivery.remote_settled:
            full = tags.is_full()
            tags.forget(delivery.tag)
            if full:
                self.supply()
        elif isinstance(delivery.context, TxnPublish):
            # The outcome comes with the discharge of the transaction.
            return
        elif delivery.resumed and (not delivery.second or is_terminal(delivery.remote_state)):
            # The outcome was in the unsettled map, so the broker need not wait.
            delivery.settle(delivery.state)
            self.output.touch()

    def on_abort(self, delivery: IncomingDelivery) -> None:
        """Forget a delivery that the sender has aborted, which settles it (AMQP 1.0 §2.7.5)."""
        if self._tags is not None:
            self._tags.forget(delivery.tag)
        # An aborted delivery uses credit, too.
        if self.link.credit <= self.low:
            self._ask_for_credit()

    def on_too_large(self, delivery: IncomingDelivery) -> None:
        """Reject a message that is larger than the broker takes."""
        limit = self.parts.max_message_size
        self.reject(
            delivery,
            "amqp:link:message-size-exceeded",
            f"the message has more than {limit} bytes, which is the limit of the broker",
            None,
        )
        if self.link.credit <= self.low:
            self._ask_for_credit()

    def is_resent(self, delivery: IncomingDelivery) -> bool:
        """Return whether the delivery was accepted on an earlier attachment of the link."""
        return self._tags is not None and self._tags.is_resent(delivery.tag)

    def posting(self, delivery: IncomingDelivery) -> TxnPublish | None:
        """Return the message of an open transaction that came under the tag of this delivery."""
        return None if self._tags is None else self._tags.posting(delivery.tag)

    def on_posted(self, delivery: IncomingDelivery, posting: TxnPublish) -> None:
        """Remember a message that is part of a transaction."""
        if self._tags is not None and not delivery.remote_settled:
            self._tags.add_posting(delivery.tag, posting)

    def on_discharged(self, delivery: IncomingDelivery, committed: bool, kept: bool) -> None:
        """Note that the transaction of a message is over; `kept` is as for `_tell`."""
        tags = self._tags
        if tags is None or delivery.remote_settled:
            return
        tags.end_posting(delivery.tag)
        if committed:
            tags.add(delivery, ACCEPTED, kept)

    def keeps(self, node: Node, message: BrokerMessage) -> bool:
        """Return whether the node keeps a message through a crash and the terminus of the link is
        remembered."""
        return self.memory is not None and node.keeps(message)

    def count_dropped(self) -> None:
        """Count a message that was dropped."""
        self.parts.shared.counters.messages_dropped += 1

    def refusal_if_full(self, node: Node) -> Refusal | None:
        """Return the reason why the node has no room for a message for which it gave this link no
        credit."""
        return None if _has_room(node) else _full(node)

    def route(self, message: BrokerMessage) -> Node:
        """Return the node that a message of this link is for; if the link has no node, the message
        names it.

        Raises `BrokerError`, `DecodeError`.
        """
        client = self.parts.client
        access = client.access
        node = self.node
        screen = self.parts.shared.screen
        if screen is not None:
            refusal = screen(self.address if node is not None else message.to() or "")
            if refusal is not None:
                raise refusal
        if node is not None and access.open:
            return node
        to = "" if node is not None else message.to()
        if to is None:
            raise BrokerError(
                "amqp:not-found",
                "the message needs an address in properties.to, because the link has no " "address",
            )
        if access.open:
            space = client.space
            return space.target(to if space.personality is None else space.meant_by(to))
        try:
            if node is None:
                address = meant_by(client, to)
                access.require_send(address, to)
                node = client.space.target(address, access)
            require_message(client, node, message)
            return node
        except BrokerError as error:
            put_on_record(client, error, "message")
            raise

    def admitted(self, message: BrokerMessage, node: Node) -> BrokerMessage:
        """Return the message that is published instead of a client's (see `Personality.admit`).

        Raises `BrokerError`.
        """
        personality = self._personality
        if personality is None or node.kind == "service":
            return message
        return personality.admit(message, node)

    # -- refusals ------------------------------------------------------------------------

    def _refuse(self, delivery: IncomingDelivery, refusal: Refusal) -> None:
        """Tell the sender that the node has not taken the message.

        If the delivery was sent settled, the sender is not told.
        """
        if delivery.remote_settled:
            self.count_dropped()
            return
        outcome = self.outcome_of(delivery, refusal)
        if outcome is None:
            self.end_for(delivery, refusal)
        else:
            self._tell(delivery, outcome)

    def outcome_of(self, delivery: IncomingDelivery, refusal: Refusal) -> Outcome | None:
        """Choose the outcome that tells the client of a refusal; None if the client understands
        none."""
        if refusal.released:
            if self.agreed(RELEASED_SYMBOL):
                return RELEASED
            if self.agreed(MODIFIED_SYMBOL):
                return Modified(delivery_failed=False, undeliverable_here=False)
        if not self.agreed(REJECTED_SYMBOL):
            return None
        return Rejected(error=self.parts.told(_error_for(delivery, refusal)))

    def end_for(self, delivery: IncomingDelivery, refusal: Refusal) -> None:
        """End the link of a client that cannot be told of a refusal with an outcome."""
        self.evict(_error_for(delivery, refusal))

    def reject(
        self,
        delivery: IncomingDelivery,
        condition: str,
        description: str,
        info: dict[str, object] | None,
    ) -> None:
        """Reject a message that is malformed or names no address.

        A sender that understands no such outcome is told with a detach.
        """
        refusal = Refusal(condition, description, False, info)
        outcome = None if delivery.remote_settled else self.outcome_of(delivery, refusal)
        if outcome is None:
            self.end_for(delivery, refusal)
        else:
            self._tell(delivery, outcome)

    def agreed(self, outcome: str) -> bool:
        """Return whether the client understands this outcome."""
        return self.outcomes is None or outcome in self.outcomes

    # -- credit --------------------------------------------------------------------------

    def supply(self) -> None:
        """Give the client credit again, as far as there is room for its messages.

        It gets none while its connection is blocked, or while there is an alarm. Services are
        exempt from alarms, because a request may purge a queue.
        """
        if self.closed:
            return
        output = self.output
        credit = self.parts.shared.credit
        if output.blocked:
            output.await_supply(self)
            return
        node = self.node
        if credit.withheld and (node is None or node.kind != "service"):
            credit.wait(self)
            return
        if self.link.session.incoming.unsettled.count >= output.allowance.sent_share:
            # The client does not settle, or has too much in its transactions.
            output.await_settlements(self)
            return
        full = self.parts.credit_window
        tags = self._tags
        if tags is not None:
            if tags.is_full():
                return
            if full > WINDOW:
                full = WINDOW
        if self.window < full:
            self.window += credit.reserve(self, full - self.window)
            if self.window == 0:
                return
        throttle = self.parts.client.throttle
        if throttle is None or (node is not None and node.kind == "service"):
            self._give(node, self.window)
        else:
            self._give_within(throttle, node)

    def _give_within(self, throttle: ClientThrottle, node: Node | None) -> None:
        """Give credit as far as the rate limits of the client allow."""
        link = self.link
        credit = i64(link.credit)
        lacking = self.window - credit
        if lacking <= 0:
            return
        allowed = throttle.allow(lacking)
        if allowed > 0:
            self._give(node, credit + allowed)
            throttle.promise(link.credit - credit)
        if allowed < lacking:
            throttle.wait(self)

    def _give(self, node: Node | None, most: i64) -> None:
        """Give up to this credit, as far as the node has room."""
        room = BOUNDLESS if node is None else node.room()
        if node is not None and (room != BOUNDLESS or self._metered):
            self._share(node, room, most)
        else:
            self._grant(most)

    def withdraw(self) -> None:
        """Take back unused credit, because there is an alarm. Services are exempt.

        Messages on their way are accepted; the room that a node has promised stays promised.
        """
        node = self.node
        if self.closed or (node is not None and node.kind == "service"):
            return
        self.parts.shared.credit.wait(self)
        if self.link.credit > 0 and self.link.usable:
            self.link.set_credit(0)
            self.output.touch()

    def meter(self) -> None:
        """Count the credit of the link with what its node has promised."""
        node = self.node
        if self.closed or node is None:
            return
        self._metered = True
        more = i64(self.link.credit) - self._promised
        # While there is an alarm, the credit may be less than what was promised.
        if more > 0:
            node.promised += more
            self._promised += more

    def narrow(self) -> None:
        """Keep a share of the free room, and take back the credit above it.

        Messages on their way are accepted (AMQP 1.0 §2.6.7).
        """
        node = self.node
        if self.closed or node is None or not self._metered or not self.link.usable:
            return
        room = node.room()
        if room == BOUNDLESS:
            return
        if node.pledged() <= room:
            return
        credit: i64 = self.link.credit
        share = room // (len(node.producers) + 1) if room > 0 else 0
        if share < credit:
            node.promised -= credit - share
            self._promised -= credit - share
            self._grant(share)
            node.wait_for_room(self)
            node.regain_room()

    def _grant(self, credit: i64) -> None:
        self.low = credit >> 1
        self.link.set_credit(credit)
        if not self.output.dirty:
            self.output.touch()

    def _share(self, node: Node, room: i64, most: i64) -> None:
        """Give this link its share of the free room, up to a credit of `most`.

        Producers of a node have equal shares, with one share left for a new producer. New credit is
        sent only if it at least doubles the credit of the link.
        """
        credit = self.link.credit
        # Aborted deliveries have used credit but no room.
        node.promised += credit - self._promised
        self._promised = credit
        if room == BOUNDLESS:
            node.promised -= credit
            self._promised = 0
            self._metered = False
            self._grant(most)
            return
        self._metered = True
        share = room // (len(node.producers) + 1)
        if share < 1:
            share = 1
        if share > most:
            share = most
        more = share - credit
        free = room - node.pledged()
        if more > free:
            more = free
        if more > 0 and more >= credit:
            node.promised += more
            self._promised += more
            credit += more
            self._grant(credit)
        if credit < most:
            node.wait_for_room(self)

    # -- the end -------------------------------------------------------------------------

    def evict(self, error: Error) -> None:
        """End the link, because the node is going away or the client cannot be told in another
        way."""
        count_walk(self.parts.shared.agenda.slices, self.link)
        self.link.detach(closed=True, error=self.parts.told(error))
        self.output.touch()
        self.close(True)

    def refuse(self, condition: str, description: str) -> None:
        """End the link, and its terminus unless that outlives it, because the client may not send
        here any longer."""
        gone = self.memory is None
        self.link.detach(closed=gone, error=self.parts.error(condition, description))
        self.output.touch()
        self.close(gone)

    def close(self, closed: bool, lost: bool = False) -> None:
        """Release what the link holds: it is `closed`, detached, or `lost` with its connection.

        Published messages stay.
        """
        if self.closed:
            return
        self.closed = True
        self._direct = None
        output = self.output
        output.forget_producer(self)
        if self._tags is not None:
            self._tags.leave(lost, closed)
        node = self.node
        if node is not None:
            node.promised -= self._promised
            self._promised = 0
            # If a delivery ended the link, it uses no more of the node's room.
            self._metered = False
            node.stop_waiting_for_room(self)
            if self in node.producers:
                del node.producers[self]
                if not node.deleted:
                    node.regain_room()
                node.link_closed()
        self.parts.shared.credit.leave(self, self.window)
        throttle = self.parts.client.throttle
        if throttle is not None:
            throttle.forget(self)
            throttle.take_back(self.link.credit)


def _has_room(node: Node) -> bool:
    """Return whether a node has room for a message for which it has promised none."""
    room = node.room()
    return room == BOUNDLESS or room > node.pledged()


def _full(node: Node) -> Refusal:
    """Return the refusal for a sender without credit of the node."""
    return Refusal(
        "amqp:resource-limit-exceeded",
        f"{node.address[:200]!r} has no free room: all of it is promised to links with credit",
    )


def _error_for(delivery: IncomingDelivery, refusal: Refusal) -> Error:
    """Return the error of an outcome or a detach, with the delivery-tag of the delivery (Anonymous
    Terminus for Message Routing 1.0 §2.2.2)."""
    info = refusal.info
    details: dict[str, object] = {} if info is None else dict(info)
    details["delivery-tag"] = delivery.tag
    return Error(condition=refusal.condition, description=refusal.description, info=details)
