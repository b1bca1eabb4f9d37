"""The expected result of each feature with each client: what fails today.

A feature that is not listed works, or the client has no case for it. The aim is that `FAILS` is
empty.
"""

from __future__ import annotations

from typing import Final

from tests.interop.features.suite import Expectations

FAILS: Final[dict[str, dict[str, str]]] = {
    "pika": {
        # The header x-death of a published message is not read.
        "dead-letter": r"\[1L?\] instead of \[2\]",
        # The confirmation of a message that a full queue drops is negative.
        "max-length": "NackError",
        # A message without priority counts as 4, as in AMQP 1.0.
        "priority": "'none', '3', '1'",
    },
}
"""By package or by client, and by feature: a pattern of the error."""

EXPECTATIONS: Final = Expectations(FAILS, None)

ON_RABBITMQ: Final = Expectations(
    {
        # Its plugin for AMQP 1.0 drops the headers, which version 4 has as application properties.
        "pika": {"two-protocols": "KeyError"},
    },
    None,
)
"""Expectations for RabbitMQ 3.10, on which the cases were written."""
