"""The names of annotations that stand for parts of a message of AMQP 0-9-1."""

from __future__ import annotations

from typing import Final

EXCHANGE: Final = "x-exchange"
ROUTING_KEY: Final = "x-routing-key"
# The property `type`.
BASIC_TYPE: Final = "x-basic-type"
# The header `CC`.
CARBON_COPY: Final = "x-cc"
# A map of the headers, and one of the properties, for which AMQP 1.0 has no other place.
OTHER_HEADERS: Final = "x-amqp-0-9-1-headers"
OTHER_PROPERTIES: Final = "x-amqp-0-9-1-properties"

# The beginning of names of headers that are annotations.
EXTENSION: Final = "x-"
# The beginnings of annotations that only the broker sets: of dead letters, for which clients of
# AMQP 0-9-1 get the headers `x-death` and so on; of records, for which they get `x-stream-offset`.
BROKER_SETS: Final = (
    "x-opt-deadletter-",
    "x-opt-original-ttl",
    "x-opt-offset",
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-partition",
)
# Names that are no plain headers, because the conversion uses them.
USED: Final = frozenset(
    (EXCHANGE, ROUTING_KEY, BASIC_TYPE, CARBON_COPY, OTHER_HEADERS, OTHER_PROPERTIES)
)
