"""The PySpark data source `amqp`: reads and writes streams of an AMQP 1.0 broker.

PySpark finds a top-level package of this name and its `DefaultSource` automatically:

    spark.read.format("amqp").option("url", …).option("subscribe", "orders").load()

If it cannot search there (``--py-files``), call `register(spark)` first. Modules that need PySpark
are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import (
    AmqpDataLossError,
    AmqpOptionError,
    AmqpSourceError,
    AmqpWriteError,
)

if TYPE_CHECKING:
    from pyspark_ferrymq.lag import LagListener, lag_of
    from pyspark_ferrymq.source import DefaultSource, register

__all__ = [
    "DefaultSource",
    "register",
    "LagListener",
    "lag_of",
    "AmqpDataLossError",
    "AmqpOptionError",
    "AmqpSourceError",
    "AmqpWriteError",
]

_HOMES: Final = {
    "DefaultSource": "pyspark_ferrymq.source",
    "register": "pyspark_ferrymq.source",
    "LagListener": "pyspark_ferrymq.lag",
    "lag_of": "pyspark_ferrymq.lag",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pyspark_ferrymq' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List all public names, imported or not."""
    return sorted({*globals(), *__all__})
