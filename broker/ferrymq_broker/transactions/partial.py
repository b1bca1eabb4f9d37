"""Deliveries to a transaction that have begun and not ended (AMQP 1.0 §4.4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq.engine.delivery import IncomingDelivery
from ferrymq.engine.events import DeliveryReceived
from ferrymq.engine.receiver import ReceiverLink
from ferrymq.engine.serial import serial_diff
from ferrymq_types.transactions import TransactionalState

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.transactions.transaction import Transaction


def is_partly_posted(
    handler: ConnectionHandler, transaction: Transaction, discharge: IncomingDelivery
) -> bool:
    """Whether the client has begun a delivery to the transaction and not ended it when it sent the
    discharge.

    The rest may have come with the same read. Within a session the numbers of the deliveries tell
    which began first.
    """
    for session in handler.connection.channels.by_remote.values():
        for link in session.links.values():
            if isinstance(link, ReceiverLink):
                partial = link.partial
                if partial is not None and _names(partial, transaction):
                    return True
    for event in handler.events:
        if isinstance(event, DeliveryReceived):
            delivery = event.delivery
            if (
                # Those that were processed are part of the transaction.
                delivery.context is None
                and delivery.link.session is discharge.link.session
                and serial_diff(discharge.id, delivery.id) > 0
                and _names(delivery, transaction)
            ):
                return True
    return False


def _names(delivery: IncomingDelivery, transaction: Transaction) -> bool:
    state = delivery.remote_state
    return isinstance(state, TransactionalState) and state.txn_id == transaction.id
