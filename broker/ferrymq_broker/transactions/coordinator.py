"""Control links: where transactions are declared and discharged (AMQP 1.0 §4.2–3, §4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.receiver import ReceiverLink
from ferrymq_broker.access.access import fence_refusal
from ferrymq_broker.connections.link_ports import ControlPort
from ferrymq_broker.connections.outcomes import ACCEPTED
from ferrymq_broker.connections.permissions import meant_by, put_on_record
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.fences import FenceRecord
from ferrymq_broker.transactions.fence_annotation import read_fence
from ferrymq_broker.transactions.transaction import ROLLBACK, UNKNOWN_ID, BrokerTransaction
from ferrymq_broker.transactions.transaction_table import too_late
from ferrymq_codec.errors import CodecError
from ferrymq_codec.limits import SECTION_ELEMENTS
from ferrymq_codec.reader import Reader
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data, MessageAnnotations, Rejected
from ferrymq_types.registry import typed
from ferrymq_types.transactions import Declare, Declared, Discharge
from ferrymq_types.transport import Error
from ferrymq_types.unions import decode_section

if TYPE_CHECKING:
    from ferrymq_broker.connections.output import ConnectionOutput
    from ferrymq_broker.connections.parts import ConnectionParts

_CREDIT: Final = 100


@final
class Coordinator(ControlPort):
    """The broker's end of a control link.

    `rejects` is whether the client understands the outcome rejected; if not, the link is ended when
    something is wrong.
    """

    __slots__ = ("link", "parts", "output", "rejects", "closed")

    def __init__(self, link: ReceiverLink, parts: ConnectionParts, rejects: bool) -> None:
        self.link: ReceiverLink = link
        self.parts: ConnectionParts = parts
        self.output: ConnectionOutput = parts.output
        self.rejects: bool = rejects
        self.closed: bool = False

    # -- messages ------------------------------------------------------------------------

    def on_delivery(self, delivery: IncomingDelivery) -> None:
        """Process a declare or a discharge that has arrived."""
        if self.closed:
            return
        if delivery.remote_settled:
            self.end("amqp:illegal-state", "a message to the coordinator must not be sent settled")
            return
        try:
            body, fence = read_message(delivery)
            if isinstance(body, Declare):
                self._declare(delivery, body)
            else:
                self._discharge(delivery, body, fence)
        except BrokerError as error:
            self._reject(delivery, _as_error(error))
        if self.link.credit <= _CREDIT // 2:
            self.supply()

    def _declare(self, delivery: IncomingDelivery, body: Declare) -> None:
        if body.global_id is not None:
            raise _refused(
                "amqp:not-implemented",
                "the declare has a global-id, but distributed transactions are not supported",
            )
        transaction = self.parts.transactions.declare(self)
        delivery.settle(Declared(txn_id=transaction.id))

    def _discharge(
        self, delivery: IncomingDelivery, body: Discharge, fence: FenceRecord | None
    ) -> None:
        transactions = self.parts.transactions
        transaction = transactions.find(body.txn_id)
        if (
            transaction is None
            or transaction.coordinator is not self
            or transaction.discharge is not None
        ):
            raise BrokerError(
                UNKNOWN_ID, "no transaction with this id has been declared on this link"
            )
        transaction.fails = body.fail is True
        if not transaction.fails and transactions.is_inside_posting(transaction):
            self.terminate("the transaction was discharged before a delivery of it was complete")
            return
        transaction.discharge = delivery
        transaction.fence = fence
        self.go_on(transaction)

    def go_on(self, transaction: BrokerTransaction) -> None:
        """Carry out the discharge, unless it has to wait.

        If a transaction fails while a message of it is partly sent, that message is sent completely
        first (AMQP 1.0 §4.4.3).
        """
        delivery = transaction.discharge
        if delivery is None or self.closed:
            return
        transactions = self.parts.transactions
        if (transaction.fails or transaction.doomed) and transaction.is_sending():
            transactions.waiting.append(transaction)
            return
        passed = self._passed(transaction)
        committed = passed is None and not transaction.fails and transaction.commit()
        if not committed:
            transaction.roll_back(False)
        transactions.forget(transaction)
        if committed or transaction.fails:
            delivery.settle(ACCEPTED)
            # The client gets the answer to the discharge before the outcomes of the deliveries.
            delivery.link.session.flush_dispositions()
        else:
            self._reject(delivery, too_late(transaction) if passed is None else passed)
        transaction.settle(committed)
        self.output.touch()

    def _passed(self, transaction: BrokerTransaction) -> Error | None:
        """Return the reason why the fence does not allow a commit; None if it does."""
        fence = transaction.fence
        if fence is None or transaction.fails or transaction.doomed:
            return None
        try:
            target = meant_by(self.parts.client, fence.target) if fence.target else ""
            if not self.parts.client.access.permits_fence(fence.group, target):
                raise fence_refusal(fence.group, fence.target)
            self.parts.client.space.fences.check(fence)
        except BrokerError as error:
            put_on_record(self.parts.client, error, "transaction")
            return _as_error(error)
        return None

    # -- errors and ends -------------------------------------------------------------------

    def _reject(self, delivery: IncomingDelivery, error: Error) -> None:
        if self.rejects:
            delivery.settle(Rejected(error=error))
            delivery.link.session.flush_dispositions()
        else:
            self.end(error.condition, str(error.description))

    def terminate(self, reason: str) -> None:
        """End the link and roll back all its transactions, because the client has broken a rule for
        one (AMQP 1.0 §4.4.1–2)."""
        self.end(ROLLBACK, reason)

    def end(self, condition: str, description: str) -> None:
        """End the link with an error, and roll back its transactions."""
        log.info("control link ended", peer=self.parts.client.peer, reason=description)
        self.link.detach(closed=True, error=Error(condition=condition, description=description))
        self.output.touch()
        self.close(False)

    def supply(self) -> None:
        """Give the client credit, unless it does not read the broker's output."""
        output = self.output
        if self.closed:
            return
        if output.blocked:
            output.await_supply(self)
            return
        self.link.set_credit(_CREDIT)
        output.touch()

    def touch(self) -> None:
        """At the end of this pass, check whether there is something to tell the client."""
        self.output.touch()

    def pass_fence(self, fence: FenceRecord) -> None:
        """Record the fence of a transaction that is committed."""
        self.parts.client.space.fences.pass_(fence, self.parts.shared.agenda.wall)

    def evict(self, error: Error) -> None:
        """Do nothing, because the link has no node that could be deleted."""

    def close(self, lost: bool) -> None:
        """Roll back the transactions of the link, which is gone (AMQP 1.0 §4.1)."""
        if self.closed:
            return
        self.closed = True
        transactions = self.parts.transactions
        ending = transactions.of(self)
        for transaction in ending:
            transactions.forget(transaction)
            transaction.roll_back(lost)
        for transaction in ending:
            transaction.settle(False)


