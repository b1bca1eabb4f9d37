"""The sections of a message as JSON, by the names of the specification (AMQP 1.0 §3.2)."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.json_values import plain
from ferrymq_codec.errors import DecodeError
from ferrymq_codec.reader import Reader
from ferrymq_types.messaging import (
    AmqpSequence,
    AmqpValue,
    ApplicationProperties,
    Data,
    DeliveryAnnotations,
    Footer,
    Header,
    MessageAnnotations,
    Properties,
)
from ferrymq_types.unions import decode_section

# The sections whose content is one value, and their names.
_VALUES: Final = {
    DeliveryAnnotations: "delivery-annotations",
    MessageAnnotations: "message-annotations",
    ApplicationProperties: "application-properties",
    Data: "data",
    AmqpSequence: "amqp-sequence",
    AmqpValue: "amqp-value",
    Footer: "footer",
}
_FIELDS: Final = {Header: "header", Properties: "properties"}
# The most sections of one message; a body may have any number of them.
_MOST: Final = 100


def sections_of(payload: bytes) -> list[dict[str, object]]:
    """Return the sections in their order, as maps with ``section`` and ``value``. A section that
    cannot be read has ``error`` in place of the value, and is the last."""
    found: list[dict[str, object]] = []
    reader = Reader(payload, 0, len(payload))
    while reader.remaining():
        if len(found) == _MOST:
            found.append({"section": "", "error": f"{reader.remaining()} bytes more"})
            break
        try:
            section = decode_section(reader, "message")
        except DecodeError as error:
            found.append({"section": "", "error": str(error)})
            break
        kind = type(section)
        name = _VALUES.get(kind)
        if name is not None:
            found.append({"section": name, "value": plain(getattr(section, "value"))})  # noqa: B009
            continue
        fields = {
            field.replace("_", "-"): plain(value)
            for field in getattr(kind, "__dataclass_fields__", ())
            if (value := getattr(section, field)) is not None
        }
        found.append({"section": _FIELDS.get(kind, kind.__name__), "value": fields})
    return found
