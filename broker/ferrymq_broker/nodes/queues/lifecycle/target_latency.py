"""The policy `target-latency`: the length of a queue follows the rate of its consumers.

A message waits for as long as the consumers need for the messages before it. So the queue has room
for as many messages as the consumers take in the wanted time. If the queue becomes empty although
producers have used the room, the producers are far away, and the room grows.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

# Milliseconds after which the rate is measured again.
_WINDOW: Final = 10
# Messages: the least room, and the most.
_LEAST: Final = 10
_MOST: Final = 1_000_000


@final
class TargetLatency:
    """The length of one queue at which messages wait for `target` milliseconds."""

    __slots__ = ("_target", "_length", "_fitting", "_since", "_taken", "_shortest", "_used_up")

    def __init__(self, target: i64, now: i64, taken: i64) -> None:
        self._target: i64 = target
        self._length: i64 = _LEAST
        # How many messages go to consumers in that time.
        self._fitting: i64 = 0
        self._since: i64 = now
        self._taken: i64 = taken
        # The fewest messages that have waited since then, and whether producers were promised all
        # of the room.
        self._shortest: i64 = _MOST
        self._used_up = False

    def length(self, now: i64, waiting: i64, promised: i64, taken: i64) -> i64:
        """Return how many messages may wait at most. `waiting` do, `promised` may come, and
        consumers have `taken` so many in all; `now` is in milliseconds."""
        passed = now - self._since
        if passed >= _WINDOW:
            # Messages that consumers give back wait again.
            gone = taken - self._taken if taken > self._taken else 0
            fitting = gone * self._target // passed
            # Consumers take messages in bursts, so a single measurement says little.
            self._fitting = (3 * self._fitting + fitting + 3) // 4
            self._adapt()
            self._since = now
            self._taken = taken
            self._shortest = _MOST
            self._used_up = False
        if waiting < self._shortest:
            self._shortest = waiting
        # A share of the room stays free for the next producer (`Node.grant_room`).
        if 3 * (waiting + promised) >= self._length:
            self._used_up = True
        return self._length

    def _adapt(self) -> None:
        """Set the length: less if messages wait too long, more if consumers wait."""
        length = self._length
        excess = self._shortest - self._fitting
        if excess > 0:
            length = length - excess if length - excess > self._fitting else self._fitting
        elif self._shortest == 0 and self._used_up:
            length += length // 16 + 1
        if length < _LEAST:
            length = _LEAST
        self._length = length if length < _MOST else _MOST
