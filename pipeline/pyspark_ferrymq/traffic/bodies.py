"""The bodies of messages: orders, payments, positions and parcels, as JSON of about a kilobyte; and
the faults of malformed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from pyspark_ferrymq.traffic.random_draws import Chance

SCHEMA: Final = 2
"""The version of every body, in the application property ``schema``, that consumers know."""

UNKNOWN_SCHEMA: Final = 99
LARGEST: Final = 32 * 1024
"""The largest allowed body, in bytes."""

POISON: Final = ("bad-json", "missing-field", "unknown-schema", "oversized")
"""The possible faults of a message."""

_MEDIAN_SIZE: Final = 900.0
_SIZE_SIGMA: Final = 0.5

_GOODS: Final = (
    "apples", "bread", "butter", "candles", "coffee", "flour", "honey", "jam", "lentils", "milk",
    "noodles", "oats", "olive oil", "onions", "paprika", "pears", "rice", "salt", "soap", "tea",
    "tomatoes", "walnuts", "yeast", "yoghurt",
)  # fmt: skip
_TOWNS: Final = (
    "Basel", "Bergen", "Bologna", "Bruges", "Cork", "Ghent", "Graz", "Leeds", "Lille", "Malmö",
    "Oulu", "Porto", "Seville", "Tartu", "Trieste", "Utrecht",
)  # fmt: skip
_NOTE: Final = (
    "please ring twice the door is behind the yard and the dog is friendly leave it with the"
    " neighbour on the second floor unless it rains then under the roof beside the bicycles call"
    " from the bridge the lift is out of order since monday mind the step no plastic bags thank you"
)


class Bodies:
    """A maker of bodies, with draws from `chance`."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        # The text from which notes are cut: to draw every word would be the slowest part.
        words = _NOTE.split()
        self._text = " ".join(chance.of(words) for _ in range(8000))
        self._makers: Final[dict[str, Callable[[str, float], dict[str, object]]]] = {
            "order": self._order,
            "payment": self._payment,
            "position": self._position,
            "parcel": self._parcel,
        }

    def make(self, kind: str, key: str, at: float, poison: str | None) -> bytes:
        """Return the body of a message of a kind for a key, at a time in seconds from the start."""
        body = self._makers[kind](key, at)
        if poison == "missing-field":
            del body[self._chance.of([name for name in body if name != "kind"])]
        size = int(self._chance.log_normal(_MEDIAN_SIZE, _SIZE_SIGMA))
        if poison == "oversized":
            size = LARGEST + 1024 + self._chance.below(3 * LARGEST)
        known = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        note = self._note(max(0, min(size, LARGEST) - len(known) - 10))
        if poison == "oversized":
            note = (self._text * (size // len(self._text) + 1))[:size]
        data = known[:-1] + f',"note":"{note}"}}'.encode()
        # Cut in the middle, as if its writer had crashed.
        return data[: len(data) // 2] if poison == "bad-json" else data

    def _note(self, size: int) -> str:
        size = min(size, len(self._text) - 1)
        start = self._chance.below(len(self._text) - size)
        return self._text[start : start + size]

    def _order(self, key: str, at: float) -> dict[str, object]:
        chance = self._chance
        items = [
            {
                "article": chance.of(_GOODS),
                "quantity": 1 + chance.below(6),
                "cents": 80 + chance.below(2400),
            }
            for _ in range(1 + chance.below(5))
        ]
        total = sum(int(str(item["quantity"])) * int(str(item["cents"])) for item in items)
        return {
            "kind": "order", "customer": key, "at": round(at, 3), "town": chance.of(_TOWNS),
            "items": items, "cents": total,
        }  # fmt: skip

    def _payment(self, key: str, at: float) -> dict[str, object]:
        chance = self._chance
        return {
            "kind": "payment", "customer": key, "at": round(at, 3),
            "cents": int(chance.log_normal(2600, 0.8)),
            "method": chance.of(("card", "card", "card", "transfer", "voucher")),
            "accepted": not chance.happens(0.03),
        }  # fmt: skip

    def _position(self, key: str, at: float) -> dict[str, object]:
        chance = self._chance
        return {
            "kind": "position", "van": key, "at": round(at, 3),
            "latitude": round(chance.between(47.0, 54.0), 5),
            "longitude": round(chance.between(6.0, 14.0), 5),
            "speed": round(chance.log_normal(38, 0.5), 1), "charge": chance.below(101),
        }  # fmt: skip

    def _parcel(self, key: str, at: float) -> dict[str, object]:
        chance = self._chance
        return {
            "kind": "parcel", "customer": key, "at": round(at, 3), "town": chance.of(_TOWNS),
            "order": f"order-{chance.below(1_000_000):06d}",
            "grams": int(chance.log_normal(1800, 0.7)),
        }  # fmt: skip


FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "order": ("customer", "at", "town", "items", "cents"),
    "payment": ("customer", "at", "cents", "method", "accepted"),
    "position": ("van", "at", "latitude", "longitude", "speed", "charge"),
    "parcel": ("customer", "at", "town", "order", "grams"),
}
"""The fields that the body of each kind must have."""
