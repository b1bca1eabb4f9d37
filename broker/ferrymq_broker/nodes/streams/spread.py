"""Streams whose partitions are on several brokers: what is here, and where the rest is."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.partitioning import PARTITIONS_ON, URLS, endpoint_of, is_at, parse_placement
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.values.names import DEFAULT_SPACE, PART, VHOST
from ferrymq_codec.scalars import UInt
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Space
    from ferrymq_broker.values.policy import StreamPolicy


@final
class StreamPlacement:
    """The placement of one stream; without `urls` all its partitions are on this broker.

    `urls` has the URLs of the broker of each partition, by number.
    """

    __slots__ = ("address", "entries", "urls", "_space")

    def __init__(self, address: str, policy: StreamPolicy, space: Space) -> None:
        self.address: str = address
        self.entries: tuple[str, ...] = policy.partitions_on
        self.urls: list[tuple[str, ...]] = parse_placement(policy.partitions_on)
        self._space = space

    def is_spread(self) -> bool:
        """Return whether other brokers have partitions of the stream, too."""
        return len(self.urls) > 0

    def is_here(self, partition: i64) -> bool:
        """Return whether this broker has, or will have, a partition."""
        return partition >= len(self.urls) or is_at(self.urls[partition], self._space.advertised)

    def redirect(self, partition: i64) -> BrokerError:
        """Return the error for a link to a partition of another broker (AMQP 1.0 §2.8.18)."""
        urls = self.urls[partition]
        host, port = endpoint_of(urls[0])
        address = f"{self.address}{PART}{partition}"
        name = self._space.name
        return BrokerError(
            "amqp:link:redirect",
            f"{address!r} is at {urls[0]}; connect there",
            {
                # All brokers have the same virtual hosts.
                "hostname": host if name == DEFAULT_SPACE else f"{VHOST}{name}",
                "network-host": host,
                "port": UInt(port),
                "address": address,
                URLS: list(urls),
            },
        )

    def whole_refused(self) -> BrokerError:
        """Return the error for a link to the whole stream, of which this broker has a part."""
        count = len(self.urls)
        return BrokerError(
            "amqp:not-allowed",
            f"the partitions of {self.address!r} are on several brokers: use a link for each, "
            f"{self.address}{PART}0 to {self.address}{PART}{count - 1}; to send by key, use "
            "partitioned_sender() of the clients of ferrymq",
            {"partitions": UInt(count), PARTITIONS_ON: list(self.entries)},
        )

    def not_here(self, partition: i64) -> BrokerError:
        """Return the error for a message whose partition is on another broker."""
        address = f"{self.address}{PART}{partition}"
        return BrokerError(
            "amqp:not-allowed",
            f"the message belongs into {address!r}, which is at {self.urls[partition][0]}; send "
            "it there",
        )

    def immovable(self, partition: i64) -> BrokerError:
        """Return the error for a partition that has records on another broker."""
        return BrokerError(
            "amqp:precondition-failed",
            f"partition {partition} of {self.address!r} has records here, and cannot be moved to "
            f"{self.urls[partition][0]}",
        )

    def describe(self) -> list[dict[str, object]]:
        """Return the URLs of each partition, by number: maps with `partition` and `urls`."""
        return [{"partition": number, "urls": list(urls)} for number, urls in enumerate(self.urls)]


def as_error(error: BrokerError) -> Error:
    """Return the error for the end of a link."""
    return Error(condition=error.condition, description=error.description, info=error.info)


def expect_placeable(address: str, policy: StreamPolicy, space: Space) -> None:
    """Raise `BrokerError` if a broker cannot have a stream with this policy, because it does not
    know which partitions are its own."""
    urls = parse_placement(policy.partitions_on)
    if not urls:
        return
    reason = ""
    if space.personality is not None:
        reason = "clients of another broker cannot be sent to other brokers"
    elif not space.advertised:
        reason = "this broker has no advertise in its configuration"
    elif not any(is_at(each, space.advertised) for each in urls):
        reason = f"partitions-on has no entry with the URL of this broker, {space.advertised}"
    if reason:
        raise BrokerError("amqp:precondition-failed", f"{address!r}: {reason}")
