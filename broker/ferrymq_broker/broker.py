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

from ferrymq.engine.unfinished import Budget
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.connections.client_limits import ClientLimits, ConnectionsPerUser
from ferrymq_broker.connections.credit import Credit, Withdrawal
from ferrymq_broker.connections.durable_links.registry import TerminusRegistry
from ferrymq_broker.connections.link_names import LinkNames
from ferrymq_broker.connections.output_turns import OutputTurns
from ferrymq_broker.connections.seen_tags import SeenTagsOfLinks
from ferrymq_broker.counters import Counters
from ferrymq_broker.nodes.node import BOUNDLESS, Agenda
from ferrymq_broker.nodes.paging.pager import Pager
from ferrymq_broker.nodes.paging.sweep import Sweep
from ferrymq_broker.timers import TimerHeap
from ferrymq_broker.transactions.transaction import TransactionLimits

if TYPE_CHECKING:
    from ferrymq_broker.connections.handler import ConnectionHandler
    from ferrymq_broker.nodes.node import Node
    from ferrymq_broker.store.page_store import PageStore
    from ferrymq_broker.store.store import Store

DEFAULT_SPACE: Final = "default"
# A hostname of an open that begins so names a virtual host and no host.
VHOST: Final = "vhost:"

MEMORY: Final = "memory"
# What is taken in with all credit given is done with before the alarm ends: one part in five.
_ABOVE_LOW_WATER: Final = 5


