"""Fairness between connections: the input of each is handled in turns.

An event loop reads from one socket as long as there is something to read, and handling the bytes of
one read may take long. A client that sends as fast as it can would occupy the broker for a second
at a time. So after a turn, which is limited in bytes and in time, nothing more is read from a
connection until all other connections have been served.

A hundred such clients at the same time need a second limit: the total time of all turns between two
looks at the network. Above it, connections with long input wait for another round. Short input is
handled at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

# Seconds that one turn should take. A frame is never cut, even if it takes longer.
TURN: Final = 0.003
# Seconds that all turns of a round may take before other connections wait.
ROUND: Final = 0.008
# A read of at most so many bytes never waits for another round.
SHORT: Final = 2048
# A turn that took less, in seconds, is not counted.
_TRIFLE: Final = 0.0002
# The most and the least bytes of a turn, for a client whose input costs little or very much time.
MOST: Final = 262144
LEAST: Final = 64
# After a read of at least so many bytes more is expected: event loops read 250 KiB at a time, and
# uvloop reads again at once after a full read. Decrypted, a full read has fewer bytes.
MORE_TO_COME: Final = 196608


def _ignore(*_: object) -> None:
    """Do nothing, because there is no transport."""


def _nothing() -> bytes:
    """Return no bytes, because only the event loop reads."""
    return b""


def _soon(call: Callable[[], object]) -> object:
    return asyncio.get_running_loop().call_soon(call)


class Round:
    """The turns of all connections between two looks of the event loop at the network. `spent` is
    the seconds they have taken."""

    __slots__ = ("spent", "_armed", "_soon")

    def __init__(self, soon: Callable[[Callable[[], object]], object] | None = None) -> None:
        self.spent: float = 0.0
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

    `take` handles the bytes of a turn, and gets the time by `clock` at which the turn has begun.
    `stop` and `start` pause and resume reading. `soon` calls a function after the event loop has
    served the other connections. `read` reads from the socket while reading is paused, at most
    `MOST` bytes; it returns none if there are none now. A read of the event loop costs one copy
    more.
    """

    __slots__ = (
        "_clock",
        "_full",
        "_full_read",
        "_handled",
        "_read",
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
        take: Callable[[bytes, float], object],
        stop: Callable[[], object],
        start: Callable[[], object],
        round: Round,
        soon: Callable[[Callable[[], object]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[], bytes] = _nothing,
    ) -> None:
        self._take = take
        self._read = read
        self._stop = stop
        self._start = start
        self._round = round
        self._soon = soon or asyncio.get_running_loop().call_soon
        self._clock = clock
        # The most bytes of a turn.
        self._share = MOST
        # Bytes that were read; those from `_handled` on wait for a turn. They are not cut off after
        # each turn: with short turns that would copy the whole read again and again.
        self._rest = b""
        self._handled = 0
        # Whether the event loop has been asked for the next turn; whether the client has to read
        # first.
        self._waits = False
        self._full = False
        # Whether the last turn ended a full read, so that there is more to read.
        self._full_read = False

    def receive(self, data: bytes) -> None:
        """Handle bytes that were read."""
        if self._waits or self._full:
            # A layer above the socket had read these bytes before reading was paused.
            self._rest = self.take_rest() + data
            return
        size = len(data)
        if size > SHORT and self._round.spent > ROUND:
            self._rest = data
            self._stop()
            self._wait()
            return
        if size > self._share or size >= MORE_TO_COME:
            self._rest = data
            self._turn()
            return
        # The usual case: a short read in a turn of its own.
        clock = self._clock
        began = clock()
        self._take(data, began)
        spent = clock() - began
        if spent > _TRIFLE:
            self._round.add(spent)
            if spent > TURN:
                self._end_turn(size, spent, False)

    def hold(self) -> None:
        """Handle no more input until `go_on`, because the client does not read its output."""
        if not self._full:
            self._full = True
            if not self._waits:
                self._stop()

    def go_on(self) -> None:
        """Handle input again after `hold`."""
        if self._full:
            self._full = False
            if self._waits:
                return
            if self._rest:
                self._wait()
            else:
                self._start()

    def take_rest(self) -> bytes:
        """Remove and return the bytes that wait for a turn, for another handler."""
        rest, handled = self._rest, self._handled
        self._rest, self._handled = b"", 0
        return rest[handled:]

    def finish(self) -> None:
        """Handle the bytes that wait for a turn, because the transport has ended."""
        rest = self.take_rest()
        self._full = True
        if rest:
            self._take(rest, self._clock())

    def close(self) -> None:
        """Drop all callbacks, because the transport has ended."""
        self._take = self._stop = self._start = _ignore
        self._read = _nothing

    def _turn(self) -> None:
        """Handle the next bytes of `_rest`, at most the share of one turn."""
        rest, first = self._rest, self._handled
        end = first + self._share
        cut = end < len(rest)
        if cut:
            self._handled = end
        else:
            self._rest, self._handled = b"", 0
            end = len(rest)
        began = self._clock()
        # A slice of a whole is a copy in compiled code.
        self._take(rest[first:end] if cut or first > 0 else rest, began)
        spent = self._clock() - began
        self._round.add(spent)
        self._end_turn(end - first, spent, cut)

    def _end_turn(self, size: int, spent: float, cut: bool) -> None:
        share = self._share
        if spent > TURN:
            self._share = max(LEAST, int(min(size, share) * TURN / spent))
        elif cut and share < MOST:
            # Only a turn with full size says how long such a turn takes.
            self._share = min(MOST, 2 * share)
        self._full_read = size >= MORE_TO_COME and not cut
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
        if self._rest:
            self._turn()
        elif self._full_read:
            self._rest = self._read()
            if self._rest:
                self._turn()
        if not self._waits and not self._full:
            self._start()
