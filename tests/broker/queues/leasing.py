"""Requests about leases, and links that read them."""

from __future__ import annotations

from ferrymq.chunks import Chunk
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from ferrymq_codec.scalars import Symbol, UInt
from tests.broker.harness import Client, Network, Receiver, Sender, text
from tests.broker.management.asker import Answer, Asker
from tests.broker.queues.links import numbered, publish


class Leasing:
    """A holder of leases on the queue `q`."""

    def __init__(self, net: Network, holder: str = "h") -> None:
        if ADDRESS not in net.space.nodes:
            install(net.space, net.broker)
        self.net = net
        self.holder = holder
        self.asker = Asker(net)
        self.client = net.connect()

    def ask(self, operation: str, **arguments: object) -> Answer:
        body = {"holder": self.holder, **arguments}
        return self.asker.ask(operation, "queue", "q", body)

    def lease(self, number: int, **arguments: object) -> int:
        """Lease messages; return how many."""
        answer = self.ask("LEASE", number=number, **arguments)
        assert answer.status == 200, answer.description
        return _number(answer, "messages")

    def settle(self, until: int) -> int:
        """Settle leases; return how many messages were in them."""
        answer = self.ask("SETTLE-LEASES", until=until)
        assert answer.status == 200, answer.description
        return _number(answer, "messages")

    def listed(self) -> list[tuple[str, int, int]]:
        """The leases of the queue: holder, number, messages."""
        leases = self.asker.ask("LIST-LEASES", "queue", "q").map()["leases"]
        assert isinstance(leases, list)
        return [(one["holder"], one["number"], one["messages"]) for one in leases]

    def read(self, number: int, **places: int) -> list[bytes]:
        """Read a lease, message by message."""
        receiver = read(self.client, self.holder, number, **places)
        assert not receiver.detached, receiver.error
        bodies = receiver.bodies()
        receiver.close()
        return bodies


def read(client: Client, holder: str, number: int, **places: int) -> Receiver:
    """Attach a link that reads a lease."""
    asked = {"holder": holder, "number": number, **places}
    return client.receiver("q", credit=1000, properties={"ferrymq:lease": asked})


def read_chunks(client: Client, holder: str, number: int, records: int, **places: int) -> Receiver:
    """Attach a link that reads a lease in chunks."""
    asked = {"holder": holder, "number": number, **places}
    chunks = {Symbol("records"): UInt(records)}
    return client.receiver(
        "q", credit=1000, properties={"ferrymq:lease": asked, "ferrymq:chunks": chunks}
    )


def chunked(receiver: Receiver) -> list[tuple[int, int, list[bytes]]]:
    """Return the positions that each received chunk covers, and its bodies."""
    chunks = [Chunk(delivery.payload) for delivery in receiver.deliveries]
    return [
        (int(one.first), int(one.next), [text(one.payload(i)) for i in range(one.count)])
        for one in chunks
    ]


def fill(net: Network, count: int, first: int = 0) -> Sender:
    """Publish numbered messages to the queue `q`."""
    sender = net.connect().sender("q")
    publish(sender, *numbered(first, count))
    return sender


def _number(answer: Answer, key: str) -> int:
    found = answer.map()[key]
    assert isinstance(found, int)
    return int(found)
