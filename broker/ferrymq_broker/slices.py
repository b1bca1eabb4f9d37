"""Work in slices: what takes long is done a little at a time, in passes of its own.

The event loop looks at all connections between two passes, so nobody waits longer than one slice.
How long a slice is does not depend on a clock: work is counted in units, each of about a
microsecond of compiled code. So the same work is cut in the same places whenever it is repeated.

Work that fits into what is left of the present slice is done at once, where it is asked for. All
that happens before the event loop has looked at everybody shares one slice: 2 000 connections that
end at the same time too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

# Units of work in one slice, and of these for one chore while others wait.
SLICE: Final = 4_000
PART: Final = 1_000

# What work costs, in units.
LINK: Final = 15
TURN: Final = 4
MESSAGE: Final = 1
CONNECTION: Final = 40
# To lose a link with its connection, before the work of `LINK`.
LOST_LINK: Final = 5
# Memory that is given back costs one unit for so many payloads, and one for so many bytes (16 KiB),
# for the C library returns large blocks to the system page by page.
FREED_TOGETHER: Final = 16
FREED_SHIFT: Final = 14
# From so many bytes on a payload is not freed together with others.
LARGE: Final = 262_144
# A dead letter costs once when it leaves its queue, and once when it is published.
LETTER: Final = 30


def freed(size: i64) -> i64:
    """Return what it costs to drop a message whose payload has so many bytes."""
    return MESSAGE + (size >> FREED_SHIFT)


@mypyc_attr(allow_interpreted_subclasses=True)
class SlicedTask:
    """Work that is done in slices. `waits` is whether it is among those that go on."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits = False

    def go_on(self, slices: Slices) -> bool:
        """Work until `slices` has nothing left; whether the work is done."""
        return True


@final
class Disposal(SlicedTask):
    """Lets go of payloads a few at a time: freeing a million of them, or a gigabyte, takes long.

    Nobody else has `payloads`, the list, which is empty in the end.
    """

    __slots__ = ("_payloads",)

    def __init__(self, payloads: list[bytes]) -> None:
        super().__init__()
        self._payloads = payloads

    def go_on(self, slices: Slices) -> bool:
        """Free as many as the slice allows."""
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
    """The chores of one broker, which take turns. A slice has `size` units, `left` is what is left
    of the present one.

    Before `begin` there is no event loop to go on in, and everything is done at once.
    """

    __slots__ = ("size", "left", "_chores", "_asked", "_schedule", "_finish")

    def __init__(self) -> None:
        self.size: i64 = SLICE
        self.left: i64 = SLICE
        self._chores: deque[SlicedTask] = deque()
        # Whether a slice is on its way.
        self._asked = False
        self._schedule: Callable[[Callable[[], None]], object] | None = None
        self._finish: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self._chores)

    def begin(
        self, schedule: Callable[[Callable[[], None]], object], finish: Callable[[], object]
    ) -> None:
        """`schedule` has a function called in a pass of its own, `finish` is called at its end."""
        self._schedule = schedule
        self._finish = finish

    def spend(self, units: i64) -> None:
        """So much work has been done; the next slice comes when everybody has been looked at."""
        self.left -= units
        self._ask()

    def is_spent(self) -> bool:
        """Whether further work is for another slice."""
        return self.left <= 0 and self._schedule is not None

    def fits(self, units: i64) -> bool:
        """Whether so much work may be done at once: it fits into the slice, or nobody waits."""
        return self.left >= units or self._schedule is None

    def do(self, chore: SlicedTask) -> None:
        """Do the work: now, as far as the slice allows, and the rest in further slices."""
        if chore.waits:
            return
        if self.is_spent() or not chore.go_on(self):
            self.add(chore)

    def add(self, chore: SlicedTask) -> None:
        """Let the chore go on in further slices."""
        if not chore.waits:
            chore.waits = True
            self._chores.append(chore)
        self._ask()

    def finish_all(self) -> None:
        """Do all that waits, at once; for the end of the broker."""
        chores = self._chores
        while chores:
            chore = chores.popleft()
            chore.waits = False
            self.left = self.size
            if not chore.go_on(self):
                self.add(chore)
            if self._finish is not None:
                # One chore may wait for what another has caused.
                self._finish()

    def _ask(self) -> None:
        schedule = self._schedule
        if not self._asked and schedule is not None:
            self._asked = True
            schedule(self._turn)

    def _turn(self) -> None:
        """Do one slice of what waits: a pass of its own."""
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
