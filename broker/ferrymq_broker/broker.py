"""The broker: its virtual hosts, its connections, and how a pass over one read ends.

Everything the broker does is done in *passes*. A pass starts with bytes from one connection, or a
timer. Handlers call nodes, nodes put themselves on the agenda, consumers put the handlers they
wrote to on another; `finish_pass` works both off. So a read that brings a thousand messages causes
one dispatch for each queue concerned and one write for each connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.addresses.space import AddressSpace
from ferrymq_broker.connections.names import LinkNames
from ferrymq_broker.counters import Counters
from ferrymq_broker.nodes.node import Agenda
from ferrymq_broker.timers import Timers

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler

DEFAULT_SPACE: Final = "default"


@final
class Broker:
    """All virtual hosts and all connections of one broker.

    `epoch` is what to add to the `now` of a pass (seconds of a clock that never goes back) for the
    time since the Unix epoch. `schedule` is called with a function to be called soon, by the event
    loop, in a pass of its own; `wake_at` with the `now` at which `handle_timeout` is due.
    """

    __slots__ = (
        "epoch",
        "agenda",
        "timers",
        "spaces",
        "default",
        "dirty_handlers",
        "handlers",
        "link_names",
        "counters",
        "alarms",
        "_congested",
        "_schedule",
        "_wake_at",
        "_awake_at",
        "_next_id",
    )

    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object],
        wake_at: Callable[[float], object],
        epoch: float,
        max_nodes: int = 100_000,
    ) -> None:
        self.epoch = epoch
        self.agenda = Agenda()
        self.timers = Timers()
        self.default = AddressSpace(DEFAULT_SPACE, self.agenda, self.timers, max_nodes)
        # The virtual hosts by name.
        self.spaces: dict[str, AddressSpace] = {DEFAULT_SPACE: self.default}
        self.dirty_handlers: list[ConnectionHandler] = []
        # Every connection, in the order they came.
        self.handlers: dict[ConnectionHandler, None] = {}
        self.link_names = LinkNames()
        self.counters = Counters()
        # Why producers get no credit at the moment: `memory`, `disk`.
        self.alarms: set[str] = set()
        self._congested: list[ConnectionHandler] = []
        self._schedule = schedule
        self._wake_at = wake_at
        self._awake_at: i64 = 0
        self._next_id: i64 = 0

    def new_id(self) -> i64:
        """A number that no connection, session or consumer of this broker has had."""
        self._next_id += 1
        return self._next_id

    def clear(self) -> None:
        """Drop all nodes and messages; for the end of the process, when no link is left."""
        for space in self.spaces.values():
            space.clear()

    # -- passes --------------------------------------------------------------------------

    def begin_pass(self, now: float) -> None:
        """It is `now`, for all that happens until `finish_pass`."""
        self.agenda.now = i64((now + self.epoch) * 1000.0)

    def finish_pass(self) -> None:
        """Let nodes dispatch and write what came of it, until there is nothing left to do."""
        agenda = self.agenda
        while True:
            if agenda.nodes:
                agenda.run()
            handlers = self.dirty_handlers
            if not handlers:
                break
            self.dirty_handlers = []
            for handler in handlers:
                handler.flush()
        if self.timers.moved:
            self._arm()

    def handle_timeout(self, now: float) -> None:
        """Do what is due: a pass of its own."""
        self.begin_pass(now)
        self._awake_at = 0
        self.timers.run(self.agenda.now)
        self.finish_pass()

    def _arm(self) -> None:
        self.timers.moved = False
        due = self.timers.next_due()
        if due != 0 and (self._awake_at == 0 or due < self._awake_at):
            self._awake_at = due
            self._wake_at(float(due) / 1000.0 - self.epoch)

    def soon(self, call: Callable[[], None]) -> None:
        """Have `call` called by the event loop when this pass is over."""
        self._schedule(call)

    def continue_later(self, handler: ConnectionHandler) -> None:
        """The connection has had its share of this pass; it goes on in another."""
        if not self._congested:
            self._schedule(self._continue)
        self._congested.append(handler)

    def _continue(self) -> None:
        congested = self._congested
        self._congested = []
        for handler in congested:
            handler.decongest()
        self.finish_pass()
