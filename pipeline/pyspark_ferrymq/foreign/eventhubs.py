"""Event Hubs in the driver: hubs and their partitions, from the node ``$management``.

A hub is a stream. The offset of a record is the event's sequence number, which rises by one from
event to event, so gaps are detected. The service's own offset is text that does not tell how many
events there are. A hub that was made again has another time of creation, which is its incarnation.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError
from pyspark_ferrymq.foreign.hub_reader import address_of, read_range, sequence_number
from pyspark_ferrymq.foreign.unsupported_options import NOT_THERE
from pyspark_ferrymq.options.connection import connect_driver
from pyspark_ferrymq.stream_metadata import PartitionRange, StreamRanges

if TYPE_CHECKING:
    from ferrymq.blocking import Connection, ManagementClient
    from pyspark_ferrymq.options import BrokerOptions, Selection

__all__ = ["EventHubsMetadata", "read_range"]

_HUB: Final = "com.microsoft:eventhub"
_PARTITION: Final = "com.microsoft:partition"
# The statuses for a missing right, or for a hub that does not exist.
_HIDDEN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class EventHubsMetadata:
    """The `StreamService` of Event Hubs, over one connection that is opened when needed."""

    def __init__(self, settings: BrokerOptions) -> None:
        self._settings = settings
        self._open: tuple[Connection, ManagementClient] | None = None
        self._known = False

    def broker_ids(self) -> dict[str, str]:
        """Return nothing: a namespace is always the only one."""
        return {}

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        """Return the ranges of the named hubs, with a READ of each hub and selected partition."""
        found: dict[str, StreamRanges] = {}
        for name in selection.names:
            hub = self._read(_HUB, name, missing=True)
            if hub is None:
                continue
            ids = hub.get("partition_ids")
            items = getattr(ids, "items", ids) if not isinstance(ids, dict) else ids
            if not isinstance(items, list | tuple) or not all(
                isinstance(one, str) and one.isdigit() for one in items
            ):
                raise AmqpSourceError(
                    f"{self._settings.place} says that the hub {name!r} has the partitions {ids!r}"
                )
            found[name] = StreamRanges(
                name,
                str(int(hub.get("created_at") or 0)),
                {
                    number: self._range(name, number)
                    for number in sorted(map(int, items))
                    if selection.reads(name, number)
                },
            )
        return found

    def explain(self, name: str) -> str:
        """Explain that the hub is missing or hidden: the service does not tell which."""
        return (
            f"there is no event hub {name!r} at {self._settings.place}, or no right to read from it"
        )

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        """Return the offsets of times: read the first event from each time on."""
        return {number: self._first(name, number, moment) for number, moment in times.items()}

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Raise `AmqpOptionError`: Event Hubs does not report the bytes of events."""
        raise AmqpOptionError(f"option 'maxBytesPerTrigger': {NOT_THERE['maxBytesPerTrigger']}")

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        """Raise `AmqpOptionError`: Event Hubs has no holds."""
        raise AmqpOptionError(f"option 'hold': {NOT_THERE['hold']}")

    def close(self) -> None:
        """Close the connection."""
        opened, self._open = self._open, None
        if opened is not None:
            opened[0].close()

    def _range(self, name: str, number: int) -> PartitionRange:
        told = self._read(_PARTITION, name, {"partition": str(number)})
        assert told is not None
        last = int(told["last_enqueued_sequence_number"])
        if told.get("is_partition_empty"):
            return PartitionRange(number, last + 1, last + 1)
        first = int(told["begin_sequence_number"])
        moment = told.get("last_enqueued_time_utc")
        return PartitionRange(number, first, last + 1, 0, None if moment is None else int(moment))

    def _read(
        self,
        type: str,
        name: str,
        properties: Mapping[str, object] | None = None,
        *,
        missing: bool = False,
    ) -> dict[str, Any] | None:
        """Send READ and return the answer; None if the object is missing and `missing` is true."""
        from ferrymq import AmqpError, ManagementError

        try:
            response = self._connected()[1].request("READ", type, name, properties=properties)
            return response.map()
        except ManagementError as error:
            if missing and error.status in _HIDDEN:
                return None
            what = " ".join([type, name, *map(str, (properties or {}).values())])
            raise AmqpSourceError(
                f"READ of {what} at {self._settings.place}: {error.description} ({error.status})"
            ) from None
        except (AmqpError, TimeoutError):
            self.close()
            raise

    def _first(self, name: str, number: int, moment: int) -> int:
        """Return the sequence number of the first event from a time in milliseconds on."""
        from ferrymq import AmqpError
        from ferrymq.azure.positions import enqueued_after

        try:
            connection = self._connected()[0]
            address = address_of(self._settings, name, number)
            with (
                connection.receiver(address, credit=1, **enqueued_after(moment - 1)) as receiver,
                receiver.receive(timeout=self._settings.timeout) as delivery,
            ):
                return sequence_number(delivery)
        except (AmqpError, TimeoutError):
            self.close()
            raise

    def _connected(self) -> tuple[Connection, ManagementClient]:
        if self._open is None:
            self._open = connect_driver(self._settings, "Event Hubs", patient=self._known)
            self._known = True
        return self._open
