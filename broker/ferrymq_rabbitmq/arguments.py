"""The arguments with which clients declare queues and exchanges, as policies of the broker.

All arguments are kept as labels of the node, so that they can be told again and compared. Those
that only matter in a cluster, or for the files of RabbitMQ, and those that RabbitMQ does not know
either, have no effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ferrymq_broker.values.policy import (
    EXCHANGE_TYPES,
    UNCONSUMED,
    ExchangePolicy,
    QueuePolicy,
    StreamPolicy,
)
from ferrymq_rabbitmq.address_v2 import exchange_address

QUEUE_TYPE: Final = "x-queue-type"
CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
ALTERNATE: Final = "alternate-exchange"

# How many failed deliveries a message of a quorum queue may have, unless the queue says otherwise.
_QUORUM_LIMIT: Final = 20
# The most levels of priorities that the broker has.
_LEVELS: Final = 10
# A quorum queue has normal messages, and those with a priority above 4.
_QUORUM_LEVELS: Final = 2
_SEPARATOR: Final = "="
_INTERNAL: Final = "internal"
_MAX_AGE: Final = re.compile(r"(\d{1,9})([YMDhms])")
_SECONDS: Final = {
    "Y": 365 * 86_400,
    "M": 30 * 86_400,
    "D": 86_400,
    "h": 3600,
    "m": 60,
    "s": 1,
}
_WITHOUT_EFFECT: Final = frozenset(
    (
        QUEUE_TYPE,
        "x-dead-letter-strategy",
        "x-deliver-limit",
        "x-initial-cluster-size",
        "x-initial-group-size",
        "x-queue-leader-locator",
        "x-queue-master-locator",
        "x-queue-mode",
        "x-queue-version",
        "x-quorum-initial-group-size",
        "x-quorum-target-group-size",
        "x-stream-filter-size-bytes",
    )
)
# What queues of RabbitMQ can do with other arguments, and those of the broker cannot. Arguments that
# RabbitMQ does not know either have no effect with both.
_MISSING: Final = frozenset(
    (
        "x-consumer-disconnected-timeout",
        "x-consumer-timeout",
        "x-max-in-memory-bytes",
        "x-max-in-memory-length",
    )
)
# RabbitMQ's names of what a full queue does, and the broker's.
_OVERFLOWS: Final = {
    "drop-head": "drop-head",
    "reject-publish": "reject",
    "reject-publish-dlx": "reject-dead-letter",
}


class ArgumentError(ValueError):
    """An argument that a queue or an exchange cannot have; the message names it."""


def queue_type(arguments: Mapping[str, object]) -> str:
    """Return the type of a queue by its arguments. Raises `ArgumentError`."""
    type = arguments.get(QUEUE_TYPE, CLASSIC)
    if type not in (CLASSIC, QUORUM, STREAM):
        raise ArgumentError(f"{QUEUE_TYPE}: {type!r} is none of classic, quorum and stream")
    return str(type)


def acts(type: str, name: str) -> bool:
    """Return whether queues of a type have an argument with this name that has an effect here."""
    return name in _READERS[type]


def is_known(type: str, name: str) -> bool:
    """Return whether a queue of a type may be declared with an argument of this name."""
    return acts(type, name) or name in _WITHOUT_EFFECT


def queue_policy(
    arguments: Mapping[str, object],
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> QueuePolicy | StreamPolicy:
    """Return the policy of a queue that a client declares. Raises `ArgumentError`.

    An exclusive queue is never durable, because it ends with its connection.
    """
    type = queue_type(arguments)
    if type != CLASSIC:
        for wrong, what in (
            (not durable, "must be durable"),
            (exclusive, "cannot be exclusive"),
            (auto_delete, "cannot be deleted automatically"),
        ):
            if wrong:
                raise ArgumentError(f"a queue of the type {type} {what}")
    given = dict(arguments)
    settings = _settings(given, _READERS[type], type)
    if type == STREAM:
        return StreamPolicy(labels=labels_of(arguments), **settings)
    if "dead_letter_key" in settings:
        if "dead_letter" not in settings:
            raise ArgumentError("x-dead-letter-routing-key needs x-dead-letter-exchange")
        key = settings.pop("dead_letter_key")
        exchange = settings["dead_letter"]
        settings["dead_letter"] = f"{exchange}::{key}" if exchange else key
    elif settings.get("dead_letter") == "":
        raise ArgumentError(
            "x-dead-letter-exchange: the default exchange needs x-dead-letter-routing-key"
        )
    if auto_delete:
        settings["auto_delete"] = 0
    if settings.get("overflow") == "reject-dead-letter" and not settings.get("dead_letter"):
        settings["overflow"] = "reject"
    if settings.get("overflow", "drop-head") == "drop-head":
        settings["overflow"] = "dead-letter" if settings.get("dead_letter") else "drop-head"
    if type == QUORUM:
        settings.setdefault("delivery_limit", _QUORUM_LIMIT)
        settings["persist"] = True
    settings.setdefault("priorities", _QUORUM_LEVELS if type == QUORUM else 1)
    return QueuePolicy(
        durable=durable and not exclusive,
        auto_delete_when=UNCONSUMED,
        labels=labels_of(arguments),
        **settings,
    )


def exchange_policy(
    type: object,
    arguments: Mapping[str, object],
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
) -> ExchangePolicy:
    """Return the policy of an exchange that a client declares. Raises `ArgumentError`."""
    if type not in EXCHANGE_TYPES:
        raise ArgumentError(f"type: {type!r} is none of {', '.join(EXCHANGE_TYPES)}")
    alternate = ""
    for name, value in arguments.items():
        if name == ALTERNATE:
            alternate = exchange_address(_text(name, value))
        elif name.startswith("x-"):
            raise ArgumentError(f"{name}: exchanges have no such argument here")
    labels = labels_of(arguments)
    return ExchangePolicy(
        type=str(type),
        alternate=alternate,
        auto_delete=0 if auto_delete else -1,
        durable=durable,
        labels=(*labels, _INTERNAL) if internal else labels,
    )


def is_internal(policy: ExchangePolicy) -> bool:
    """Return whether clients may not publish to the exchange."""
    return _INTERNAL in policy.labels


def labels_of(arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return arguments as labels of a node. Raises `ArgumentError` for values that no argument
    has."""
    labels = []
    for name, value in sorted(arguments.items()):
        if not isinstance(value, str | int | float | bool | None):
            raise ArgumentError(f"{name}: {type(value).__name__} is no type of an argument")
        labels.append(f"{name}{_SEPARATOR}{json.dumps(value)}")
    return tuple(labels)


