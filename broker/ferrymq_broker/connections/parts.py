"""The parts that links share: with other links of their connection, and with the whole broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from ferrymq_broker.connections.credit import Credit
from ferrymq_broker.connections.durable_links.registry import TerminusRegistry
from ferrymq_broker.connections.link_names import LinkNames
from ferrymq_broker.connections.seen_tags import SeenTagsOfLinks
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.connections.client_limits import Allowance
    from ferrymq_broker.connections.connected_client import ConnectedClient
    from ferrymq_broker.connections.message_tracer import MessageTracer
    from ferrymq_broker.connections.output import ConnectionOutput
    from ferrymq_broker.counters import Counters
    from ferrymq_broker.errors import BrokerError
    from ferrymq_broker.nodes.node import Agenda
    from ferrymq_broker.number_sequence import NumberSequence
    from ferrymq_broker.timers import TimerHeap
    from ferrymq_broker.transactions.transaction_table import Transactions


@final
class SharedParts:
    """The parts that all links of one broker share.

    `names` has the names of attached links, `termini` has the termini that outlive links,
    `seen_tags` has the tags of links whose deliveries count once, and `credit` limits the credit of
    producers. `screen` is called with the address of each message of producers that attach after it
    was set; the message is rejected with the error that `screen` returns. `tracer` records the
    sampled messages of links that attach after it was set.
    """

    __slots__ = (
        "agenda",
        "timers",
        "numbers",
        "counters",
        "names",
        "termini",
        "seen_tags",
        "credit",
        "screen",
        "tracer",
    )

    def __init__(
        self, agenda: Agenda, timers: TimerHeap, numbers: NumberSequence, counters: Counters
    ) -> None:
        self.agenda: Agenda = agenda
        self.timers: TimerHeap = timers
        self.numbers: NumberSequence = numbers
        self.counters: Counters = counters
        self.names: LinkNames = LinkNames()
        self.termini: TerminusRegistry = TerminusRegistry(agenda, timers, numbers)
        self.seen_tags: SeenTagsOfLinks = SeenTagsOfLinks()
        self.credit: Credit = Credit(agenda.slices)
        self.screen: Callable[[str], BrokerError | None] | None = None
        self.tracer: MessageTracer | None = None


@final
class ConnectionParts:
    """The parts that the links of one connection share.

    Sizes are in bytes, `credit_window` in messages.
    """

    __slots__ = (
        "client",
        "output",
        "allowance",
        "transactions",
        "shared",
        "max_message_size",
        "credit_window",
    )

    def __init__(
        self,
        client: ConnectedClient,
        output: ConnectionOutput,
        allowance: Allowance,
        transactions: Transactions,
        shared: SharedParts,
        max_message_size: int,
        credit_window: int,
    ) -> None:
        self.client: ConnectedClient = client
        self.output: ConnectionOutput = output
        self.allowance: Allowance = allowance
        self.transactions: Transactions = transactions
        self.shared: SharedParts = shared
        self.max_message_size: int = max_message_size
        self.credit_window: i64 = credit_window

    def error(
        self, condition: str, description: str, info: dict[str, object] | None = None
    ) -> Error:
        """Return the error that the client is told."""
        personality = self.client.space.personality
        if personality is None:
            return Error(condition=condition, description=description, info=info)
        return personality.error(condition, description, info)

    def told(self, error: Error) -> Error:
        """Return the error that the client is told instead of this one of the broker."""
        personality = self.client.space.personality
        if personality is None:
            return error
        return personality.error(str(error.condition), error.description or "", error.info)
