"""The names of all options, as they are documented. Spark hands them over in lower case.

What a name is for, what it may say and what it says by default is in the module that reads it, and
in `docs/pipeline/options.md`.
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
)
"""Where to connect, and as whom: for reading and for writing."""

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
"""What to read, and how."""

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
"""Where to write, and how."""

SPARK: Final = (
    "checkpointLocation",
    "queryName",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "asyncProgressTrackingOverrideSinkSupportCheck",
)
"""What Spark hands over that is meant for itself."""

CHOOSING: Final = ("subscribe", "subscribePattern", "assign")
"""The options that say what to read, one of which there has to be."""

_KNOWN: Final = {name.lower(): name for name in (*CONNECTION, *SOURCE, *SINK, *SPARK)}


def check_names(given: Iterable[str]) -> None:
    """Raise `AmqpOptionError` for a name that is no option."""
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
                "the option 'pushdown' is gone: Spark applies the filters of one use of a frame to"
                " all its uses. What is to be read is said by 'assign', 'startingOffsets',"
                " 'endingOffsets', 'startingTimestamp', 'endingTimestamp' and 'selector'"
            )
        close = get_close_matches(name.lower(), _KNOWN, n=1)
        guess = f"; did you mean {_KNOWN[close[0]]!r}?" if close else ""
        raise AmqpOptionError(
            f"there is no option {name!r}{guess}"
            f" (options: {', '.join((*CONNECTION, *SOURCE, *SINK))})"
        )
