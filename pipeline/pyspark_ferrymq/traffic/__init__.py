"""Traffic to try pipelines on: a small shop and its vans, made up from a seed.

The same settings give the same messages, byte for byte: `Ledger.digest` says so. Keys are skewed,
the day has its rhythm and its bursts, some messages come late, some come twice, some are poison.

    async with ferrymq.connect(url, desired_capabilities=[LINK_PAIR]) as connection:
        ledger = await produce(connection, Traffic(seed=7, count=10_000))

Needs the client alone, neither Spark nor Java.
"""

from __future__ import annotations

from pyspark_ferrymq.traffic.ledger import Ledger
from pyspark_ferrymq.traffic.producer import produce
from pyspark_ferrymq.traffic.scenario import Traffic, TrafficEvent
from pyspark_ferrymq.traffic.workers import Shift, work

__all__ = ["TrafficEvent", "Ledger", "Shift", "Traffic", "produce", "work"]
