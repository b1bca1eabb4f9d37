"""The features that are tried on each version of Spark, and their tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Feature:
    """A row of the table: a feature, and the tests that show it. CI runs those of `core`
    features on old versions too."""

    name: str
    tests: tuple[str, ...]
    core: bool = False


FEATURES: Final = (
    Feature("read a batch, every column", ("test_source_batch.py::test_all_columns",), core=True),
    Feature(
        "read from offsets, and from a time",
        (
            "test_source_batch.py::test_from_offsets_to_offsets",
            "test_source_batch.py::test_by_time",
        ),
    ),
    Feature(
        "write a batch exactly once",
        ("test_sink_batch.py::test_a_task_that_fails_after_its_commit_writes_nothing_twice",),
        core=True,
    ),
    Feature("write every column", ("test_sink_batch.py::test_every_column",)),
    Feature(
        "bodies of every type are written as they were read",
        ("test_round_trip.py::test_bodies_of_every_type_are_written_as_they_were_read",),
    ),
    Feature(
        "timestamps are the same instants in every time zone",
        ("test_spark_versions.py::test_times_are_the_same_in_every_time_zone",),
        core=True,
    ),
    Feature(
        "a query with `availableNow` reads each record once, through restarts and repeated batches",
        ("test_spark_versions.py::test_every_record_once_through_restarts_and_repeated_batches",),
        core=True,
    ),
    Feature(
        "`maxOffsetsPerTrigger` with `availableNow`",
        ("test_spark_versions.py::test_limits_with_available_now",),
        core=True,
    ),
    Feature(
        "`maxOffsetsPerTrigger` with `trigger` = `processingTime`",
        ("test_spark_versions.py::test_limits_with_a_trigger_that_is_named",),
        core=True,
    ),
    Feature(
        "`minOffsetsPerTrigger`",
        ("test_source_stream.py::test_it_waits_until_there_is_enough",),
    ),
    Feature(
        "streams and partitions that come later",
        ("test_source_stream.py::test_streams_and_partitions_that_come_later",),
    ),
    Feature(
        "records that are gone are named", ("test_source_loss.py::test_records_that_are_gone",)
    ),
    Feature(
        "a query writes exactly once, repeated batches too",
        ("test_sink_streaming.py::test_a_batch_that_is_repeated_writes_nothing_twice",),
        core=True,
    ),
    Feature(
        "a batch that was half done is done by as many tasks",
        ("test_sink_streaming.py::test_a_batch_that_was_half_done_is_done_by_as_many_tasks",),
    ),
    Feature(
        "a batch with other rows than before is refused",
        ("test_sink_fences.py::test_a_batch_with_other_rows_is_refused",),
    ),
    Feature(
        "a query follows its broker to another URL",
        ("test_failover.py::test_a_query_follows_the_broker",),
    ),
    Feature(
        "browse a queue",
        ("test_queue_browse.py::test_all_there_is_and_nothing_is_taken",),
    ),
    Feature(
        "read and write Event Hubs",
        (
            "test_foreign_event_hubs.py::test_a_hub_is_read_like_a_stream",
            "test_foreign_event_hubs.py::test_rows_into_a_hub_by_their_keys",
        ),
    ),
    Feature("capture files", ("test_capture_sink.py::test_a_query_captures_and_goes_on",)),
    Feature(
        "`metrics --once` gives the windows that are over",
        (
            "test_pipelines_metrics.py"
            "::test_windows_come_once_when_they_are_over_and_are_written_once",
        ),
    ),
    Feature(
        "`triage`",
        ("test_pipelines_triage.py::test_groups_are_those_of_the_ledger",),
    ),
    Feature(
        "`archive` and `replay`",
        ("test_pipelines_archive.py::test_live_alone_byte_for_byte",),
    ),
)
