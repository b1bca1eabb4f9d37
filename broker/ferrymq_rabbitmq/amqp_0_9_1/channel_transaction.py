"""The transaction of a channel: what it publishes and settles, until its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.nodes.queues.persistence import drop_body
from ferrymq_broker.slices import MESSAGE
from ferrymq_rabbitmq.amqp_0_9_1.acknowledgements import apply
from ferrymq_rabbitmq.amqp_0_9_1.faults import ChannelFault
from ferrymq_types_0_9_1.constants import PRECONDITION_FAILED
from ferrymq_types_0_9_1.tx import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelectOk,
)

if TYPE_CHECKING:
    from ferrymq_broker.nodes.node import Agenda, Node, Refusal
    from ferrymq_codec_0_9_1.method import Method
    from ferrymq_rabbitmq.amqp_0_9_1.channel import Channel
    from ferrymq_rabbitmq.amqp_0_9_1.publishing import Publication
    from ferrymq_rabbitmq.amqp_0_9_1.unacknowledged import Unacknowledged


# What a message counts for beside its payload, in bytes: a commit of very many small messages would
# keep other clients waiting.
_EACH: Final = 1024


@final
class ChannelTransaction:
    """The open transaction of a channel, with at most `limit` bytes of messages; 0 is no limit.

    A commit does everything in one pass of the broker, which is one batch of its store: it is there
    as a whole after a crash, or not at all, however many queues have a part in it. The memory of
    its messages counts for the broker's alarm. `outcomes` are those of deliveries, which the client
    holds until the commit.
    """

    __slots__ = ("limit", "outcomes", "_agenda", "_bytes", "_published")

    def __init__(self, agenda: Agenda, limit: i64) -> None:
        self.limit: i64 = limit
        self.outcomes: list[tuple[Unacknowledged, int]] = []
        self._agenda = agenda
        self._bytes: i64 = 0
        self._published: list[Publication] = []

    def publish(self, publication: Publication) -> None:
        """Add a message. Raises `ChannelFault` if the transaction has too many bytes."""
        message = publication.message
        size: i64 = len(message.payload)
        if self.limit != 0 and self._bytes + size + _EACH > self.limit:
            raise ChannelFault(
                PRECONDITION_FAILED,
                f"the messages of the transaction have more than {self.limit} bytes together",
            )
        self._bytes += size + _EACH
        self._agenda.pin(size)
        message.holders += 1
        self._published.append(publication)

    def add_outcome(self, each: Unacknowledged, outcome: i64) -> None:
        """Add the outcome of a delivery."""
        self.outcomes.append((each, int(outcome)))

    def commit(self, channel: Channel) -> None:
        """Do all of it. A message that goes nowhere is returned or dropped; it refuses nothing.

        If a queue has no room for a message, nothing is done: raises `ChannelFault`.
        """
        published, outcomes = self._published, self.outcomes
        holders: list[tuple[Publication, list[Node]]] = []
        refusal: Refusal | None = None
        for publication in published:
            nodes: list[Node] = []
            holders.append((publication, nodes))
            refusal = publication.reserve(channel, nodes)
            if refusal is not None:
                break
        if refusal is not None:
            for publication, nodes in holders:
                _unreserve(publication, nodes)
            raise ChannelFault(
                PRECONDITION_FAILED, f"the transaction cannot be committed: {refusal.description}"
            )
        self._published = []
        self._bytes = 0
        self.outcomes = []
        for publication, nodes in holders:
            publication.send(channel)
            _unreserve(publication, nodes)
            self._release(publication)
        for each, outcome in outcomes:
            apply(channel, each, outcome)
        # Other clients go before the next method.
        self._agenda.slices.spend((len(holders) + len(outcomes)) * MESSAGE)

    def roll_back(self, channel: Channel) -> None:
        """Forget all of it. The client has its deliveries still, and may settle them later."""
        for publication in self._published:
            self._release(publication)
        self._published = []
        self._bytes = 0
        outcomes = self.outcomes
        self.outcomes = []
        if outcomes:
            kept = channel.unacknowledged
            for each, _ in outcomes:
                kept[int(each.tag)] = each
                if each.tag < channel.first_tag:
                    channel.first_tag = each.tag
            channel.unacknowledged = dict(sorted(kept.items()))
            self._agenda.slices.spend(len(kept) * MESSAGE)

    def _release(self, publication: Publication) -> None:
        """Give up the transaction's part in a message."""
        message = publication.message
        message.holders -= 1
        self._agenda.pinned -= len(message.payload)
        if message.holders == 0:
            self._agenda.held -= len(message.payload)
            if message.shared:
                # All queues that got the message have dropped it.
                drop_body(self._agenda, message)


def _unreserve(publication: Publication, nodes: list[Node]) -> None:
    for node in nodes:
        node.unreserve(publication.message)


def select(channel: Channel, method: Method) -> None:
    """Begin the first transaction (``tx.select``)."""
    if channel.confirms is not None:
        raise ChannelFault(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.transaction is None:
        limit = channel.connection.broker.transaction_limits.bytes
        channel.transaction = ChannelTransaction(channel.space.agenda, limit)
    channel.answer(TxSelectOk())


def commit(channel: Channel, method: Method) -> None:
    """Commit the transaction, and begin the next one."""
    assert isinstance(method, TxCommit)
    _open(channel).commit(channel)
    channel.answer(TxCommitOk())


def roll_back(channel: Channel, method: Method) -> None:
    """Roll the transaction back, and begin the next one."""
    assert isinstance(method, TxRollback)
    _open(channel).roll_back(channel)
    channel.answer(TxRollbackOk())


def _open(channel: Channel) -> ChannelTransaction:
    transaction = channel.transaction
    if transaction is None:
        raise ChannelFault(PRECONDITION_FAILED, "channel is not transactional")
    return transaction
