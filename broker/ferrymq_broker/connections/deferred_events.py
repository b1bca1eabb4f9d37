"""Deferred events: events of a connection that need more than one slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.slices import SlicedTask, Slices

if TYPE_CHECKING:
    from ferrymq_broker.connections.connection_port import ConnectionPort
    from ferrymq_broker.nodes.node import Agenda

# A client that has caused dead letters continues when at most so many are waiting to be published.
_LETTERS: Final = 16


@final
class DeferredEvents(SlicedTask):
    """The events that a connection has put off. With `after_letters` they wait until few dead
    letters are left to publish."""

    __slots__ = ("after_letters", "_agenda", "_connection")

    def __init__(self, agenda: Agenda) -> None:
        super().__init__()
        self.after_letters: bool = False
        self._agenda = agenda
        # None if there is nothing to do, so that the connection is freed as soon as it is gone.
        self._connection: ConnectionPort | None = None

    def wait(self, connection: ConnectionPort) -> None:
        """Wait for a slice in which the events of the connection continue."""
        self._connection = connection
        self._agenda.slices.add(self)

    def go_on(self, slices: Slices) -> bool:
        """Process events, as far as the slice allows, and return whether all are processed."""
        connection = self._connection
        if connection is None:
            return True
        if self.after_letters and self._agenda.letters > _LETTERS:
            return False
        if not connection.catch_up():
            return False
        self._connection = None
        return True