def _as_error(error: BrokerError) -> Error:
    return Error(condition=error.condition, description=error.description, info=error.info)


def _refused(condition: str, description: str) -> BrokerError:
    """Return the transaction-error for an invalid message to the coordinator.

    A transaction-error has only three conditions (AMQP 1.0 §4.5.8); its info names the cause.
    """
    return BrokerError(ROLLBACK, description, {"condition": Symbol(condition)})


def read_message(delivery: IncomingDelivery) -> tuple[Declare | Discharge, FenceRecord | None]:
    """Return the request of the controller, and the fence in its annotations.

    The message has one body, an amqp-value section. Other sections are ignored (AMQP 1.0 §4.2).
    Raises `BrokerError` with a transaction-error for anything else.
    """
    fence: FenceRecord | None = None
    bodies: list[object] = []
    try:
        reader = Reader(delivery.payload)
        reader.budget = SECTION_ELEMENTS
        while reader.remaining():
            section = decode_section(reader, "message")
            if isinstance(section, MessageAnnotations):
                fence = read_fence(section.value)
            elif isinstance(section, AmqpValue):
                value = section.value
                bodies.append(typed(value) if isinstance(value, Described) else value)
            elif isinstance(section, Data | AmqpSequence):
                bodies.append(section)
    except CodecError as error:
        raise _refused("amqp:decode-error", str(error)) from error
    if len(bodies) == 1:
        body = bodies[0]
        if isinstance(body, Declare | Discharge):
            return body, fence
    raise _refused(
        "amqp:not-implemented",
        "a message to the coordinator must be a declare or a discharge in one amqp-value section",
    )
