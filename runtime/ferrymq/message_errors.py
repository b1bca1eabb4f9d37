"""Where in a message a value is that cannot be encoded. It is looked for after the encoding has
failed, so that messages without such a value pay nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from librt.strings import BytesWriter

from ferrymq_codec.errors import EncodeError
from ferrymq_types.messaging import AmqpSequence, AmqpValue, Data, Header, Properties

# Types that many try, and what to write for them.
_INSTEAD: Final[dict[str, str]] = {
    "datetime": "Timestamp.from_datetime(...) of ferrymq_codec, or text",
    "date": "text, such as date.isoformat()",
    "timedelta": "a number of seconds",
    "set": "a list",
    "frozenset": "a list",
    "complex": "two floats",
}
_TYPES: Final = "give bytes, str, bool, int, float, Decimal, UUID, None, a list or a dict of these"


def located(
    header: Header | None,
    properties: Properties | None,
    maps: dict[str, Any],
    body: Sequence[Data | AmqpSequence | AmqpValue],
) -> EncodeError | None:
    """Return an error that names the place of the first value that cannot be encoded; None if it is
    not found. `maps` are the annotations and application-properties by the names of sections."""
    if header is not None:
        for name in ("durable", "priority", "ttl", "first_acquirer", "delivery_count"):
            found = _in_field("header", name, Header, getattr(header, name))
            if found is not None:
                return found
    if properties is not None:
        for name in (
            "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type",
            "content_encoding", "absolute_expiry_time", "creation_time", "group_id",
            "group_sequence", "reply_to_group_id",
        ):  # fmt: skip
            found = _in_field("properties", name, Properties, getattr(properties, name))
            if found is not None:
                return found
    for section, value in maps.items():
        if value is not None:
            found = _in_value(section, value)
            if found is not None:
                return found
    for part in body:
        if isinstance(part, Data):
            data: object = part.value
            if not isinstance(data, bytes):
                return _other_type("message.body", data)
        else:
            found = _in_value("message.body", part.value)
            if found is not None:
                return found
    return None


def _in_field(section: str, name: str, kind: Any, value: Any) -> EncodeError | None:
    if value is None:
        return None
    try:
        kind(**{name: value}).encode(BytesWriter())
    except EncodeError as error:
        return error
    except (AttributeError, TypeError):
        return _other_type(f"{section}.{name.replace('_', '-')}", value)
    return None


def _in_value(place: str, value: Any) -> EncodeError | None:
    """Return the error of the innermost value that cannot be encoded alone."""
    try:
        AmqpValue(value).encode(BytesWriter())
    except EncodeError as error:
        reason = error.reason
    except (AttributeError, TypeError):
        reason = f"{type(value).__name__} cannot be encoded"
    else:
        return None
    if isinstance(value, dict):
        for key, item in value.items():
            if _in_value(place, key) is not None:
                return EncodeError(place, f"the key {key!r} is of no AMQP type")
            found = _in_value(f"{place}[{key!r}]", item)
            if found is not None:
                return found
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            found = _in_value(f"{place}[{index}]", item)
            if found is not None:
                return found
    name = type(value).__name__
    if reason == f"{name} has no AMQP type":
        instead = _INSTEAD.get(name)
        return EncodeError(place, f"{reason}: {_TYPES if instead is None else f'give {instead}'}")
    return EncodeError(place, reason)


def _other_type(place: str, value: object) -> EncodeError:
    return EncodeError(place, f"{type(value).__name__} is not of the type of this field")
