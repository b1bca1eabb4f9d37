"""The links of one task, one for each address, and the outcomes of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.error_messages import (
    on_another_broker,
    refused_row,
    refused_rows,
    rolled_back,
    too_large,
    unattached,
)
from pyspark_ferrymq.writing.rows import Shipment
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    from ferrymq import DeliveryError
    from ferrymq.blocking import Sender, Transaction
    from pyspark_ferrymq.worker_connections import WorkerConnection


class TaskLinks:
    """A sender of shipments, with or without a `transaction`.

    With `settled`, messages of a transaction have no outcome of their own, except the last of each
    shipment: a ferrymq broker names the message because of which a transaction cannot be committed.
    """

    def __init__(
        self,
        connection: WorkerConnection,
        work: TaskIdentity,
        transaction: Transaction | None,
        settled: bool = False,
    ) -> None:
        self._connection = connection
        self._work = work
        self._transaction = transaction
        self._settled = settled
        # The number of messages sent in the transaction.
        self._sent = 0

    def send(self, shipment: Shipment) -> None:
        """Send a shipment and wait until it is accepted; in a transaction, until it is accepted
        provisionally.

        Raises `AmqpWriteError` if it is not accepted, and the error that ended the connection.
        """
        from ferrymq import LinkDetached, LocalProtocolError

        sender = self._sender(shipment.address)
        limit = sender.max_message_size
        if limit is not None and (size := max(map(len, shipment.payloads))) > limit:
            index = next(i for i, one in enumerate(shipment.payloads) if len(one) == size)
            raise too_large(self._work, shipment.address, shipment.rows[index], size, limit)
        try:
            errors = sender.send_encoded(
                shipment.payloads, settled=self._settled, transaction=self._transaction
            )
        except LinkDetached as error:
            raise unattached(self._work, shipment.address, error) from None
        except LocalProtocolError as error:
            if error.condition != "amqp:not-allowed":
                raise
            raise on_another_broker(self._work, shipment.address, error) from None
        if errors:
            raise self._failure(shipment, errors)
        self._sent += len(shipment.payloads)

    def _failure(self, shipment: Shipment, errors: dict[int, DeliveryError]) -> AmqpWriteError:
        if self._transaction is None:
            by_row = {shipment.rows[index]: error for index, error in errors.items()}
            return refused_rows(self._work, shipment.address, by_row)
        index, first = next(iter(errors.items()))
        error = getattr(first, "error", None)
        info = {} if error is None or error.info is None else error.info
        if self._settled and "message" not in info and index == len(shipment.payloads) - 1:
            if error is not None and error.condition.startswith("amqp:transaction:"):
                return rolled_back(self._work, error, first)
        number = info.get("message")
        if isinstance(number, int) and 0 <= number - self._sent < len(shipment.rows):
            index = number - self._sent
        return refused_row(self._work, shipment.address, shipment.rows[index], error)

    def _sender(self, address: str) -> Sender:
        from ferrymq import LinkDetached

        try:
            return self._connection.sender(address)
        except LinkDetached as error:
            raise unattached(self._work, address, error) from None
