"""The names and sizes of the parts, readable without Spark."""

from __future__ import annotations

from typing import Final

PARTS: Final = ("reading", "archive", "sink", "query-latency", "scale", "query-memory", "brokers")
# The numbers of records in the streams of `scale`; `query-memory` has the last one.
SIZES: Final = (100_000, 1_000_000)
FULL_SIZES: Final = (*SIZES, 10_000_000)
