"""An event loop whose time goes by as fast as nothing is left to do."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

# More turns than this at one moment: something goes round in a circle.
MOST_TURNS = 200_000


class _NothingToWaitFor(selectors.BaseSelector):
    """Waits for no file; lets the time of its loop go by instead."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.turns = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Any:
        return {}

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everybody waits for somebody else, for ever")
        if timeout > 0:
            self.now += timeout
            self.turns = 0
        self.turns += 1
        if self.turns > MOST_TURNS:
            raise RuntimeError(f"{MOST_TURNS} turns, and it is no later than before")
        return []


Connect = Callable[[Callable[[], asyncio.Protocol]], "asyncio.Future[asyncio.Transport]"]


class SimulatedLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own. `connect` makes connections."""

    def __init__(self) -> None:
        self._simulated = _NothingToWaitFor()
        self.connect: Connect | None = None
        super().__init__(self._simulated)
        # Timers are due when their time has come, not a clock's tick earlier.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._simulated.now

    async def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        assert self.connect is not None
        transport = await self.connect(protocol_factory)
        return transport, transport.get_protocol()

    def _write_to_self(self) -> None:
        """There is no other thread to wake it up."""
