"""Long work in slices: a little at a time, in passes of its own.

The event loop serves all connections between two passes, so no client waits longer than one slice.
The length of a slice does not depend on a clock: work is counted in units, each of about a
microsecond of compiled code. So the same work is always cut in the same places.

Work that fits into the rest of the current slice is done at once. All work until the event loop has
served all connections shares one slice, for example 2 000 connections that end at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

# Units of work in one slice, and the units for one task in a slice while other tasks wait.
SLICE: Final = 4_000
PART: Final = 1_000

# The costs of work, in units.
LINK: Final = 15
TURN: Final = 4
MESSAGE: Final = 1
CONNECTION: Final = 40
# A link that ends with its connection costs this in addition to `LINK`.
LOST_LINK: Final = 5
# Freeing memory costs one unit for this number of payloads, and one unit for 2**14 bytes (16 KiB),
# because the C library returns large blocks to the system page by page.
FREED_TOGETHER: Final = 16
FREED_SHIFT: Final = 14
# A payload of at least this number of bytes is not freed together with others.
LARGE: Final = 262_144
# A dead-lettered message costs this when it leaves its queue, and again when it is published.
LETTER: Final = 30


def freed(size: i64) -> i64:
    """Return the cost, in units, of dropping a message whose payload has `size` bytes."""
    return MESSAGE + (size >> FREED_SHIFT)


@mypyc_attr(allow_interpreted_subclasses=True)
class SlicedTask:
    """Work that is done in slices. `waits` says whether it waits for its next slice."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits: bool = False

    def go_on(self, slices: Slices) -> bool:
        """Work until the slice is used up. Return whether the work is done."""
        return True


@final
class Disposal(SlicedTask):
    """The freeing of payloads, a few at a time, because it takes long to free a million payloads,
    or a gigabyte.

    The list `payloads` belongs to this object, which empties it.
    """

    __slots__ = ("_payloads",)

    def __init__(self, payloads: list[bytes]) -> None:
        super().__init__()
        self._payloads = payloads

    def go_on(self, slices: Slices) -> bool:
        """Free as many payloads as the slice allows. Return whether all are freed."""
        payloads = self._payloads
        while payloads:
            if slices.is_spent():
                return False
            count: i64 = 0
            size: i64 = 0
            while payloads and count < FREED_TOGETHER and size < LARGE:
                size += len(payloads.pop())
                count += 1
            slices.spend(freed(size))
        return True


@final
class Slices:
    """The tasks of one broker, which take turns. A slice has `size` units; `left` is the rest of
    the current slice.

    Before `begin` there is no event loop, and all work is done at once.
    """

    __slots__ = ("size", "left", "_chores", "_asked", "_schedule", "_finish")

    def __init__(self) -> None:
        self.size: i64 = SLICE
        self.left: i64 = SLICE
        self._chores: deque[SlicedTask] = deque()
        # Whether the event loop has been asked to run a slice.
        self._asked = False
        self._schedule: Callable[[Callable[[], None]], object] | None = None
        self._finish: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self._chores)

    def begin(
        self, schedule: Callable[[Callable[[], None]], object], finish: Callable[[], object]
    ) -> None:
        """Work in slices from now on. `schedule` calls a function in a pass of its own, `finish`
        ends that pass."""
        self._schedule = schedule
        self._finish = finish

    def spend(self, units: i64) -> None:
        """Count work that has been done. The next slice begins after all connections were
        served."""
        self.left -= units
        self._ask()

    def is_spent(self) -> bool:
        """Return whether further work has to wait for another slice."""
        return self.left <= 0 and self._schedule is not None

    def fits(self, units: i64) -> bool:
        """Return whether this amount of work may be done at once: it fits into the slice, or there
        is no event loop."""
        return self.left >= units or self._schedule is None

    def do(self, chore: SlicedTask) -> None:
        """Work now, as far as the slice allows, and do the rest in further slices."""
        if chore.waits:
            return
        if self.is_spent() or not chore.go_on(self):
            self.add(chore)

    def add(self, chore: SlicedTask) -> None:
        """Continue the task in further slices."""
        if not chore.waits:
            chore.waits = True
            self._chores.append(chore)
        self._ask()

    def finish_all(self) -> None:
        """Do all waiting work at once. Called at the end of the broker."""
        chores = self._chores
        while chores:
            chore = chores.popleft()
            chore.waits = False
            self.left = self.size
            if not chore.go_on(self):
                self.add(chore)
            if self._finish is not None:
                # One task may wait for work that another task has caused.
                self._finish()

    def _ask(self) -> None:
        schedule = self._schedule
        if not self._asked and schedule is not None:
            self._asked = True
            schedule(self._turn)

    def _turn(self) -> None:
        """Do one slice of the waiting work, in a pass of its own."""
        self._asked = False
        chores = self._chores
        total = self.size
        try:
            while chores and total > 0:
                given = total if len(chores) == 1 or total < PART else PART
                self.left = given
                chore = chores.popleft()
                chore.waits = False
                over = False
                try:
                    over = chore.go_on(self)
                finally:
                    used = given - self.left
                    total -= used if used > 0 else 1
                if not over:
                    chore.waits = True
                    chores.append(chore)
        finally:
            self.left = total
            if chores or total < self.size:
                self._ask()
            finish = self._finish
            if finish is not None:
                finish()
