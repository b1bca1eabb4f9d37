"""The differences between Spark 4.0, 4.1, 4.2 and 4.3. No other module asks for a version.

Spark 4.0 has no streaming writer of record batches. Spark 4.0 and 4.1 have no admission control:
they ask a source for the end of a batch without its start and without a limit, and run
`availableNow` as one batch. A feature is recognized by what `pyspark` offers, because the runtime
of a vendor may have features of a later release.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema

from pyspark_ferrymq.errors import AmqpOptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "ADMISSION_CONTROL",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "limit_error",
    "register_source",
]

_END: Final = inspect.signature(DataSourceStreamReader.latestOffset).parameters

ADMISSION_CONTROL: Final = "start" in _END
"""Whether Spark tells a source the start of a batch and a limit (4.2 and newer)."""

_TIMEZONE: Final = "timezone" in inspect.signature(to_arrow_schema).parameters

# A type checker sees the newest Spark only.
if TYPE_CHECKING or ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit of a batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit, whatever the options say."""

    @dataclass
    class ReadMinRows(ReadLimit):
        """No batch with fewer records."""

        min_rows: int

    @dataclass
    class ReadMaxRows(ReadLimit):
        """At most this number of records."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """At most about this number of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:
        """A source that can end at a target."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):
        """A streaming writer that gets record batches.

        A task of Spark 4.0 passes record batches to every `DataSourceArrowWriter`, in batch and in
        streaming queries. Only the name of the class for streaming came later.
        """


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of a frame, with timestamps in UTC.

    Raises what Spark and Arrow raise for a type without an Arrow type.
    """
    if _TIMEZONE:
        return to_arrow_schema(schema, timezone="UTC")
    # Here UTC is the default.
    return to_arrow_schema(schema)


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a data source in a session. Spark 4.0 refuses one that it has found itself."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def limit_error(option: str) -> AmqpOptionError:
    """Return the error for a limit of batches, without admission control."""
    return AmqpOptionError(
        f"the option {option!r} needs Spark 4.2 or newer, or the option 'trigger' = processingTime:"
        f" on Spark {pyspark.__version__}, a query with availableNow has one batch only, and with a"
        " limit it would not read all there is"
    )
