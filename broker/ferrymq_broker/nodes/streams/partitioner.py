"""The choice of a partition of a stream for a message.

1. The partition in the message annotation ``x-opt-partition``. 2. The partition that the
partitioner of the virtual host (`ferrymq_broker.values.partitioner`) has for the key: for the
message annotation ``x-opt-partition-key``, else for properties.group-id. 3. Without either, the
next partition in turn.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from ferrymq.partitioning import PARTITION, PARTITION_KEY
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.message import BrokerMessage
from ferrymq_broker.nodes.message_view import view_of
from ferrymq_broker.values.partitioner import Partitioner
from ferrymq_codec.scalars import Timestamp

# More digits than the number of any partition.
_DIGITS: Final = 9


def place(message: BrokerMessage, partitions: i64, partitioner: Partitioner) -> i64:
    """Return the partition that the message itself chooses, −1 if it does not.

    Raises `BrokerError` if the partition does not exist, or the key is of a wrong type.
    """
    view = view_of(message)
    annotations = view.message_annotations
    if annotations:
        chosen = annotations.get(PARTITION)
        if chosen is not None:
            return _chosen(chosen, partitions)
        key = annotations.get(PARTITION_KEY)
        if isinstance(key, str):
            return _of_key(key.encode(), partitions, partitioner)
        if isinstance(key, bytes):
            return _of_key(key, partitions, partitioner)
        if key is not None:
            raise BrokerError(
                "amqp:invalid-field",
                f"the annotation {PARTITION_KEY} is of type {type(key).__name__}; it must be a "
                "string, symbol or binary",
            )
    if partitions == 1:
        return 0
    group = view.group_id
    return -1 if group is None else _of_key(group.encode(), partitions, partitioner)


def _of_key(key: bytes, partitions: i64, partitioner: Partitioner) -> i64:
    number = partitioner(key, int(partitions))
    if number < 0 or number >= partitions:
        raise BrokerError(
            "amqp:internal-error",
            f"the partitioner of the virtual host has chosen the partition {number}; the stream "
            f"has the partitions 0 to {partitions - 1}",
        )
    return number


def _chosen(value: object, partitions: int) -> i64:
    # Check bool and Timestamp first: compiled code forgets the narrower type of an int.
    if isinstance(value, bool | Timestamp) or not isinstance(value, int):
        raise BrokerError(
            "amqp:invalid-field",
            f"the annotation {PARTITION} is of type {type(value).__name__}; it must be an int",
        )
    if value < 0 or value >= partitions:
        raise BrokerError(
            "amqp:invalid-field",
            f"the annotation {PARTITION} is {value}; the stream has the partitions 0 to "
            f"{partitions - 1}",
        )
    return value


def read_part(part: str) -> i64:
    """Return the number of a partition in an address, −1 if it is not a number. Each number has
    only one spelling."""
    if not (part.isascii() and part.isdigit()) or len(part) > _DIGITS:
        return -1
    return -1 if part[0] == "0" and len(part) > 1 else int(part)
