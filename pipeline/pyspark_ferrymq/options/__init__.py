"""Options: their names, their values, their combinations, and connecting with them."""

from pyspark_ferrymq.options.connection import AmqpUnreachableError, BrokerOptions, connect
from pyspark_ferrymq.options.names import check_names
from pyspark_ferrymq.options.option_values import Values
from pyspark_ferrymq.options.source import SourceOptions
from pyspark_ferrymq.options.subscription import Selection

__all__ = [
    "BrokerOptions",
    "Selection",
    "SourceOptions",
    "AmqpUnreachableError",
    "Values",
    "check_names",
    "connect",
]
