"""All options of the source, parsed once in the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.foreign.unsupported_options import check_options
from pyspark_ferrymq.options.connection import BrokerOptions
from pyspark_ferrymq.options.names import SINK, check_names
from pyspark_ferrymq.options.option_values import Values, kafka_columns, wrong
from pyspark_ferrymq.options.start_and_end import AtEnd, Bound, check_batch, ending, starting
from pyspark_ferrymq.options.subscription import Selection

QUEUE_MODES: Final = ("browse", "consume")
"""The modes of reading queues."""

TRIGGERS: Final = ("processingTime",)
"""The triggers that a query can name."""

# The largest chunk that the broker allows.
_MOST_RECORDS: Final = 65_536
_MOST_BYTES: Final = 16 * 1024 * 1024
_LONGEST_HOLDER: Final = 256
# The most messages of a lease, and how long it may hold, in milliseconds.
MOST_LEASED: Final = 65_536
_SHORTEST_LEASE: Final = 1_000
_LONGEST_LEASE: Final = 86_400_000
# The longest selector, in characters, that the broker accepts.
_LONGEST_SELECTOR: Final = 8192


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The nodes and the range to read, and how. Times are in milliseconds, sizes in bytes.

    None means "not given". The names are those of the options.
    """

    connection: BrokerOptions
    selection: Selection
    starting: Bound | None = None
    ending: Bound | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: int = 15 * 60_000
    trigger: str | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_records_per_batch: int = 5_000
    # More bytes do not stay in the processor's caches: with 8 MiB, a worker needs 0.4 µs more for a
    # row of 1 KiB.
    max_bytes_per_batch: int = 1024 * 1024
    fail_on_data_loss: bool = True
    include_metadata: bool = False
    include_raw: bool = False
    kafka: bool = False
    """Whether the columns are those of Kafka."""

    include_headers: bool = False
    selector: str | None = None
    num_retries: int = 3
    retry_interval: int = 10
    hold: str | None = None
    queue_mode: str | None = None
    queue_selectors: tuple[str, ...] = ()
    queue_limit: int | None = None
    queue_idle: int = 5_000
    queue_lease: int = 5 * 60_000

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options. Raises `AmqpOptionError` for the first wrong one."""
        check_names(options)
        given = Values(options)
        for name in given.given(SINK):
            raise AmqpOptionError(f"the option {name!r} is only for writing")
        given.at_most_one("maxOffsetsPerTrigger", "maxBytesPerTrigger")
        given.needs("maxTriggerDelay", "minOffsetsPerTrigger")
        most = given.number("maxOffsetsPerTrigger", 1)
        least = given.number("minOffsetsPerTrigger", 1)
        if most is not None and least is not None and least > most:
            raise AmqpOptionError(
                f"option 'minOffsetsPerTrigger': {least} is more than the {most} of"
                " 'maxOffsetsPerTrigger'"
            )
        hold = given.text("hold")
        if hold is not None and len(hold) > _LONGEST_HOLDER:
            raise AmqpOptionError(
                f"option 'hold': the name has {len(hold)} characters; {_LONGEST_HOLDER} are allowed"
            )
        kafka = kafka_columns(given)
        for name in given.given(("includeMetadata", "includeRaw", "queueMode")):
            if kafka:
                raise AmqpOptionError(
                    f"the options 'columns' = kafka and {name!r} exclude each other: these are not"
                    " columns of Kafka"
                )
        connection = BrokerOptions.parse(given)
        if connection.service == "eventhubs":
            check_options(given)
        queue_mode = given.choice("queueMode", QUEUE_MODES, "") or None
        for name in ("queueSelector", "queueLimit", "queueIdleMs", "queueLeaseMs"):
            given.needs(name, "queueMode")
        if given.has("queueLeaseMs") and queue_mode != "consume":
            raise AmqpOptionError("the option 'queueLeaseMs' is for 'queueMode' = consume")
        return cls(
            connection=connection,
            selection=Selection.parse(given),
            starting=starting(given),
            ending=ending(given),
            max_offsets_per_trigger=most,
            max_bytes_per_trigger=given.size("maxBytesPerTrigger"),
            min_offsets_per_trigger=least,
            max_trigger_delay=_or(given.milliseconds("maxTriggerDelay"), cls.max_trigger_delay),
            trigger=given.choice("trigger", TRIGGERS, "") or None,
            min_partitions=given.number("minPartitions", 1, 1_000_000),
            max_records_per_partition=given.number("maxRecordsPerPartition", 1),
            max_records_per_batch=_or(
                given.number("maxRecordsPerBatch", 1, _MOST_RECORDS), cls.max_records_per_batch
            ),
            max_bytes_per_batch=_or(
                given.size("maxBytesPerBatch", 1, _MOST_BYTES), cls.max_bytes_per_batch
            ),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            include_metadata=given.flag("includeMetadata", False),
            include_raw=given.flag("includeRaw", False),
            kafka=kafka,
            include_headers=given.flag("includeHeaders", False),
            selector=_selector(given),
            num_retries=_or(given.number("fetchOffset.numRetries", 0, 1_000_000), cls.num_retries),
            retry_interval=_or(
                given.milliseconds("fetchOffset.retryIntervalMs"), cls.retry_interval
            ),
            hold=hold,
            queue_mode=queue_mode,
            queue_selectors=_selectors(given),
            queue_limit=given.number("queueLimit", 1),
            queue_idle=_or(given.milliseconds("queueIdleMs", 1), cls.queue_idle),
            queue_lease=_lease_time(given),
        )

    def for_batch(self) -> tuple[Bound, Bound]:
        """Return start and end of a batch. Raises `AmqpOptionError` for streaming-only options."""
        check_batch(self.starting)
        for name, value in (
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger),
            ("maxBytesPerTrigger", self.max_bytes_per_trigger),
            ("minOffsetsPerTrigger", self.min_offsets_per_trigger),
            ("trigger", self.trigger),
            ("hold", self.hold),
        ):
            if value is not None:
                raise AmqpOptionError(f"the option {name!r} is for readStream, and this is a batch")
        return self.starting or AtEnd("earliest"), self.ending or AtEnd("latest")

    def for_streaming(self) -> Bound:
        """Return the start of a new query. Raises `AmqpOptionError` for batch-only options."""
        if self.ending is not None:
            raise AmqpOptionError(
                "the options 'endingOffsets', 'endingTimestamp' and 'endingOffsetsByTimestamp' are"
                " for batches; a query ends with trigger(availableNow=True), or by stop()"
            )
        if self.queue_mode == "browse":
            raise AmqpOptionError(
                "option 'queueMode': browse is for batches only, because a checkpoint cannot hold a"
                " position in a queue. The mode of queries is consume, which takes the messages;"
                " or send them to a stream (also as dead letters, or by an exchange)"
            )
        return self.starting or AtEnd("latest")

    def for_consuming(self) -> None:
        """Check the options of a query that consumes queues. Raises `AmqpOptionError`."""
        if self.selection.option != "subscribe":
            raise AmqpOptionError(
                f"option {self.selection.option!r}: with 'queueMode' = consume, queues are named by"
                " the option 'subscribe'"
            )
        for name, value in (
            ("startingOffsets", self.starting),
            ("endingOffsets", self.ending),
            ("minOffsetsPerTrigger", self.min_offsets_per_trigger),
            ("hold", self.hold),
            ("queueSelector", self.queue_selectors or None),
            ("queueLimit", self.queue_limit),
        ):
            if value is not None:
                raise AmqpOptionError(
                    f"option {name!r}: it cannot be used with 'queueMode' = consume, which takes"
                    " the messages of a queue in their order"
                )
        most = self.max_offsets_per_trigger
        if most is not None and most > MOST_LEASED * len(self.selection.names):
            raise AmqpOptionError(
                f"option 'maxOffsetsPerTrigger': {most} is more than a batch can have of its"
                f" queues: {MOST_LEASED} of each"
            )


def _lease_time(given: Values) -> int:
    """Return how long a lease holds."""
    time = _or(given.milliseconds("queueLeaseMs"), SourceOptions.queue_lease)
    if not _SHORTEST_LEASE <= time <= _LONGEST_LEASE:
        raise wrong("queueLeaseMs", str(given.text("queueLeaseMs")), "from 1s to 1d")
    return time


def _selector(given: Values) -> str | None:
    """Return the condition for records of streams."""
    text = given.text("selector")
    if text is not None and given.has("queueMode"):
        raise AmqpOptionError(
            "option 'selector': it is for streams; the selectors of queues are in the option"
            " 'queueSelector'"
        )
    if text is not None and len(text) > _LONGEST_SELECTOR:
        raise AmqpOptionError(
            f"option 'selector': it has {len(text)} characters; {_LONGEST_SELECTOR} are allowed"
        )
    return text


def _selectors(given: Values) -> tuple[str, ...]:
    """Return the selectors of queues: the option has one, or a JSON list."""
    text = given.text("queueSelector")
    if text is None:
        return ()
    if not text.lstrip().startswith("["):
        return (text,)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(type(one) is str for one in found):
        raise wrong("queueSelector", text, "a selector, or a JSON list of selectors")
    return tuple(found)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
