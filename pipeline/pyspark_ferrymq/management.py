"""Questions to the management node of a ferrymq broker, over a connection that somebody has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark_ferrymq.errors import AmqpSourceError

if TYPE_CHECKING:
    from ferrymq.blocking import Connection, Receiver, Sender

_ADDRESS: Final = "$management"
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404


class AmqpRefusedError(AmqpSourceError):
    """The broker does not do what was asked. `status` is as in HTTP."""

    def __init__(self, status: int, description: str) -> None:
        super().__init__(f"{description} ({status})")
        self.status = status
        self.description = description


class Management:
    """Requests, one at a time. `timeout` is in seconds, for each.

    Raises `AmqpRefusedError`, `AmqpSourceError` if there is no management node, and what the client
    raises when a link or the connection fails.
    """

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout
        self._links: tuple[Sender, Receiver] | None = None

    def ask(
        self,
        operation: str,
        type: str,
        name: str | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> dict[str, object]:
        """The map that is answered; empty if there is none."""
        from ferrymq import Message

        sender, receiver = self._open()
        properties: dict[str, object] = {"operation": operation, "type": type}
        if name is not None:
            properties["name"] = name
        request = Message(
            body=dict(arguments or {}),
            message_id=uuid4().hex,
            reply_to=receiver.name,
            application_properties=properties,
        )
        sender.send(request, timeout=self._timeout)
        while True:
            delivery = receiver.receive(timeout=self._timeout)
            delivery.accept()
            answer = delivery.message
            # What a request that took too long was answered may come first.
            if answer.correlation_id == request.message_id:
                break
        status = answer.application_properties.get("statusCode")
        if not isinstance(status, int) or status >= 400:
            text = answer.application_properties.get("statusDescription")
            raise AmqpRefusedError(
                int(status) if isinstance(status, int) else 500, str(text or "no reason is given")
            )
        return answer.body if isinstance(answer.body, dict) else {}

    def _open(self) -> tuple[Sender, Receiver]:
        if self._links is None:
            from ferrymq import LinkDetached

            try:
                receiver = self._connection.receiver(_ADDRESS)
                self._links = self._connection.sender(_ADDRESS), receiver
            except LinkDetached as error:
                raise AmqpSourceError(
                    f"the broker has no node {_ADDRESS!r} to ask for offsets: {error}. Is it"
                    " ferrymq? See the option 'service'"
                ) from None
        return self._links
