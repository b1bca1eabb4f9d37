"""The commit of the capture sink in the driver: files of finished tasks get their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ferrymq.capture import (
    TMP,
    CaptureError,
    CaptureName,
    Place,
    claim,
    coverage,
    open_place,
    parse_name,
    stream_folder,
)
from pyspark_ferrymq.errors import AmqpWriteError

if TYPE_CHECKING:
    from pyspark_ferrymq.capture.options import CaptureSinkOptions
    from pyspark_ferrymq.capture.write_task import WrittenFiles


class _Plan(NamedTuple):
    """Files that get their names, files not needed, and files that are replaced."""

    settled: list[tuple[str, CaptureName]]
    spare: list[str]
    replaced: list[CaptureName]


def settle(options: CaptureSinkOptions, written: Sequence[WrittenFiles]) -> None:
    """Make the files of all tasks visible. Raises `AmqpWriteError` if they conflict with existing
    files: then none becomes visible."""
    files: dict[str, list[tuple[str, CaptureName]]] = defaultdict(list)
    for each in written:
        for stream, some in each.files.items():
            files[stream] += some
    if not files:
        return
    incarnations = _incarnations(options, sorted(files))
    plans: list[tuple[Place, _Plan]] = []
    jobs = tuple({f"{TMP}{each.job}-" for each in written})
    try:
        for stream, some in files.items():
            place = open_place(options.path, stream_folder(stream))
            claim(place, stream, incarnations.get(stream, ""))
            paths = list(place.paths())
            plan = _plan(options, stream, place.base, paths, some)
            # Files of failed attempts are removed, too.
            own = {tmp for tmp, _ in some}
            plan.spare.extend(
                path
                for path in paths
                if path.rpartition("/")[2].startswith(jobs) and path not in own
            )
            plans.append((place, plan))
    except CaptureError as error:
        raise AmqpWriteError(f"option 'path': {error}") from None
    for place, plan in plans:
        for tmp, name in plan.settled:
            place.settle(tmp, name.path)
        for name in plan.replaced:
            place.remove(name.path)
        for tmp in plan.spare:
            place.remove(tmp)


def discard(options: CaptureSinkOptions, written: Sequence[WrittenFiles]) -> None:
    """Remove the files of tasks. Files still being written are removed with the next batch."""
    for each in written:
        for stream, files in each.files.items():
            place = open_place(options.path, stream_folder(stream))
            for tmp, _ in files:
                place.remove(tmp)


def _incarnations(options: CaptureSinkOptions, streams: list[str]) -> dict[str, str]:
    if options.connection is None:
        return {}
    from pyspark_ferrymq.brokers.several_brokers import only_broker
    from pyspark_ferrymq.options import Selection
    from pyspark_ferrymq.stream_metadata import open_service

    service = open_service(only_broker(options.connection))
    try:
        found = service.ranges(Selection("subscribe", tuple(streams)))
    finally:
        service.close()
    for stream in streams:
        if stream not in found:
            raise AmqpWriteError(
                f"there is no stream {stream!r} at {options.connection.place} (option 'url') to"
                " compare capture files with"
            )
    return {stream: ranges.incarnation for stream, ranges in found.items()}


def _plan(
    options: CaptureSinkOptions,
    stream: str,
    base: str,
    paths: list[str],
    files: list[tuple[str, CaptureName]],
) -> _Plan:
    known = [name for path in paths if (name := parse_name(path)) is not None]
    covered = coverage(known)
    plan = _Plan([], [], [])
    ends = {partition: each.next for partition, each in covered.items()}
    for tmp, name in sorted(files, key=lambda file: (file[1].partition, file[1].first)):
        where = f"stream {stream!r}, partition {name.partition}"
        have = covered.get(name.partition)
        if have is not None and have.covers(name.first, name.next):
            plan.spare.append(tmp)
            continue
        for other in known:
            if other.partition != name.partition:
                continue
            if name.first <= other.first and other.last <= name.last:
                # A file of an earlier attempt that was split differently: the new file has all its
                # records.
                plan.replaced.append(other)
            elif other.first <= name.last and name.first <= other.last:
                raise AmqpWriteError(
                    f"{where}: {base}/{other.path} has a part of the offsets from"
                    f" {name.first} to {name.last} already. Two queries write there, or one with"
                    " another checkpoint: give each a path of its own"
                )
        end = ends.get(name.partition)
        if end is not None and name.first > end and not options.allow_gaps:
            raise AmqpWriteError(
                f"{where}: the files in {base} end at {end - 1}, and the next row has the"
                f" offset {name.first}. Begin the query at {end} in partition"
                f" {name.partition} (option 'startingOffsets'); if the rows between"
                " are gone from the stream, set the option 'allowGaps' to true"
            )
        ends[name.partition] = max(name.next, end or 0)
        plan.settled.append((tmp, name))
    return plan
