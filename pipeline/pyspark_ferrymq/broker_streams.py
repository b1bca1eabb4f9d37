"""The streams of a ferrymq broker, as reported by its management."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark_ferrymq.broker_requests import BrokerRequests
from pyspark_ferrymq.errors import AmqpSourceError
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges

if TYPE_CHECKING:
    from pyspark_ferrymq.options import BrokerOptions, Selection

_STREAM: Final = "stream"


class BrokerStreams:
    """The `StreamService` of a ferrymq broker, over one connection that is opened when needed."""

    def __init__(self, settings: BrokerOptions) -> None:
        self._settings = settings
        self._requests = BrokerRequests(settings)

    def broker_ids(self) -> dict[str, str]:
        """Return the identity of the only broker, if it tells one."""
        return {self._requests.broker_id: ""} if self._requests.broker_id else {}

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        """Return the ranges of the selected streams that this user may read."""
        arguments: dict[str, object] = {}
        if selection.pattern is None:
            arguments["names"] = list(selection.names)
        found: dict[str, StreamRanges] = {}
        while True:
            answer = self._ask("RANGES", None, arguments)
            for stream in _maps(answer, "streams"):
                name = str(stream["name"])
                if not selection.matches(name):
                    continue
                partitions = {}
                here = set()
                for item in _maps(stream, "partitions"):
                    number = int(item["partition"])
                    here.add(number)
                    if selection.reads(name, number):
                        partitions[number] = _range(number, item)
                elsewhere = {
                    int(item["partition"]): tuple(map(str, item["urls"]))
                    for item in (_maps(stream, "placement") if "placement" in stream else ())
                    if int(item["partition"]) not in here
                    and selection.reads(name, int(item["partition"]))
                }
                found[name] = StreamRanges(name, str(stream["incarnation"]), partitions, elsewhere)
            after = answer.get("after")
            if not isinstance(after, str):
                return found
            arguments["after"] = after

    def explain(self, name: str) -> str:
        """Explain why there is no such stream, and mention a queue of this name."""
        place = self._settings.place
        try:
            self._ask("READ", name, type="queue")
        except AmqpSourceError:
            return f"there is no stream {name!r} at {place} that this user may read"
        return (
            f"there is a queue {name!r} at {place}, and no stream; queues are read in a batch with"
            " the option 'queueMode' = browse"
        )

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        """Locate the first records from these times on, with LOCATE."""
        from ferrymq_codec.scalars import Timestamp

        return self._locate(
            name,
            {number: {"time": Timestamp(time)} for number, time in times.items()},
        )

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Locate the offsets after a number of bytes, with LOCATE.

        Records that are not in the broker's memory count with their average size.
        """
        return self._locate(
            name,
            {
                number: {"offset": offset, "bytes": size}
                for number, (offset, size) in places.items()
            },
        )

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        """Set a hold, with HOLD."""
        items = [
            {"partition": number, "offset": offset} for number, offset in sorted(offsets.items())
        ]
        self._ask("HOLD", name, {"holder": holder, "offsets": items})

    def close(self) -> None:
        """Close the connection."""
        self._requests.close()

    def _locate(self, name: str, positions: Mapping[int, dict[str, object]]) -> dict[int, int]:
        if not positions:
            return {}
        items = [{"partition": number, **position} for number, position in positions.items()]
        offsets = self._ask("LOCATE", name, {"positions": items}).get("offsets")
        if not isinstance(offsets, list) or len(offsets) != len(items):
            raise AmqpSourceError(f"{self._settings.place} answers LOCATE with {offsets!r}"[:300])
        return dict(zip(positions, map(int, offsets), strict=True))

    def _ask(
        self,
        operation: str,
        name: str | None,
        arguments: Mapping[str, object] | None = None,
        *,
        type: str = _STREAM,
    ) -> dict[str, Any]:
        return self._requests.ask(operation, type, name, arguments)


def _maps(answer: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = answer.get(key)
    if not isinstance(found, list):
        raise AmqpSourceError(f"the broker's answer has no {key}: {answer!r}"[:300])
    return found


def _range(number: int, item: Mapping[str, Any]) -> PartitionRange:
    last = item.get("last-time")
    return PartitionRange(
        number,
        int(item["first-offset"]),
        int(item["next-offset"]),
        int(item["bytes"]),
        None if last is None else int(last),
    )
