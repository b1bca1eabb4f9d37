"""Turns: how much of what a client sends is worked through before others have theirs.

An event loop reads from one socket as long as there is something to read, and what is read in one
go may take long: a client that sends as fast as it can would have the broker for itself for a
second at a time. So a connection that has had its turn, in bytes or in time, is read no further
until all others have been asked.

A hundred clients at a time are no better. What all turns between two looks at the network may take
is bounded: who comes later with much waits for another round. What is short is taken at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

# Seconds that one turn should take. One frame is never cut, whatever it takes.
TURN: Final = 0.003
# Seconds that all turns of a round may take before others wait.
ROUND: Final = 0.008
# A read of so many bytes never waits for another round.
SHORT: Final = 2048
# A turn that took less, in seconds, is not worth counting.
_TRIFLE: Final = 0.0002
# Bytes that a turn may have, for a client whose input costs little, and for one whose costs most.
MOST: Final = 262144
LEAST: Final = 64
# A read of so many bytes is not the last one: event loops read 250 KiB at a time, and one of them
# goes on at once when it got as many. What TLS leaves of that is less.
MORE_TO_COME: Final = 196608


def _ignore(*_: object) -> None:
    """Take no notice: there is no transport."""


def _soon(call: Callable[[], object]) -> object:
    return asyncio.get_running_loop().call_soon(call)


class Round:
    """The turns of all connections between two looks of the event loop at the network: `spent` is
    how many seconds they have taken."""

    __slots__ = ("spent", "_armed", "_soon")

    def __init__(self, soon: Callable[[Callable[[], object]], object] | None = None) -> None:
        self.spent = 0.0
        self._armed = False
        self._soon = soon or _soon

    def add(self, seconds: float) -> None:
        """Count a turn."""
        self.spent += seconds
        if not self._armed:
            self._armed = True
            self._soon(self._begin)

    def _begin(self) -> None:
        self._armed = False
        self.spent = 0.0


class ReadTurns:
    """The input of one connection, which shares the `round` with others.

    `take` is given what is to be worked through; `stop` and `start` are called when nothing more is
    to be read, and when it is to be again. `soon` has something called when the event loop has
    looked at everybody else.
    """

    __slots__ = (
        "_clock",
        "_full",
        "_rest",
        "_round",
        "_share",
        "_soon",
        "_start",
        "_stop",
        "_take",
        "_waits",
    )

    def __init__(
        self,
        take: Callable[[bytes], object],
        stop: Callable[[], object],
        start: Callable[[], object],
        round: Round,
        soon: Callable[[Callable[[], object]], object] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._take = take
        self._stop = stop
        self._start = start
        self._round = round
        self._soon = soon or asyncio.get_running_loop().call_soon
        self._clock = clock
        # Bytes of a turn.
        self._share = MOST
        # What has been read and waits for its turn.
        self._rest = b""
        # Whether the next turn is on its way; whether the client has to read first.
        self._waits = False
        self._full = False

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        if self._waits or self._full:
            # Whatever is between us and the socket had them already.
            self._rest += data
            return
        size = len(data)
        if size > SHORT and self._round.spent > ROUND:
            self._rest = data
            self._stop()
            self._wait()
            return
        if size > self._share or size >= MORE_TO_COME:
            self._turn(data)
            return
        # This is nearly always all there is to it.
        clock = self._clock
        began = clock()
        self._take(data)
        spent = clock() - began
        if spent > _TRIFLE:
            self._round.add(spent)
            if spent > TURN:
                self._end_turn(size, spent, False)

    def hold(self) -> None:
        """The client does not read what it causes: nothing more until `go_on`."""
        if not self._full:
            self._full = True
            if not self._waits:
                self._stop()

    def go_on(self) -> None:
        """The client has read."""
        if self._full:
            self._full = False
            if self._waits:
                return
            if self._rest:
                self._wait()
            else:
                self._start()

    def take_rest(self) -> bytes:
        """What has come and waits for its turn: somebody else is to have it."""
        rest = self._rest
        self._rest = b""
        return rest

    def finish(self) -> None:
        """The transport has ended: work through what had come before that."""
        rest = self._rest
        self._rest = b""
        self._full = True
        if rest:
            self._take(rest)

    def close(self) -> None:
        """The transport is gone: nobody is called any more."""
        self._take = self._stop = self._start = _ignore

    def _turn(self, data: bytes) -> None:
        share = self._share
        size = len(data)
        cut = size > share
        began = self._clock()
        if cut:
            self._rest = data[share:]
            self._take(data[:share])
        else:
            self._take(data)
        spent = self._clock() - began
        self._round.add(spent)
        self._end_turn(size, spent, cut)

    def _end_turn(self, size: int, spent: float, cut: bool) -> None:
        share = self._share
        if spent > TURN:
            self._share = max(LEAST, int(min(size, share) * TURN / spent))
        elif cut and share < MOST:
            # What is smaller than a turn says nothing of what a whole one takes.
            self._share = min(MOST, 2 * share)
        if cut or spent > TURN or size >= MORE_TO_COME:
            if not self._full:
                self._stop()
                self._wait()

    def _wait(self) -> None:
        self._waits = True
        self._soon(self._next)

    def _next(self) -> None:
        self._waits = False
        if self._full:
            return
        if self._round.spent > ROUND:
            self._wait()
            return
        rest = self._rest
        if rest:
            self._rest = b""
            self._turn(rest)
            if self._waits or self._full:
                return
        self._start()
