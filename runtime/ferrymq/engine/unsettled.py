"""The unsettled deliveries of one half of a session, by delivery-id (AMQP 1.0 §2.6.12).

Delivery-ids are consecutive, and most deliveries are settled in nearly the order in which they were
sent. So the deliveries are in a ring of slots: the slot of an id is found without a hash, and
without an integer object. A delivery that stays unsettled while later ones come and go would make
the ring long: it moves to a map.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, final

from mypy_extensions import i64

from ferrymq.engine.serial import MASK, serial_diff

T = TypeVar("T")

# Slots of a ring, at first, and the most that an empty ring keeps.
_SLOTS: Final = 16
_KEPT: Final = 4096


@final
class UnsettledDeliveries(Generic[T]):
    """Unsettled deliveries by delivery-id, a 32-bit serial number. `count` is how many there are.

    The ring has the ids from `_first` on, as many as it has slots. Other ids are in `_strays`.
    """

    __slots__ = ("count", "_slots", "_mask", "_first", "_in_ring", "_strays")

    def __init__(self) -> None:
        self.count: i64 = 0
        self._slots: list[T | None] = [None] * _SLOTS
        # The number of slots, a power of two, less one.
        self._mask: i64 = _SLOTS - 1
        self._first: i64 = 0
        self._in_ring: i64 = 0
        self._strays: dict[int, T] = {}

    def __len__(self) -> int:
        """Return how many deliveries there are."""
        return self.count

    def __contains__(self, id: int) -> bool:
        """Return whether the delivery with this id is unsettled."""
        return self.find(id) is not None

    def find(self, id: i64) -> T | None:
        """Return the delivery with this id, None if it is not unsettled."""
        mask = self._mask
        if (id - self._first) & MASK <= mask:
            found = self._slots[id & mask]
            if found is not None:
                return found
        if self._strays:
            return self._strays.get(id)
        return None

    def add(self, id: i64, delivery: T) -> None:
        """Add the delivery with this id, which is not in use."""
        self.count += 1
        if self._in_ring == 0:
            if self._mask >= _KEPT:
                self._set_apart()
            self._first = id
        elif (id - self._first) & MASK > self._mask and not self._make_room(id):
            self._strays[id] = delivery
            return
        self._in_ring += 1
        self._slots[id & self._mask] = delivery

    def remove(self, id: i64) -> T | None:
        """Remove and return the delivery with this id, None if it is not unsettled."""
        mask = self._mask
        if (id - self._first) & MASK <= mask:
            found = self._slots[id & mask]
            if found is not None:
                self._slots[id & mask] = None
                self._in_ring -= 1
                self.count -= 1
                return found
        if self._strays:
            stray = self._strays.pop(id, None)
            if stray is not None:
                self.count -= 1
            return stray
        return None

    def _make_room(self, id: i64) -> bool:
        """Make the ring reach as far as this id; return false if the id comes before the ring."""
        ahead = serial_diff(id, self._first)
        if ahead < 0:
            return False
        size = self._mask + 1
        while ahead >= size and self._slots[self._first & self._mask] is None:
            # The slots of settled deliveries at the beginning are free.
            self._first = (self._first + 1) & MASK
            ahead -= 1
        if ahead < size:
            return True
        if ahead >= 2 * size or self._in_ring * 4 < size:
            # A few deliveries would keep many slots.
            self._set_apart()
            self._first = id
        else:
            self._double()
        return True

    def _set_apart(self) -> None:
        """Move all deliveries of the ring to the map, and make the ring short."""
        for id, delivery in self._ring_items():
            self._strays[id] = delivery
        self._slots = [None] * _SLOTS
        self._mask = _SLOTS - 1
        self._in_ring = 0

    def _double(self) -> None:
        """Double the number of slots."""
        wider: list[T | None] = [None] * (2 * (self._mask + 1))
        mask = 2 * self._mask + 1
        for id, delivery in self._ring_items():
            wider[id & mask] = delivery
        self._slots = wider
        self._mask = mask

    def _ring_items(self) -> list[tuple[int, T]]:
        """Return the deliveries of the ring and their ids, in serial order."""
        found: list[tuple[int, T]] = []
        left = self._in_ring
        at = self._first
        while left > 0:
            delivery = self._slots[at & self._mask]
            if delivery is not None:
                found.append((at, delivery))
                left -= 1
            at = (at + 1) & MASK
        return found

    def items(self) -> list[tuple[int, T]]:
        """Return all deliveries with their ids: first those that have stayed behind the others."""
        return [*self._strays.items(), *self._ring_items()]

    def values(self) -> list[T]:
        """Return all deliveries, in the order of `items`."""
        return [delivery for _, delivery in self.items()]

    def clear(self) -> None:
        """Remove all deliveries."""
        self._set_apart()
        self._strays.clear()
        self.count = 0

    def work(self, first: i64, last: i64) -> i64:
        """Return how many steps `between` takes."""
        span = serial_diff(last, first)
        return span if 0 <= span < self.count else self.count

    def between(self, first: i64, last: i64) -> list[T]:
        """Return the deliveries with the ids ``first … last``, in serial order.

        Looks up each id of the range or walks all deliveries, whichever is shorter.
        """
        span = serial_diff(last, first)
        found: list[T] = []
        if span < self.count:
            at: i64 = 0
            while at <= span:
                delivery = self.find((first + at) & MASK)
                if delivery is not None:
                    found.append(delivery)
                at += 1
            return found
        offsets: list[int] = []
        for id, _ in self.items():
            offset = serial_diff(id, first)
            if 0 <= offset <= span:
                offsets.append(offset)
        offsets.sort()
        for offset in offsets:
            delivery = self.find((first + offset) & MASK)
            if delivery is not None:
                found.append(delivery)
        return found
