"""A queue that has looked long enough goes on in another pass, so that others get their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.timers import Timer

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Node


@final
class Continuation(Timer):
    """Gives a node another turn in the next pass."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node

    def ask(self) -> None:
        """Let there be a next pass at once."""
        self.node.space.timers.set(self, self.node.agenda.now)

    def cancel(self) -> None:
        """There is nothing to go on with."""
        self.node.space.timers.cancel(self)

    def on_time(self, now: i64) -> None:
        """The next pass."""
        self.node.touch()
