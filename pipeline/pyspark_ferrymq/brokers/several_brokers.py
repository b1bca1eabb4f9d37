"""The streams of all brokers that the option `url` leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark_ferrymq.broker_streams import BrokerStreams
from pyspark_ferrymq.brokers.discovery import BrokerDiscovery
from pyspark_ferrymq.brokers.spread_streams import with_placement
from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.offsets import broker_of, name_of, stream_key
from pyspark_ferrymq.options import BrokerOptions
from pyspark_ferrymq.stream_metadata import StreamRanges, StreamService

if TYPE_CHECKING:
    from pyspark_ferrymq.options import Selection


def may_be_several(settings: BrokerOptions) -> bool:
    """Return whether the URLs may lead to more than one broker, so that these have to be found."""
    return settings.service == "ferrymq" and len(settings.each()) > 1


def only_broker(settings: BrokerOptions) -> BrokerOptions:
    """Return the options for the only broker, for work that uses one broker.

    Raises `AmqpOptionError` if the URLs lead to several brokers, and as `BrokerDiscovery.find`.
    """
    if not may_be_several(settings):
        return settings
    return BrokerDiscovery(replace(settings, brokers=1)).find()[0].connection


class SeveralBrokers:
    """The `StreamService` of all brokers that are found. While there is only one, the keys of
    streams are their names; otherwise each is a `BrokerStream`."""

    def __init__(
        self,
        settings: BrokerOptions,
        discovery: BrokerDiscovery | None = None,
        open_one: Callable[[BrokerOptions], StreamService] = BrokerStreams,
    ) -> None:
        self._settings = settings
        self.discovery = BrokerDiscovery(settings) if discovery is None else discovery
        self._open_one = open_one
        # By the broker in keys of streams, "" if there is only one: its options and its service.
        self._brokers: dict[str, tuple[BrokerOptions, StreamService]] = {}
        self._ids: dict[str, str] = {}

    def broker_ids(self) -> dict[str, str]:
        """Return, by the id of each broker, its name in the keys of streams."""
        return self._ids

    def connection_of(self, key: str) -> BrokerOptions:
        """Return the options to connect to the broker of a stream."""
        return self._brokers[broker_of(key)][0]

    def ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        """Return the ranges of the selected streams of all brokers that are known by now, and of
        those that have other partitions of these streams."""
        while True:
            found = self._ranges(selection)
            settings = with_placement(self._settings, found.values())
            if settings is self._settings:
                return found
            self._settings = settings
            self.discovery.extend(settings)

    def _ranges(self, selection: Selection) -> dict[str, StreamRanges]:
        self._look_for_brokers()
        found: dict[str, StreamRanges] = {}
        for broker, (_, service) in self._brokers.items():
            for name, ranges in service.ranges(selection).items():
                key = stream_key(name, broker)
                found[key] = replace(ranges, name=key)
        return found

    def explain(self, name: str) -> str:
        """Explain for each broker why there is no such stream."""
        return "; ".join(service.explain(name) for _, service in self._brokers.values())

    def at_time(self, name: str, times: Mapping[int, int]) -> dict[int, int]:
        """Locate the first records from these times on."""
        return self._service(name).at_time(name_of(name), times)

    def behind(self, name: str, places: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Locate the offsets after a number of bytes."""
        return self._service(name).behind(name_of(name), places)

    def hold(self, name: str, holder: str, offsets: Mapping[int, int]) -> None:
        """Set a hold."""
        self._service(name).hold(name_of(name), holder, offsets)

    def close(self) -> None:
        """Close all connections."""
        for _, service in self._brokers.values():
            service.close()

    def _service(self, key: str) -> StreamService:
        found = self._brokers.get(broker_of(key))
        if found is None:
            raise AmqpOptionError(f"no URL leads to the broker {broker_of(key)!r} (option 'url')")
        return found[1]

    def _look_for_brokers(self) -> None:
        known = self.discovery.find()
        several = len(known) > 1
        brokers: dict[str, tuple[BrokerOptions, StreamService]] = {}
        for one in known:
            name = one.id if several else ""
            before = self._brokers.pop(name, None)
            if before is not None and before[0] != one.connection:
                before[1].close()
                before = None
            brokers[name] = before or (one.connection, self._open_one(one.connection))
        for _, service in self._brokers.values():
            service.close()
        self._brokers = brokers
        self._ids = {one.id: one.id if several else "" for one in known if one.id}
