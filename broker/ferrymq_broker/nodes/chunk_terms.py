"""The size of chunks, as the attach of a link asks for it."""

from __future__ import annotations

from mypy_extensions import i64

from ferrymq.chunks import BYTES, CHUNKS, MAX_CHUNK_BYTES, MAX_CHUNK_RECORDS, RECORDS
from ferrymq_broker.errors import BrokerError


def chunk_of(properties: dict[str, object], max_message_size: i64) -> tuple[int, int] | None:
    """Return the most bytes and records of a chunk for a link with this max-message-size (0: any);
    None if the link wants no chunks. Raises `BrokerError` if the property is invalid."""
    wanted = properties.get(CHUNKS)
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise BrokerError(
            "amqp:invalid-field",
            f"the link property {CHUNKS} is {str(wanted)[:100]!r}; it must be a map of {BYTES} "
            f"and {RECORDS}",
        )
    most = MAX_CHUNK_BYTES
    if max_message_size != 0 and max_message_size < most:
        most = int(max_message_size)
    return _limit(wanted, BYTES, most), _limit(wanted, RECORDS, MAX_CHUNK_RECORDS)


def _limit(wanted: dict[object, object], key: str, most: int) -> int:
    """Return the granted value of one of the two limits; the highest one if the link does not ask
    for a value."""
    value = wanted.get(key)
    if value is None:
        return most
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BrokerError(
            "amqp:invalid-field",
            f"{key} in the link property {CHUNKS} is {str(value)[:100]!r}; it must be a "
            "number, at least 1",
        )
    return min(value, most)
