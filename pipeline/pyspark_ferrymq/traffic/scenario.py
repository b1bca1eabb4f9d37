"""The scenario: the messages, their addresses and order, and their irregularities."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark_ferrymq.traffic.arrival_times import DAY, moments
from pyspark_ferrymq.traffic.bodies import POISON, SCHEMA, UNKNOWN_SCHEMA, Bodies
from pyspark_ferrymq.traffic.random_draws import Chance, Weighted, zipf

# A duplicate comes within this many messages after the first one.
_REPEATED_WITHIN: Final = 200
# Transit times in milliseconds: of normal messages (median, sigma), and of late ones (range).
_DELAY: Final = (35.0, 0.6)
_LATE: Final = (2 * 60_000.0, 6 * 3_600_000.0)


class TrafficPlace(NamedTuple):
    """A node that traffic is sent to: its name after the prefix, and its settings."""

    name: str
    kind: str  # of message
    node: str  # "stream" or "queue"
    weight: float
    partitions: int
    keys: int
    skew: float


PLACES: Final = (
    TrafficPlace("positions", "position", "stream", 45, 4, 300, 0.6),
    TrafficPlace("orders", "order", "stream", 25, 4, 5000, 1.1),
    TrafficPlace("payments", "payment", "stream", 15, 2, 5000, 1.1),
    TrafficPlace("parcels", "parcel", "queue", 15, 0, 5000, 1.1),
)
"""The nodes of the traffic: three streams, and a work queue."""

DEAD: Final = "parcels.dead"
"""The name, after the prefix, of the dead-letter queue of parcels."""


class TrafficEvent(NamedTuple):
    """A message, with its irregularities.

    `at` is in seconds of traffic time from the start. The message was created `delay` milliseconds
    before it is sent. `poison` is one of `POISON`.
    """

    place: TrafficPlace
    number: int
    at: float
    key: str
    message_id: str
    body: bytes
    schema: int
    delay: int
    poison: str | None = None
    late: bool = False
    duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The settings of the traffic. Shares are of all messages, from 0 to 1.

    `rate` is the average messages per second; None means that `count` messages fill a day of
    traffic time. `speed` is the seconds of traffic time per second. Raises ValueError for invalid
    settings.
    """

    seed: int = 1
    count: int = 10_000
    rate: float | None = None
    speed: float = 1440.0
    late: float = 0.01
    duplicates: float = 0.01
    poison: float = 0.01
    prefix: str = "demo"
    streams: bool = True
    queues: bool = True

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count: at least 1 message, not {self.count}")
        if (self.rate is not None and not self.rate > 0) or not self.speed > 0:
            raise ValueError("rate and speed must be more than 0")
        for name in ("late", "duplicates", "poison"):
            share = getattr(self, name)
            if not 0 <= share <= 0.5:
                raise ValueError(f"{name}: {share} is not a share from 0 to 0.5")
        if not self.places:
            raise ValueError("streams or queues: one of them must get messages")

    @property
    def places(self) -> tuple[TrafficPlace, ...]:
        """The nodes that get messages."""
        wanted = {"stream": self.streams, "queue": self.queues}
        return tuple(place for place in PLACES if wanted[place.node])

    def address(self, place: TrafficPlace) -> str:
        """Return the address of a node."""
        return f"{self.prefix}.{place.name}"

    @property
    def dead(self) -> str:
        """The address of the dead-letter queue."""
        return f"{self.prefix}.{DEAD}"

    def events(self) -> Iterator[TrafficEvent]:
        """Yield the messages in order. The same settings make the same messages."""
        chance = Chance(self.seed)
        bodies = Bodies(chance)
        places = self.places
        weights = Weighted(place.weight for place in places)
        keys = {place: zipf(place.keys, place.skew) for place in places}
        rate = self.count / DAY if self.rate is None else self.rate / self.speed
        times = moments(chance, rate)
        recent: deque[TrafficEvent] = deque(maxlen=_REPEATED_WITHIN)
        for number in range(self.count):
            at = next(times)
            delay = int(chance.log_normal(*_DELAY))
            if recent and chance.happens(self.duplicates):
                again = recent[chance.below(len(recent))]
                # A duplicate, as from a producer that got no answer the first time.
                yield again._replace(number=number, at=at, delay=delay, duplicate=True)
                continue
            place = places[chance.weighted(weights)]
            key = _key(place, chance.weighted(keys[place]))
            poison = chance.of(POISON) if chance.happens(self.poison) else None
            late = chance.happens(self.late)
            if late:
                delay = int(chance.between(*_LATE))
            event = TrafficEvent(
                place=place,
                number=number,
                at=at,
                key=key,
                message_id=f"{place.kind}-{self.seed}-{number}",
                body=bodies.make(place.kind, key, at, poison),
                schema=UNKNOWN_SCHEMA if poison == "unknown-schema" else SCHEMA,
                delay=delay,
                poison=poison,
                late=late,
            )
            if poison is None and not late:
                recent.append(event)
            yield event


def _key(place: TrafficPlace, rank: int) -> str:
    # Ranks are shuffled, so that a name does not tell how frequent it is.
    shuffled = rank * 7919 % place.keys
    return f"van-{shuffled:03d}" if place.kind == "position" else f"customer-{shuffled:04d}"
