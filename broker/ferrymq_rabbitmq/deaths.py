"""The deaths of a message, which RabbitMQ's clients find in a dead letter: where, why, how often.

The annotation `x-death` has a map for each queue and reason, the latest first. `x-first-death-` and
`x-last-death-`, followed by `queue`, `reason` and `exchange`, tell the first and the last death.
Clients of AMQP 0-9-1 get all of them as headers. The exchange and the routing key of the message
become those that the dead letter is published with. A new routing key replaces those of CC, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_broker.nodes.queues.lifecycle.dead_letters import (
    COUNT,
    DELIVERY_LIMIT,
    MAX_BYTES,
    MAX_LENGTH,
    ORIGINAL_TTL,
    REASON,
    SOURCE,
    TIME,
)
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.values.names import PART
from ferrymq_rabbitmq.address_v2 import EXCHANGES, exchange_name
from ferrymq_rabbitmq.amqp_0_9_1.conversion.annotations import CARBON_COPY
from ferrymq_rabbitmq.routing import EXCHANGE, ROUTING_KEY

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Space

DEATHS: Final = "x-death"
FIRST: Final = "x-first-death-"
LAST: Final = "x-last-death-"

# The most maps in `x-death`; the oldest are dropped.
MAX_DEATHS: Final = 64

_REASONS: Final[dict[object, str]] = {
    DELIVERY_LIMIT: "delivery_limit",
    MAX_LENGTH: "maxlen",
    MAX_BYTES: "maxlen",
}


def record_death(space: Space, annotations: dict[str | int, object]) -> None:
    """Add to the annotations of a dead letter, which has those of the broker already."""
    queue = annotations.get(SOURCE)
    told = annotations.get(REASON)
    if not isinstance(queue, str) or not isinstance(told, str):
        return
    reason = _REASONS.get(told, told)
    exchange = _text(annotations.get(EXCHANGE))
    key = _text(annotations.get(ROUTING_KEY))
    # Before the first death, only a client can have written these annotations.
    first = annotations.get(COUNT) == 1
    deaths = [] if first else _deaths(annotations.get(DEATHS))
    death = _taken(deaths, queue, reason)
    if death is None:
        copies = annotations.get(CARBON_COPY)
        keys = [key, *copies] if isinstance(copies, list) else [key]
        death = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": annotations.get(TIME),
            "exchange": exchange,
            "routing-keys": keys,
        }
        if first and ORIGINAL_TTL in annotations:
            death["original-expiration"] = str(annotations[ORIGINAL_TTL])
    else:
        count = death.get("count")
        death["count"] = int(count) + 1 if isinstance(count, int) else 1
    annotations[DEATHS] = [death, *deaths[: MAX_DEATHS - 1]]
    facts = {"queue": queue, "reason": reason, "exchange": exchange}
    for name, fact in facts.items():
        annotations[LAST + name] = fact
        if first:
            annotations[FIRST + name] = fact
    _readdress(space, queue, annotations)


def _readdress(space: Space, queue: str, annotations: dict[str | int, object]) -> None:
    """Write the exchange of the dead letters of a queue, and their routing key if there is one."""
    node = space.find(queue)
    if not isinstance(node, Queue):
        return
    address = node.policy.dead_letter
    if address.startswith(EXCHANGES):
        exchange, part, key = address.partition(PART)
        annotations[EXCHANGE] = exchange_name(exchange)
        if part:
            annotations[ROUTING_KEY] = key
            annotations.pop(CARBON_COPY, None)
    elif address:
        annotations[EXCHANGE] = ""
        annotations[ROUTING_KEY] = address
        annotations.pop(CARBON_COPY, None)


def _deaths(value: object) -> list[dict[object, object]]:
    """Return the deaths so far; what has another shape is left out."""
    if not isinstance(value, list):
        return []
    return [death for death in value if isinstance(death, dict)]


def _taken(
    deaths: list[dict[object, object]], queue: str, reason: str
) -> dict[object, object] | None:
    """Take the death in this queue for this reason out of the list. The result is a copy, because
    the annotations of a message must not change."""
    for index, death in enumerate(deaths):
        if death.get("queue") == queue and death.get("reason") == reason:
            del deaths[index]
            return dict(death)
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
