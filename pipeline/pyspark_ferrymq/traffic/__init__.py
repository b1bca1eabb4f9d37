"""Test traffic for pipelines: a small shop and its vans, generated from a seed.

The same settings make the same messages, byte for byte; `Ledger.digest` confirms it. Keys are
skewed, the rate varies over the day, and some messages are late, duplicate or malformed.

    async with ferrymq.connect(url, desired_capabilities=[LINK_PAIR]) as connection:
        ledger = await produce(connection, Traffic(seed=7, count=10_000))

The traffic needs only the client, neither Spark nor Java.
"""

from __future__ import annotations

from pyspark_ferrymq.traffic.ledger import Ledger
from pyspark_ferrymq.traffic.producer import produce
from pyspark_ferrymq.traffic.scenario import Traffic, TrafficEvent
from pyspark_ferrymq.traffic.workers import Shift, work

__all__ = ["TrafficEvent", "Ledger", "Shift", "Traffic", "produce", "work"]
