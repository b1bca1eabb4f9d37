"""The names of all options, as documented. Spark passes them in lower case.

The meaning, allowed values and default of an option are in the module that reads it, and in
`docs/pipeline/options.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from pyspark_ferrymq.errors import AmqpOptionError

CONNECTION: Final = (
    "url",
    "username",
    "password",
    "passwordFile",
    "passwordEnv",
    "sasl.mechanism",
    "tls.ca",
    "tls.cert",
    "tls.key",
    "tls.verify",
    "connectTimeoutMs",
    "groupId",
    "service",
    "connectionString",
    "consumerGroup",
    "brokers",
)
"""Options of the broker and the user: for reading and for writing."""

SOURCE: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxRecordsPerBatch",
    "maxBytesPerBatch",
    "failOnDataLoss",
    "includeMetadata",
    "includeRaw",
    "selector",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "hold",
    "queueMode",
    "queueSelector",
    "queueLimit",
    "queueIdleMs",
)
"""Options for reading."""

SINK: Final = (
    "address",
    "addressColumn",
    "delivery",
    "txnAppId",
    "txnVersion",
    "tasks",
    "deterministic",
    "write.retryTimeoutMs",
)
"""Options for writing."""

SPARK: Final = (
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "asyncProgressTrackingOverrideSinkSupportCheck",
)
"""Options that Spark passes to the source but uses itself."""

CHOOSING: Final = ("subscribe", "subscribePattern", "assign")
"""The options that select the streams to read; exactly one of them is required."""

_KNOWN: Final = {name.lower(): name for name in (*CONNECTION, *SOURCE, *SINK, *SPARK)}


def check_names(given: Iterable[str]) -> None:
    """Raise `AmqpOptionError` for an unknown option name."""
    for name in given:
        if name.lower() in _KNOWN:
            continue
        if name.lower() == "path":
            raise AmqpOptionError(
                "the data source amqp has no paths: a stream to read is named by the option"
                " 'subscribe', a node to write to by 'address'"
            )
        if name.lower() == "pushdown":
            raise AmqpOptionError(
                "the option 'pushdown' was removed: Spark applies the filters of one use of a frame"
                " to all its uses. Choose what to read with 'assign', 'startingOffsets',"
                " 'endingOffsets', 'startingTimestamp', 'endingTimestamp' and 'selector'"
            )
        close = get_close_matches(name.lower(), _KNOWN, n=1)
        guess = f"; did you mean {_KNOWN[close[0]]!r}?" if close else ""
        raise AmqpOptionError(
            f"there is no option {name!r}{guess}"
            f" (options: {', '.join((*CONNECTION, *SOURCE, *SINK))})"
        )
