"""The target stream of a replay: its creation, and the last step that was sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError

if TYPE_CHECKING:
    from ferrymq.blocking import Connection
    from pyspark_ferrymq.options import BrokerOptions


def prepare(options: Mapping[str, str], target: str, partitions: int) -> None:
    """Check that the target is empty and has at least so many partitions, or create it.

    Raises `AmqpOptionError` if the existing stream does not fit, and `AmqpSourceError` if it may
    not be created.
    """
    from ferrymq import ManagementError
    from pyspark_ferrymq.brokers.spread_streams import expect_here
    from pyspark_ferrymq.options import Selection
    from pyspark_ferrymq.stream_metadata import open_service

    settings = _settings(options)
    service = open_service(settings)
    try:
        found = service.ranges(Selection("subscribe", (target,))).get(target)
    finally:
        service.close()
    if found is not None:
        expect_here([found], settings.place)
    if found is None:
        with (
            _connected(settings) as connection,
            connection.management(timeout=settings.timeout) as management,
        ):
            try:
                management.create("org.ferrymq.stream", target, {"partitions": partitions})
            except ManagementError as error:
                raise AmqpSourceError(f"{error.description} ({error.status})") from None
        return
    if len(found.partitions) < partitions:
        raise AmqpOptionError(
            f"the stream {target!r} has {len(found.partitions)} partitions, and {partitions} are"
            f" needed; ferrymq admin update stream {target} partitions={partitions}"
        )
    count = sum(one.next - one.first for one in found.partitions.values())
    if count:
        raise AmqpOptionError(
            f"the stream {target!r} has {count} records already; replay to an empty one, or to"
            " continue a replay that was stopped, give its --checkpoint"
        )


def last_step(options: Mapping[str, str], run: str) -> int:
    """Return the last step of a run that was sent completely; -1 if none was.

    The rows of a replay name their partition, so the fence has one target for all rows.
    """
    from pyspark_ferrymq.writing.task_identity import EACH, WHOLE

    settings = _settings(options)
    with _connected(settings) as connection:
        found = connection.fence(run, WHOLE, target=EACH, timeout=settings.timeout)
    return -1 if found is None else found


def _settings(options: Mapping[str, str]) -> BrokerOptions:
    from pyspark_ferrymq.options import BrokerOptions, Values

    return BrokerOptions.parse(Values(options))


@contextmanager
def _connected(settings: BrokerOptions) -> Iterator[Connection]:
    from pyspark_ferrymq.options import connect

    connection = connect(settings, "replay")
    try:
        yield connection
    finally:
        connection.close()