def arguments_of(labels: tuple[str, ...]) -> dict[str, object]:
    """Return the arguments that a node was declared with; labels of other origin are left out."""
    found: dict[str, object] = {}
    for label in labels:
        name, separator, value = label.partition(_SEPARATOR)
        if separator:
            try:
                found[name] = json.loads(value)
            except ValueError:
                continue
    return found


def type_of(policy: QueuePolicy | StreamPolicy) -> str:
    """Return the type of a queue by its policy."""
    if isinstance(policy, StreamPolicy):
        return STREAM
    return str(arguments_of(policy.labels).get(QUEUE_TYPE, CLASSIC))


def _settings(
    arguments: dict[str, object], readers: Mapping[str, _Reader], type: str
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in arguments.items():
        reader = readers.get(name)
        if reader is not None:
            setting, read = reader
            settings[setting] = read(name, value)
        elif name in _ELSEWHERE:
            raise ArgumentError(f"{name}: a queue of the type {type} has no such argument")
        elif name in _MISSING:
            raise ArgumentError(f"{name}: queues cannot do this here")
    return settings


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"{name}: a string is needed, not {value!r}")
    return value


def _number(name: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{name}: a number is needed, not {value!r}")
    if value < least:
        raise ArgumentError(f"{name}: {value} is less than {least}")
    return int(value)


def _ttl(name: str, value: object) -> int:
    # The broker's 0 means that messages stay; those that are to expire at once live for 1 ms.
    return max(1, _number(name, value))


def _positive(name: str, value: object) -> int:
    return _number(name, value, 1)


def _length(name: str, value: object) -> int:
    number = _number(name, value)
    if number == 0:
        raise ArgumentError(f"{name}: a queue without room is of no use")
    return number


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name}: a boolean is needed, not {value!r}")
    return value


def _overflow(name: str, value: object) -> str:
    if value not in _OVERFLOWS:
        raise ArgumentError(f"{name}: {value!r} is none of {', '.join(_OVERFLOWS)}")
    return _OVERFLOWS[str(value)]


def _priorities(name: str, value: object) -> int:
    if not 1 <= _number(name, value) <= 255:
        raise ArgumentError(f"{name}: {value} is not between 1 and 255")
    return _LEVELS


def _delivery_limit(name: str, value: object) -> int:
    # RabbitMQ's −1 is any number, which is the broker's 0; its 0 is none, which is the broker's −1.
    number = _number(name, value, -1)
    return {-1: 0, 0: -1}.get(number, number)


def _exchange(name: str, value: object) -> str:
    exchange = _text(name, value)
    return exchange_address(exchange) if exchange else ""


def age(name: str, value: object) -> int:
    """Return the milliseconds of a time such as ``7D``. Raises `ArgumentError`."""
    found = _MAX_AGE.fullmatch(_text(name, value))
    if found is None:
        raise ArgumentError(
            f"{name}: {value!r} is no number with one of the units Y, M, D, h, m, s"
        )
    return int(found[1]) * _SECONDS[found[2]] * 1000


def _segment(name: str, value: object) -> int:
    return _number(name, value, 1024)


_Reader = tuple[str, Callable[[str, object], object]]

_COMMON: Final[dict[str, _Reader]] = {
    "x-message-ttl": ("message_ttl", _ttl),
    "x-expires": ("auto_delete", _positive),
    "x-max-length": ("max_length", _length),
    "x-max-length-bytes": ("max_bytes", _length),
    "x-overflow": ("overflow", _overflow),
    "x-dead-letter-exchange": ("dead_letter", _exchange),
    "x-dead-letter-routing-key": ("dead_letter_key", _text),
    "x-single-active-consumer": ("single_active", _flag),
}
_CLASSIC: Final[dict[str, _Reader]] = {**_COMMON, "x-max-priority": ("priorities", _priorities)}
_QUORUM: Final[dict[str, _Reader]] = {
    **_COMMON,
    "x-delivery-limit": ("delivery_limit", _delivery_limit),
}
_STREAM: Final[dict[str, _Reader]] = {
    "x-max-length-bytes": ("max_bytes", _length),
    "x-max-age": ("max_age", age),
    "x-stream-max-segment-size-bytes": ("segment_bytes", _segment),
}
_READERS: Final = {CLASSIC: _CLASSIC, QUORUM: _QUORUM, STREAM: _STREAM}
_ELSEWHERE: Final = frozenset((*_CLASSIC, *_QUORUM, *_STREAM))
