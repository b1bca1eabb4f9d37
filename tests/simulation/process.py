"""A process on the simulated event loop: it can be stopped, go on, and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.loop import SimulatedLoop


class Turn:
    """A call that the process makes at some time, unless it is cancelled. It is what callers get in
    place of a handle of the loop."""

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Do not make the call."""
        self.cancelled = True


class SimulatedProcess:
    """What one process has of the loop. While it is stopped, time goes on, and turns that are due
    wait; after its end nothing is called any more."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._waiting: list[Turn] = []
        self.stopped = False
        self.dead = False

    def time(self) -> float:
        """The clock of the machine, which goes on while the process is stopped."""
        return self._loop.time()

    def call_soon(self, call: Callable[..., object], *args: Any) -> Turn:
        """Make a call in a turn of its own."""
        turn = Turn(call, args)
        self._loop.call_soon(self._make, turn)
        return turn

    def call_at(self, moment: float, call: Callable[..., object], *args: Any) -> Turn:
        """Make a call at a time of the loop."""
        turn = Turn(call, args)
        self._loop.call_at(moment, self._make, turn)
        return turn

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> Turn:
        """Make a call after some seconds."""
        return self.call_at(self._loop.time() + seconds, call, *args)

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Make a call after some seconds; return what cancels it."""
        return self.call_later(seconds, call).cancel

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            self._loop.call_soon(self._make, turn)

    def end(self) -> None:
        """The process is gone."""
        self.dead = True
        self._waiting = []

    def _make(self, turn: Turn) -> None:
        if self.dead or turn.cancelled:
            return
        if self.stopped:
            self._waiting.append(turn)
        else:
            turn.call(*turn.args)
