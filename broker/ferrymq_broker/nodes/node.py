"""What every kind of node is to the rest of the broker, and how it gets its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from ferrymq_broker.nodes.consumer import Consumer
    from ferrymq_broker.nodes.message import Message
    from ferrymq_types.transport import Error


class Producer:
    """What a node sees of those who publish to it."""

    __slots__ = ()

    def evict(self, error: Error) -> None:
        """The node is going away: end the link with `error`."""


class Node:
    """Something an address names (AMQP 1.0 §2.1.2). `address` is unique in the broker.

    `dynamic` nodes were made for one link and go with it. `producers` are the links that publish.
    """

    __slots__ = ("address", "dynamic", "deleted", "dirty", "agenda", "producers")

    def __init__(self, address: str, agenda: Agenda, dynamic: bool) -> None:
        self.address = address
        self.agenda = agenda
        self.dynamic = dynamic
        self.deleted = False
        # True while the node is on the agenda.
        self.dirty = False
        self.producers: list[Producer] = []

    def publish(self, message: Message) -> None:
        """Take in a message."""

    def subscribe(self, consumer: Consumer) -> None:
        """Let the consumer have messages from now on, once it is awake."""

    def unsubscribe(self, consumer: Consumer) -> None:
        """The consumer is leaving; what it holds has been given back before."""

    def wake(self, consumer: Consumer) -> None:
        """The consumer may be able to take messages again."""

    def want_drained(self, consumer: Consumer) -> None:
        """Tell the consumer, once, when there is nothing left for it."""

    def dispatch(self) -> None:
        """Offer messages to consumers until one of the two runs out."""

    def delete(self, error: Error) -> None:
        """End every link with `error` and drop everything."""

    def touch(self) -> None:
        """Ask for a turn to dispatch at the end of this pass."""
        if not self.dirty:
            self.dirty = True
            self.agenda.nodes.append(self)


@final
class Agenda:
    """The nodes that are to dispatch at the end of the current pass."""

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def run(self) -> None:
        """Give every node on the agenda its turn; those it puts on meanwhile too."""
        while self.nodes:
            nodes = self.nodes
            self.nodes = []
            for node in nodes:
                node.dirty = False
                node.dispatch()
