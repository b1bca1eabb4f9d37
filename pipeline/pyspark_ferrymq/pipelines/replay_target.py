"""The stream that a replay goes to: made if it is not there, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError

if TYPE_CHECKING:
    from ferrymq.blocking import Connection
    from pyspark_ferrymq.options import BrokerOptions


def prepare(options: Mapping[str, str], target: str, partitions: int) -> None:
    """See to it that there is an empty stream with so many partitions, or more.

    Raises `AmqpOptionError` if there is one that will not do, and `AmqpSourceError` if it may not
    be made.
    """
    from ferrymq import ManagementError
    from pyspark_ferrymq.options import Selection
    from pyspark_ferrymq.stream_metadata import open_service

    settings = _settings(options)
    service = open_service(settings)
    try:
        found = service.ranges(Selection("subscribe", (target,))).get(target)
    finally:
        service.close()
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
            f"the stream {target!r} has {count} records already; replay into a fresh one, or to go"
            " on with a replay that was stopped, give its --checkpoint"
        )


def last_step(options: Mapping[str, str], run: str) -> int:
    """Return the last step of a run that is sent as a whole; -1 if none is.

    The rows of a replay say themselves which partition they go to.
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
