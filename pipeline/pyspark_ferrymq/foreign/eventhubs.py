"""Event Hubs for the driver: hubs and their partitions, asked of ``$management``.

A hub is a stream. The offset of a record is its sequence number: a number that rises by one from
event to event, so that gaps show. What the service itself calls an offset is text that says nothing
of how many events there are. A hub that was made anew has another time of creation: that is its
incarnation.
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
# What a service says of who has no right, or of a hub that is not there.
_HIDDEN: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class EventHubsMetadata:
    """A `Service`: see there for what each raises. One connection, made when something is asked."""

    def __init__(self, settings: BrokerOptions) -> None:
        self._settings = settings
        self._open: tuple[Connection, ManagementClient] | None = None
        self._known = False

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        """The hubs that are named, by READ of each and of each partition that is to be read."""
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
        """Return nothing: Event Hubs tell no more of an error."""
        return (
            f"there is no event hub {name!r} at {self._settings.place}, or no right to read from it"
        )

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        """By reading one event of that time or later."""
        return {number: self._first(name, number, moment) for number, moment in times.items()}

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return nothing: Event Hubs do not know, and the option that needs it is refused."""
        raise AmqpOptionError(f"option 'maxBytesPerTrigger': {NOT_THERE['maxBytesPerTrigger']}")

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        """Nothing can be held, and the option is refused."""
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
        """READ; None if there is no such thing and it may be missing."""
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
        """The sequence number of the first event of a time in milliseconds or later."""
        from ferrymq import AmqpError

        selector = f"amqp.annotation.x-opt-enqueued-time > '{moment - 1}'"
        try:
            connection = self._connected()[0]
            address = address_of(self._settings, name, number)
            with connection.receiver(address, selector=selector, credit=1) as receiver:
                return sequence_number(receiver.receive(timeout=self._settings.timeout))
        except (AmqpError, TimeoutError):
            self.close()
            raise

    def _connected(self) -> tuple[Connection, ManagementClient]:
        if self._open is None:
            self._open = connect_driver(self._settings, "Event Hubs", patient=self._known)
            self._known = True
        return self._open