@final
class Broker:
    """All virtual hosts and all connections of one broker.

    `now` is the time of the current pass: seconds of a clock that never goes back. `epoch` is what
    to add to it for the time since the Unix epoch. `schedule` is called with a function that the
    event loop is to call soon, in a pass of its own; `wake_at` with the `now` at which
    `handle_timeout` is due.

    `hosts` are the virtual hosts by the hostnames that lead to them, in lower case; others lead to
    the default one, unless `strict_hosts`. `alarms` are the reasons why producers get no credit at
    the moment: ``memory``, ``disk``.
    """

    __slots__ = (
        "now",
        "epoch",
        "_base",
        "_suspended",
        "agenda",
        "timers",
        "spaces",
        "default",
        "hosts",
        "strict_hosts",
        "guarded",
        "takes_tokens",
        "token_deadline",
        "store",
        "sweep",
        "held",
        "dirty_handlers",
        "handlers",
        "link_names",
        "seen_tags",
        "termini",
        "counters",
        "credit",
        "transaction_limits",
        "client_limits",
        "users",
        "unfinished",
        "alarms",
        "_high_water",
        "_low_water",
        "_look_above",
        "_paging",
        "_gathering",
        "_short_of_memory",
        "output_turns",
        "_schedule",
        "_wake_at",
        "_awake",
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
        self.now = 0.0
        self.epoch = epoch
        # What to add to `now` for `Agenda.now`: the epoch when the broker began, and for how long
        # the machine has been suspended since.
        self._base = epoch
        self._suspended = 0.0
        self.agenda = Agenda()
        self.timers = TimerHeap()
        self.default = AddressSpace(DEFAULT_SPACE, self.agenda, self.timers, max_nodes)
        # The virtual hosts by name.
        self.spaces: dict[str, AddressSpace] = {DEFAULT_SPACE: self.default}
        self.hosts: dict[str, AddressSpace] = {DEFAULT_SPACE: self.default}
        self.strict_hosts = False
        # Whether what no rule allows is refused: there are rules in some virtual host, or tokens.
        self.guarded = False
        # Whether clients may bring tokens when they have opened (claims-based security).
        self.takes_tokens = False
        # Milliseconds in which who may do nothing has to bring one; 0 for as long as he likes.
        self.token_deadline: i64 = 0
        self.store: Store | None = None
        self.sweep: Sweep | None = None
        # Connections whose output waits for the store.
        self.held: list[ConnectionHandler] = []
        self.dirty_handlers: list[ConnectionHandler] = []
        # Every connection, in the order they came.
        self.handlers: dict[ConnectionHandler, None] = {}
        self.link_names = LinkNames()
        self.counters = Counters()
        self.seen_tags = SeenTagsOfLinks()
        self.termini = TerminusRegistry(self)
        self.credit = Credit(self.agenda.slices)
        self.transaction_limits = TransactionLimits()
        self.client_limits = ClientLimits()
        self.users = ConnectionsPerUser()
        # What all connections hold of messages that are not complete.
        self.unfinished = Budget()
        self.alarms = self.credit.alarms
        # Bytes of messages above which there is an alarm, and at which it ends.
        self._high_water: i64 = BOUNDLESS
        self._low_water: i64 = 0
        # Bytes of messages above which there is anything to do.
        self._look_above: i64 = BOUNDLESS
        self._paging = False
        self._gathering = False
        self._short_of_memory = False
        self.output_turns = OutputTurns(schedule, self._take_turns)
        self._schedule = schedule
        self._wake_at = wake_at
        self.agenda.slices.begin(schedule, self.finish_pass)
        # Whether the server is to wake it up, and at what `now`.
        self._awake = False
        self._awake_at = 0.0
        self._next_id: i64 = 0

    def new_id(self) -> i64:
        """A number that no connection, session or consumer of this broker has had."""
        self._next_id += 1
        return self._next_id

    def begun(self) -> int:
        """How many connections, sessions and consumers there have been."""
        return self._next_id

    def clear(self) -> None:
        """Drop all nodes and messages; for the end of the process, when no link is left."""
        self.agenda.slices.finish_all()
        for space in self.spaces.values():
            space.clear()

    def finish_work(self) -> None:
        """Do at once what would be done in slices; for the end of the process."""
        self.agenda.slices.finish_all()
        self.finish_pass()

    def add_space(self, name: str, hostnames: list[str], max_nodes: int) -> AddressSpace:
        """A new virtual host, which these hostnames lead to. Raises ValueError if one is taken."""
        if name in self.spaces:
            raise ValueError(f"there is a virtual host {name!r} already")
        for hostname in hostnames:
            if hostname.lower() in self.hosts:
                raise ValueError(f"the hostname {hostname!r} leads to a virtual host already")
        space = AddressSpace(name, self.agenda, self.timers, max_nodes)
        self.spaces[name] = space
        for hostname in hostnames:
            self.hosts[hostname.lower()] = space
        return space

    def space_for(self, hostname: str | None) -> AddressSpace | None:
        """The virtual host that an open with this hostname is for (AMQP 1.0 §2.7.1).

        ``vhost:NAME`` names it; a hostname leads to it, in upper or lower case. None if there is
        none, which for a hostname takes `strict_hosts`.
        """
        if not hostname:
            return self.default
        if hostname.startswith(VHOST):
            return self.spaces.get(hostname[len(VHOST) :])
        space = self.hosts.get(hostname.lower())
        if space is None and not self.strict_hosts:
            return self.default
        return space

    # -- limits ----------------------------------------------------------------------------

    def limit_credit(self, messages: i64) -> None:
        """Promise all producers together no more than this; 0 is no limit."""
        self.credit.budget = messages

    def limit_memory(self, limit: i64, low_water: i64 = 0) -> None:
        """Give producers no credit while there are more bytes of messages than `limit`, and until
        there are no more than `low_water`, by default 80 % of it. 0 is no limit."""
        if low_water == 0:
            low_water = limit - limit // _ABOVE_LOW_WATER
        self._high_water = BOUNDLESS if limit == 0 else limit
        self._low_water = BOUNDLESS if limit == 0 else low_water
        self._look_above = self._high_water
        if self.sweep is not None and self.sweep.pager.high < self._look_above:
            self._look_above = self.sweep.pager.high
        self._watch_memory()

    def set_alarm(self, reason: str, on: bool) -> None:
        """Producers get no credit while there is any alarm; consumers go on."""
        withheld = self.credit.withheld
        self.credit.set_alarm(reason, on)
        if self.credit.withheld and not withheld:
            self.agenda.slices.do(Withdrawal(self))

    def page_out(
        self, pages: PageStore, limit: i64, unmap: Callable[[], object] | None = None
    ) -> None:
        """Leave messages on disk while there are more bytes of them than `limit`: those that are
        not in the store (`keep`) go to `pages`. `unmap` is as in `Pager`."""
        if self.store is None:
            raise ValueError("there is no store to leave messages in")
        agenda = self.agenda
        agenda.pager = Pager(agenda, self.store, pages, limit)
        agenda.pager.unmap = unmap
        self.sweep = Sweep(agenda.pager, self._all_nodes)
        if limit < self._look_above:
            self._look_above = limit

    def _all_nodes(self) -> list[Node]:
        return [node for space in self.spaces.values() for node in space.nodes.values()]

    def tidy(self) -> None:
        """To be called now and then, between passes: give back what is not needed."""
        self.termini.end_orphans()
        if self.sweep is not None:
            self.sweep.tidy()
        if self.store is not None:
            self.store.tidy()
        self.finish_pass()

    def _watch_memory(self) -> None:
        sweep = self.sweep
        if sweep is not None and self.agenda.held > sweep.pager.high:
            if sweep.turn() and not self._paging:
                self._paging = True
                self._schedule(self._page_more)
        held = self.agenda.held
        short = held > self._low_water if self._short_of_memory else held > self._high_water
        if short != self._short_of_memory:
            self._short_of_memory = short
            self.set_alarm(MEMORY, short)

    def _gather_more(self) -> None:
        self._gathering = False
        self.agenda.chunk_budget.go_on()
        self.finish_pass()

    def _page_more(self) -> None:
        self._paging = False
        self.finish_pass()

    # -- passes --------------------------------------------------------------------------

    def begin_pass(self, now: float) -> None:
        """It is `now`, for all that happens until `finish_pass`."""
        self.now = now
        self.agenda.now = i64((now + self._base) * 1000.0)
        self.agenda.wall = i64((now + self.epoch) * 1000.0)

    def set_clock(self, epoch: float, suspended: float) -> tuple[float, float]:
        """Follow the wall clock; to be called now and then, before `handle_timeout`.

        `suspended` is for how many seconds the machine has been suspended since the broker began.
        Returns by how many seconds the wall clock was set since the last call, and for how many
        the machine was suspended.

        A wall clock that is set moves dates alone. Durations go on: they have had the time of a
        suspension too (`docs/decisions/0016-clocks.md`).
        """
        slept = suspended - self._suspended
        if slept < 0.001:
            # Two clocks that are read one after the other are never quite the same.
            slept = 0.0
        else:
            self._suspended = suspended
            self._base += slept
        stepped = epoch - self.epoch - slept
        self.epoch = epoch
        # The wake that was asked for goes by the clocks as they were.
        self._awake = False
        self.timers.moved = True
        return stepped, slept

    def finish_pass(self) -> None:
        """Let nodes dispatch and write what came of it, until there is nothing left to do."""
        agenda = self.agenda
        try:
            while True:
                if agenda.nodes:
                    agenda.run()
                if self._short_of_memory or agenda.held > self._look_above:
                    self._watch_memory()
                if not self.dirty_handlers:
                    break
                self._flush()
        finally:
            agenda.chunk_budget.taken = 0
            if agenda.chunk_budget.waiting and not self._gathering:
                self._gathering = True
                self._schedule(self._gather_more)
            if self.timers.moved or agenda.dates.moved:
                self._arm()
            if agenda.changes.count > 0 and self.store is not None:
                if agenda.nodes:
                    # After a mistake. What they do belongs to what has been done: one batch.
                    self._schedule(self.finish_pass)
                else:
                    self.store.push()

    def keep(self, store: Store) -> None:
        """From now on, what is durable is kept in this store."""
        self.store = store
        self.agenda.store = store

    def on_stable(self, now: float) -> None:
        """The batch that the store has taken is on disk: a pass of its own.

        What waited for that goes on: new messages to their consumers, output to its clients.
        """
        self.begin_pass(now)
        try:
            self.agenda.changes.settle()
            held = self.held
            self.held = []
            for handler in held:
                handler.held_output.held = False
                handler.touch()
        finally:
            self.finish_pass()

    def _flush(self) -> None:
        handlers = self.dirty_handlers
        self.dirty_handlers = []
        turns: i64 = 0
        try:
            for handler in handlers:
                turns += 1
                handler.flush()
        except BaseException:
            # A mistake is to cost one connection, and the others nothing.
            self.dirty_handlers = handlers[turns:] + self.dirty_handlers
            raise

    def handle_timeout(self, now: float) -> None:
        """Do what is due: a pass of its own."""
        self.begin_pass(now)
        self._awake = False
        agenda = self.agenda
        # First of all: what is left must be armed for even if one of them raises.
        self.timers.moved = True
        try:
            self.timers.run(agenda.now)
            agenda.dates.run(agenda.wall)
        finally:
            self.finish_pass()

    def _arm(self) -> None:
        dates = self.agenda.dates
        self.timers.moved = False
        dates.moved = False
        due = self.timers.next_due()
        if due != 0:
            self._awake_by(float(due) / 1000.0 - self._base)
        date = dates.next_due()
        if date != 0:
            self._awake_by(float(date) / 1000.0 - self.epoch)

    def _awake_by(self, now: float) -> None:
        if not self._awake or now < self._awake_at:
            self._awake = True
            self._awake_at = now
            self._wake_at(now)

    def soon(self, call: Callable[[], None]) -> None:
        """Have `call` called by the event loop when this pass is over."""
        self._schedule(call)

    def _take_turns(self) -> None:
        """Go on with connections that have more to write, in a pass of its own."""
        try:
            self.output_turns.begin_round()
        finally:
            self.finish_pass()
