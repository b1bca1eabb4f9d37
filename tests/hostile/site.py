"""The broker and its witness: what must hold of every attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.hostile.witness import Witness
from tests.raw.client import Client
from tests.raw.process import MIB, Broker

# What an attack may leave behind: Python's memory comes and goes in arenas of a megabyte.
BOUND: Final = 8 * MIB


class Site:
    """Where attacks are made."""

    def __init__(self, broker: Broker, witness: Witness) -> None:
        self.broker = broker
        self.witness = witness

    @property
    def port(self) -> int:
        """Where the broker listens."""
        return self.broker.port

    def client(self) -> Client:
        """A new client, connected."""
        return Client(self.port)

    def endures(self, attack: Callable[[], object], bound: int = BOUND, attackers: int = 1) -> None:
        """Attack again and again, by so many connections at a time: the broker lives and makes no
        mistake, the witness is served as before, and memory is back where it was, by `bound`
        bytes."""
        # The first time is for what is loaded and cached for good.
        attack()
        before = self.broker.memory()
        self.witness.is_served(attack, attackers)
        self.broker.check()
        self.broker.memory_is_back(before, bound)
