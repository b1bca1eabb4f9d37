"""Events of a connection that take more than one slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ferrymq_broker.slices import SlicedTask, Slices

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler

# So many dead letters may be under way when a client that has caused some goes on.
_LETTERS: Final = 16


@final
class DeferredEvents(SlicedTask):
    """Events that a connection has put off. With `after_letters` they wait until few dead letters
    are left to be published."""

    __slots__ = ("after_letters", "_handler")

    def __init__(self) -> None:
        super().__init__()
        self.after_letters = False
        # While there is something to do: the handler is freed as soon as its connection is gone.
        self._handler: ConnectionHandler | None = None

    def wait(self, handler: ConnectionHandler) -> None:
        """Let the events of the handler wait for a slice."""
        self._handler = handler
        handler.broker.agenda.slices.add(self)

    def go_on(self, slices: Slices) -> bool:
        """Process as many events as the slice allows; whether all are processed."""
        handler = self._handler
        if handler is None:
            return True
        if self.after_letters and handler.broker.agenda.letters > _LETTERS:
            return False
        if not handler.catch_up():
            return False
        self._handler = None
        return True
