"""The exchanges that every virtual host has from the start."""

from __future__ import annotations

from typing import Final

# With their types.
PREDECLARED: Final = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
