"""The exceptions of the broker.

AmqpError              (ferrymq_codec.errors)
 └─ BrokerError        a client's request failed; becomes an AMQP error
"""

from __future__ import annotations

from ferrymq_codec.errors import AmqpError


class BrokerError(AmqpError):
    """A client asked for something that cannot be done.

    `condition` is the AMQP error condition that the client gets (AMQP 1.0 §2.8.15–18),
    `description` says why, `info` goes into the error.
    """

    def __init__(
        self, condition: str, description: str, info: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.info = info
