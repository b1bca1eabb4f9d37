"""The frame and the message to encode and decode, the same for every contender."""

from __future__ import annotations

from typing import Final

from bench.encoding import data_section
from ferrymq_types_0_9_1.basic import BasicProperties

PAYLOAD: Final = data_section(bytes(range(95)))
"""100 bytes: the payload after the performative in a transfer frame."""

BODY: Final = bytes(range(100))
"""100 bytes: the data section of the message."""

TAG: Final = b"\x00\x00\x00\x07"
DELIVERY_ID: Final = 1007

# Header (AMQP 1.0 §3.2.1)
DURABLE: Final = True
PRIORITY: Final = 5
TTL: Final = 60_000
# Properties (AMQP 1.0 §3.2.4)
MESSAGE_ID: Final = "order-000042"
TO: Final = "orders"
SUBJECT: Final = "created"
REPLY_TO: Final = "orders.replies"
CORRELATION_ID: Final = "request-17"
CONTENT_TYPE: Final = "application/octet-stream"
CREATION_TIME_MS: Final = 1_700_000_000_000

APPLICATION_PROPERTIES: Final[dict[str, object]] = {
    "customer": "4711",
    "region": "north",
    "attempt": 3,
    "urgent": True,
}


def properties_0_9_1() -> BasicProperties:
    """Return six properties of AMQP 0-9-1, with the values of those above."""
    return BasicProperties(
        content_type=CONTENT_TYPE,
        headers={"attempt": 1, "source": SUBJECT},
        delivery_mode=2,
        correlation_id=CORRELATION_ID,
        reply_to=REPLY_TO,
        message_id=MESSAGE_ID,
    )
