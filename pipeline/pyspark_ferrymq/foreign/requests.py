"""Requests to a node that answers: one at a time, over a pair of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

if TYPE_CHECKING:
    from ferrymq.blocking import Connection


class Answer(NamedTuple):
    """What is answered; `status` is as in HTTP, 500 if there is none."""

    status: int
    description: str
    body: object


class Requests:
    """Requests to the node `address`. `timeout` is in seconds, for each.

    Raises what the client raises when a link or the connection fails.
    """

    def __init__(self, connection: Connection, address: str, timeout: float) -> None:
        self._timeout = timeout
        self._receiver = connection.receiver(address)
        self._sender = connection.sender(address)

    def ask(self, properties: Mapping[str, object], body: object = None) -> Answer:
        """Ask, and wait for the answer to that."""
        from ferrymq import Message

        request = Message(
            body=body,
            message_id=uuid4().hex,
            reply_to=self._receiver.name,
            application_properties=dict(properties),
        )
        self._sender.send(request, timeout=self._timeout)
        while True:
            delivery = self._receiver.receive(timeout=self._timeout)
            delivery.accept()
            answer = delivery.message
            # What a request that took too long was answered may come first.
            if answer.correlation_id == request.message_id:
                break
        told = answer.application_properties
        status = told.get("status-code", told.get("statusCode"))
        description = told.get("status-description", told.get("statusDescription"))
        return Answer(
            int(status) if isinstance(status, int) else 500,
            str(description or "no reason is given"),
            answer.body,
        )

    def close(self) -> None:
        """Close the links."""
        self._sender.close()
        self._receiver.close()
