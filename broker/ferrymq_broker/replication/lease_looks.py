"""The looks of a member at its lease, one after another."""

from __future__ import annotations

from collections.abc import Callable

from ferrymq_broker.replication.waiting import Cancel, Later


class LeaseLooks:
    """Looks at the lease, one at a time. `ask` begins one; whoever gets the answer calls
    `plan`. Look again at once if `now` was called before the answer."""

    def __init__(self, later: Later, ask: Callable[[], None]) -> None:
        self._later = later
        self._ask = ask
        self._is_asking = False
        self._again = False
        self._is_stopped = False
        self._cancel: Cancel | None = None

    def now(self) -> None:
        """Look now, or as soon as the answer to the last look is there."""
        if self._is_stopped:
            return
        if self._is_asking:
            self._again = True
            return
        self._is_asking = True
        self._ask()

    def plan(self, seconds: float) -> None:
        """End this look, and plan the next one."""
        self._is_asking = False
        if self._is_stopped:
            return
        if self._again:
            self._again = False
            seconds = 0.0
        if self._cancel is not None:
            self._cancel()
        self._cancel = self._later(seconds, self.now)

    def stop(self) -> None:
        """Look no more."""
        self._is_stopped = True
        if self._cancel is not None:
            self._cancel()
