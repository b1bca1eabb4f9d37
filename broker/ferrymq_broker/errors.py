"""What the broker says no to.

AmqpError              (ferrymq_codec.errors)
 └─ BrokerError        a request a client made cannot be met; becomes an AMQP error
ConfigError            the configuration is wrong; for the person who wrote it
"""

from __future__ import annotations

from ferrymq_codec.errors import AmqpError


class BrokerError(AmqpError):
    """A client asked for what cannot be done.

    `condition` is the AMQP error condition it gets (AMQP 1.0 §2.8.15–18), `description` says why,
    `info` goes into the error.
    """

    def __init__(
        self, condition: str, description: str, info: dict[str, object] | None = None
    ) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.info = info


class ConfigError(Exception):
    """The configuration is wrong. The message names file, line and remedy where they are known."""
