"""What the clients of a run share, whatever serves them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.aio.opening import Opening
from tests.crash.content import WrongContent, identify, message
from tests.crash.layout import LAYOUT
from tests.crash.ledger import Ledger

# What a broker never says, whatever is done to it.
_SHAME = ("Traceback (most recent call last)", "amqp:internal-error", "Fatal Python error")


class ClientSide(ABC):
    """The ledger, the messages and the connections of a run. `up` is set while there is a broker to
    connect to."""

    def __init__(self, seed: int, folder: Path, idle_time_out: float) -> None:
        self.seed = seed
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.ledger.write("opens", seed=seed, **LAYOUT)
        self.up = asyncio.Event()
        self.idle_time_out = idle_time_out
        # What messages look like; a run of one kind of fault may want others.
        self.largest = 20_000
        # The most seconds until a client that was disconnected tries again.
        self.longest_pause = 0.025
        # Told of each connection that is lost while the broker lives.
        self.on_lost: Callable[[str], None] | None = None

    @property
    @abstractmethod
    def service(self) -> object | None:
        """What serves the clients at the moment, the same object for as long as nothing is done to
        it; None if something is done to it, or there is nothing."""

    @abstractmethod
    def connect(
        self, name: str, reconnect: bool | ReconnectPolicy = False
    ) -> Opening[ferrymq.Connection]:
        """A connection of a container of this name."""

    def message(self, id: str, size: int, **fields: object) -> Message:
        """The message with this id."""
        return message(self.seed, id, size, **fields)

    def identify(self, received: Message) -> str | None:
        """Which message it is; None, and an entry in the ledger, if it is none of ours."""
        try:
            return identify(self.seed, received)
        except WrongContent as error:
            self.wrong(f"wrong content: {error}")
            return None

    def wrong(self, what: str) -> None:
        """Something happened that must not."""
        self.ledger.write("wrong", what=what)

    def look_for_shame(self, said: str) -> None:
        """See that a broker has not said what it must never say."""
        for shame in _SHAME:
            if shame in said:
                self.wrong(f"the broker said: {said[said.index(shame):][:2000]}")
