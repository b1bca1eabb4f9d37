"""The broker: its virtual hosts, its connections, and its passes.

The broker does everything in *passes*. A pass starts with bytes from one connection, or with a
timer. Handlers call nodes; nodes that have work put themselves on the agenda; consumers put the
handlers that they wrote to on a second list. `finish_pass` works through both. So a read that
brings a thousand messages causes one dispatch for each queue concerned and one write for each
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq.engine.unfinished import Budget
from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.connections.client_limits import ClientLimits, ConnectionsPerUser
from ferrymq_broker.connections.credit import Credit, Withdrawal
from ferrymq_broker.connections.message_rate import RateReading
from ferrymq_broker.connections.output_turns import BrokerOutput, OutputTurns
from ferrymq_broker.connections.parts import SharedParts
from ferrymq_broker.connections.throttle import RateLimits
from ferrymq_broker.counters import Counters
from ferrymq_broker.memory_watch import MemoryWatch
from ferrymq_broker.nodes.node import Agenda
from ferrymq_broker.nodes.paging.pager import Pager
from ferrymq_broker.nodes.paging.sweep import Sweep
from ferrymq_broker.number_sequence import NumberSequence
from ferrymq_broker.pass_clock import PassClock
from ferrymq_broker.timers import TimerHeap
from ferrymq_broker.transactions.transaction import TransactionLimits
from ferrymq_broker.values.names import DEFAULT_SPACE, VHOST

if TYPE_CHECKING:
    from ferrymq_broker.connections.client_handler import ClientHandler
    from ferrymq_broker.nodes.node import Node, NodeHistory
    from ferrymq_broker.store.page_store import PageStore
    from ferrymq_broker.store.store import Store
    from ferrymq_types.transport import Error


@final
class Broker:
    """All virtual hosts and all connections of one broker.

    `epoch` is the difference between the time since the Unix epoch and the clock of the passes, in
    seconds. The broker calls `schedule` with a function that the event loop has to call soon, in a
    pass of its own. The broker calls `wake_at` with the time at which `handle_timeout` is due.

    `hosts` has the virtual hosts by hostname, in lower case. Clients with other hostnames get the
    default virtual host, unless `strict_hosts` is set. `alarms` are the reasons why producers get
    no credit at the moment: ``memory``, ``disk``, ``replication``. `history` has the samples of all
    virtual hosts together; None without history. `refusal` returns the error with which every
    connection is closed after its open; None if connections are served.
    """

    __slots__ = (
        "clock",
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
        "memory",
        "handlers",
        "shared",
        "output",
        "counters",
        "credit",
        "transaction_limits",
        "client_limits",
        "users",
        "unfinished",
        "rates",
        "rate_limits",
        "alarms",
        "history",
        "refusal",
        "_gathering",
        "_schedule",
    )

    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object],
        wake_at: Callable[[float], object],
        epoch: float,
        max_nodes: int = 100_000,
    ) -> None:
        self.agenda: Agenda = Agenda()
        self.timers: TimerHeap = TimerHeap()
        self.clock: PassClock = PassClock(self.agenda, self.timers, wake_at, epoch)
        self.default: AddressSpace = AddressSpace(
            DEFAULT_SPACE, self.agenda, self.timers, max_nodes
        )
        # The virtual hosts by name.
        self.spaces: dict[str, AddressSpace] = {DEFAULT_SPACE: self.default}
        self.hosts: dict[str, AddressSpace] = {DEFAULT_SPACE: self.default}
        self.strict_hosts: bool = False
        # Whether access is checked: some virtual host has rules, or the broker accepts tokens.
        self.guarded: bool = False
        # Whether clients may send tokens after the open (claims-based security).
        self.takes_tokens: bool = False
        # Milliseconds in which a client without any right has to send a token; 0 for no limit.
        self.token_deadline: i64 = 0
        self.store: Store | None = None
        # Every connection, in the order in which they were opened.
        self.handlers: dict[ClientHandler, None] = {}
        self.counters: Counters = Counters()
        numbers = NumberSequence()
        self.shared: SharedParts = SharedParts(self.agenda, self.timers, numbers, self.counters)
        self.credit: Credit = self.shared.credit
        self.transaction_limits: TransactionLimits = TransactionLimits()
        self.client_limits: ClientLimits = ClientLimits()
        self.users: ConnectionsPerUser = ConnectionsPerUser()
        # Bytes of incomplete messages, of all connections.
        self.unfinished: Budget = Budget()
        self.rates: RateReading = RateReading(self.agenda)
        self.rate_limits: RateLimits = RateLimits(self.agenda, self.timers, self.counters)
        self.alarms: set[str] = self.credit.alarms
        self.history: NodeHistory | None = None
        self.refusal: Callable[[], Error] | None = None
        self.memory: MemoryWatch = MemoryWatch(self.agenda, self.set_alarm, self._page_soon)
        # Whether a pass that reads more from disk has been scheduled.
        self._gathering = False
        self.output: BrokerOutput = BrokerOutput(OutputTurns(schedule, self._take_turns))
        self._schedule = schedule
        self.agenda.slices.begin(schedule, self.finish_pass)

    def clear(self) -> None:
        """Drop all nodes and messages. Called at the end of the process, when no link is left."""
        self.agenda.slices.finish_all()
        for space in self.spaces.values():
            space.clear()

    def finish_work(self) -> None:
        """Do all work that waits for slices at once. Called at the end of the process."""
        self.agenda.slices.finish_all()
        self.finish_pass()

    def add_space(self, name: str, hostnames: list[str], max_nodes: int) -> AddressSpace:
        """Add a virtual host with these hostnames. Raises ValueError if the name or a hostname is
        taken."""
        if name in self.spaces:
            raise ValueError(f"there is a virtual host {name!r} already")
        for hostname in hostnames:
            if hostname.lower() in self.hosts:
                raise ValueError(f"the hostname {hostname!r} belongs to a virtual host already")
        space = AddressSpace(name, self.agenda, self.timers, max_nodes)
        self.spaces[name] = space
        for hostname in hostnames:
            self.hosts[hostname.lower()] = space
        return space

    def served_spaces(self) -> list[AddressSpace]:
        """Return the virtual hosts that this process serves."""
        return [space for space in self.spaces.values() if space.elsewhere < 0]

    def space_for(self, hostname: str | None) -> AddressSpace | None:
        """Return the virtual host for the hostname of an open (AMQP 1.0 §2.7.1).

        ``vhost:NAME`` names the virtual host itself; ``/`` is also a name of the default one, as
        with RabbitMQ. Hostnames are compared without regard to case.
        Returns None for an unknown name, and with `strict_hosts` for an unknown hostname.
        """
        if not hostname:
            return self.default
        if hostname.startswith(VHOST):
            name = hostname[len(VHOST) :]
            return self.spaces.get(name) or (self.default if name == "/" else None)
        space = self.hosts.get(hostname.lower())
        if space is None and not self.strict_hosts:
            return self.default
        return space

    # -- limits ----------------------------------------------------------------------------

    def limit_credit(self, messages: i64) -> None:
        """Limit the credit of all producers together, in messages; 0 is no limit."""
        self.credit.budget = messages

    def limit_memory(self, limit: i64, low_water: i64 = 0) -> None:
        """Give producers no credit while messages take too much memory: from more than `limit`
        bytes until at most `low_water` bytes (by default 80 % of the limit). A `limit` of 0 is no
        limit."""
        self.memory.limit(limit, low_water)

    def set_alarm(self, reason: str, on: bool) -> None:
        """Switch an alarm. While any alarm is on, producers get no credit; consumers still get
        messages."""
        withheld = self.credit.withheld
        self.credit.set_alarm(reason, on)
        if self.credit.withheld and not withheld:
            self.agenda.slices.do(
                Withdrawal(self.credit, [each.holder() for each in self.handlers])
            )

    def page_out(
        self, pages: PageStore, limit: i64, unmap: Callable[[], object] | None = None
    ) -> None:
        """Move messages to disk while they take more than `limit` bytes of memory. Messages that
        are not in the store (`keep`) go to `pages`. `unmap` is passed to `Pager`. Raises ValueError
        if there is no store."""
        if self.store is None:
            raise ValueError("there is no store for the messages")
        agenda = self.agenda
        pager = Pager(agenda, self.store, pages, limit)
        pager.unmap = unmap
        agenda.pager = pager
        self.memory.page_out(Sweep(pager, self._all_nodes))

    def _all_nodes(self) -> list[Node]:
        return [node for space in self.spaces.values() for node in space.nodes.values()]

    def tidy(self) -> None:
        """Free memory that is not needed, and read counters for rates. Called at intervals, between
        passes."""
        self.rates.begin(list(self.handlers))
        self.shared.termini.end_orphans()
        if self.memory.sweep is not None:
            self.memory.sweep.tidy()
        if self.store is not None:
            self.store.tidy()
        self.finish_pass()

    def _gather_more(self) -> None:
        self._gathering = False
        self.agenda.chunk_budget.go_on()
        self.finish_pass()

    def _page_soon(self) -> None:
        self._schedule(self._page_more)

    def _page_more(self) -> None:
        self.memory.page_more()
        self.finish_pass()

    # -- passes --------------------------------------------------------------------------

    def begin_pass(self, now: float) -> None:
        """Begin a pass: set the time for everything until `finish_pass`."""
        self.clock.begin_pass(now)

    def finish_pass(self) -> None:
        """End a pass: let nodes dispatch and connections write until nothing is left to do."""
        agenda = self.agenda
        memory = self.memory
        try:
            while True:
                if agenda.nodes:
                    agenda.run()
                if memory.short or agenda.held > memory.look_above:
                    memory.look()
                if not self.output.dirty:
                    break
                self.output.flush()
        finally:
            agenda.chunk_budget.taken = 0
            if agenda.chunk_budget.waiting and not self._gathering:
                self._gathering = True
                self._schedule(self._gather_more)
            self.clock.arm()
            if agenda.changes.count > 0 and self.store is not None:
                if agenda.nodes:
                    # An exception has left nodes on the agenda. Their changes must be in the same
                    # batch.
                    self._schedule(self.finish_pass)
                else:
                    self.store.push()

    def keep(self, store: Store) -> None:
        """Keep durable messages and nodes in this store from now on."""
        self.store = store
        self.agenda.store = store

    def on_stable(self, now: float) -> None:
        """Handle that the store has written its batch to disk, in a pass of its own.

        New messages of the batch go to consumers now, and connections write the output that had to
        wait for the batch.
        """
        self.begin_pass(now)
        try:
            self.agenda.changes.settle()
            self.output.release_held()
        finally:
            self.finish_pass()

    def handle_timeout(self, now: float) -> None:
        """Run the timers that are due, in a pass of its own."""
        self.begin_pass(now)
        try:
            self.clock.run_timers()
        finally:
            self.finish_pass()

    def soon(self, call: Callable[[], None]) -> None:
        """Make the event loop call `call` after this pass."""
        self._schedule(call)

    def _take_turns(self) -> None:
        """Continue with connections that have more to write, in a pass of its own."""
        try:
            self.output.turns.begin_round()
        finally:
            self.finish_pass()
