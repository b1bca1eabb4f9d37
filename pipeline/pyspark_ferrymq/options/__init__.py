"""Options: their names, their values, what they mean together, and connecting with them."""

from pyspark_ferrymq.options.connection import AmqpUnreachableError, ConnectionSettings, connect
from pyspark_ferrymq.options.names import check_names
from pyspark_ferrymq.options.selection import Selection
from pyspark_ferrymq.options.source import SourceOptions
from pyspark_ferrymq.options.values import Values

__all__ = [
    "ConnectionSettings",
    "Selection",
    "SourceOptions",
    "AmqpUnreachableError",
    "Values",
    "check_names",
    "connect",
]
