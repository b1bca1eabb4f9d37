"""The nodes of a run, and what the checks have to know of them."""

from __future__ import annotations

from typing import Any, Final

# Small, so that many files of the journal are filled and applied in every life.
SEGMENT_BYTES: Final = 128 * 1024

CONFIG: Final = """
[store]
segment-bytes = {segment_bytes}
max-bytes = {max_bytes}

[limits]
credit = {credit}
idle-time-out = {idle_time_out}
close-timeout = 2

[shutdown]
drain-timeout = 0.5

[[queue]]
name = "orders"

[[queue]]
name = "work"
delivery-limit = 2
dead-letter = "work.dead"
auto-delete = "1ms"

[[queue]]
name = "work.dead"

[[queue]]
name = "inbox"
dead-letter = "inbox.dead"

[[queue]]
name = "inbox.dead"

[[queue]]
name = "left"

[[queue]]
name = "right"

[[queue]]
name = "later"

[[queue]]
name = "again"
duplicate-window = "10m"

[[queue]]
name = "once"

[[queue]]
name = "batches"

[[queue]]
name = "tight"
max-length = 30
overflow = "block"

[[queue]]
name = "full"
max-length = 30

[[queue]]
name = "spill"
max-length = 10
overflow = "dead-letter"
dead-letter = "spill.dead"

[[queue]]
name = "spill.dead"

[[queue]]
pattern = "made.*"
auto-delete = "1ms"

[[topic]]
name = "news"
auto-delete = "1ms"

[topic.subscription]
max-length = 2000
overflow = "block"

[[stream]]
name = "log"
partitions = 2
segment-bytes = "64KiB"

[[exchange]]
name = "both"
routing = "fanout"

[[exchange.binding]]
to = "left"

[[exchange.binding]]
to = "right"
"""

STREAM: Final = "log"
PARTITIONS: Final = 2
# One that management declares, one that a receiver leaves behind.
DECLARED_SUBSCRIPTION: Final = "news::declared"
LEFT_SUBSCRIPTION: Final = "news::reader/daily"
SUBSCRIPTIONS: Final = (DECLARED_SUBSCRIPTION, LEFT_SUBSCRIPTION)
# Durable by their times of life: queues that take what comes for others are drained last.
QUEUES: Final = (
    "orders",
    "work",
    "inbox",
    "left",
    "right",
    "later",
    "again",
    "once",
    "batches",
    "tight",
    "full",
    "spill",
    "made.1",
    *SUBSCRIPTIONS,
    "work.dead",
    "inbox.dead",
    "spill.dead",
)
# Where what is sent to a node comes to.
FAN_OUT: Final = {"news": list(SUBSCRIPTIONS), "both": ["left", "right"]}

LAYOUT: Final[dict[str, Any]] = {
    "dead": {"work": "work.dead", "inbox": "inbox.dead", "spill": "spill.dead"},
    "streams": [STREAM],
    "limits": {"work": 2},
    "overflows": ["spill"],
}


def destinations(node: str) -> list[str]:
    """The queues or the stream that get what is sent to a node."""
    return FAN_OUT.get(node, [node])
