"""Arguments of queues: names and units that Python has, as the ``x-`` arguments of RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict

from ferrymq.arguments import nearest
from ferrymq.durations import Duration, milliseconds, whole_seconds

QueueType: TypeAlias = Literal["classic", "quorum", "stream"]
"""The types of queues."""


class QueueArguments(TypedDict, total=False):
    """Optional arguments of a queue. RabbitMQ refuses those that a type of queue does not have.

    | argument | RabbitMQ's name | for |
    |---|---|---|
    | `max_length` | ``x-max-length`` | all but streams |
    | `max_length_bytes` | ``x-max-length-bytes`` | all |
    | `overflow` | ``x-overflow`` | all but streams |
    | `message_ttl` | ``x-message-ttl``, seconds or a timedelta | all but streams |
    | `expires` | ``x-expires``, seconds or a timedelta without use | all but streams |
    | `dead_letter_exchange`, `dead_letter_routing_key` | ``x-dead-letter-…`` | all but streams |
    | `dead_letter_strategy` | ``x-dead-letter-strategy`` | quorum queues |
    | `delivery_limit` | ``x-delivery-limit`` | quorum queues |
    | `initial_group_size` | ``x-quorum-initial-group-size`` | quorum queues |
    | `single_active_consumer` | ``x-single-active-consumer`` | all but streams |
    | `max_priority` | ``x-max-priority`` | classic queues |
    | `leader_locator` | ``x-queue-leader-locator`` | all |
    | `max_age` | ``x-max-age``, seconds or a timedelta | streams |
    | `max_segment_size_bytes` | ``x-stream-max-segment-size-bytes`` | streams |
    | `filter_size_bytes` | ``x-stream-filter-size-bytes`` | streams |
    | `initial_cluster_size` | ``x-initial-cluster-size`` | streams |
    """

    max_length: int
    max_length_bytes: int
    overflow: Literal["drop-head", "reject-publish", "reject-publish-dlx"]
    message_ttl: Duration
    expires: Duration
    dead_letter_exchange: str
    dead_letter_routing_key: str
    dead_letter_strategy: Literal["at-most-once", "at-least-once"]
    delivery_limit: int
    initial_group_size: int
    single_active_consumer: bool
    max_priority: int
    leader_locator: Literal["client-local", "balanced"]
    max_age: Duration
    max_segment_size_bytes: int
    filter_size_bytes: int
    initial_cluster_size: int


_NAMES: Final = {
    "max_length": "x-max-length",
    "max_length_bytes": "x-max-length-bytes",
    "overflow": "x-overflow",
    "message_ttl": "x-message-ttl",
    "expires": "x-expires",
    "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_routing_key": "x-dead-letter-routing-key",
    "dead_letter_strategy": "x-dead-letter-strategy",
    "delivery_limit": "x-delivery-limit",
    "initial_group_size": "x-quorum-initial-group-size",
    "single_active_consumer": "x-single-active-consumer",
    "max_priority": "x-max-priority",
    "leader_locator": "x-queue-leader-locator",
    "max_age": "x-max-age",
    "max_segment_size_bytes": "x-stream-max-segment-size-bytes",
    "filter_size_bytes": "x-stream-filter-size-bytes",
    "initial_cluster_size": "x-initial-cluster-size",
}


def _age(duration: Duration, name: str) -> str:
    """Return an age as RabbitMQ writes it, such as ``3600s``."""
    return f"{whole_seconds(duration, name)}s"


_CONVERTED: Final[Mapping[str, Callable[[Any, str], object]]] = {
    "message_ttl": milliseconds,
    "expires": milliseconds,
    "max_age": _age,
}


def queue_arguments(
    type: QueueType | None, given: Mapping[str, object], others: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the arguments of a queue under RabbitMQ's names. `others` have these names already.

    Raises TypeError for an argument that there is not, and for a duration that is none; ValueError
    for one that is negative, and for a type that there is not.
    """
    result: dict[str, object] = dict(others or {})
    if type is not None:
        if type not in ("classic", "quorum", "stream"):
            raise ValueError(f"type {type!r} is none of 'classic', 'quorum' and 'stream'")
        result["x-queue-type"] = type
    for name, value in given.items():
        if name not in _NAMES:
            raise TypeError(
                f"declare_queue() has no argument {name!r}{nearest(name, _NAMES, '=')}; others are "
                "given by arguments={'x-…': …}"
            )
        convert = _CONVERTED.get(name)
        result[_NAMES[name]] = value if convert is None else convert(value, name)
    return result
