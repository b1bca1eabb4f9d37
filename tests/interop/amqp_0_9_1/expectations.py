"""The expected result of each feature with each client: what fails today.

A feature that is not listed works, or the client has no case for it. The aim is that `FAILS` is
empty.
"""

from __future__ import annotations

from typing import Final

from tests.interop.features.suite import Expectations

FAILS: Final[dict[str, dict[str, str]]] = {}
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
