"""What ends with much in it, over several passes: order, counts, names, and what is told when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrymq_broker.connections.consumer_link import ConsumerLink
from ferrymq_broker.connections.handler import ConnectionHandler
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.slices import LINK
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.harness import Client, Network

LINKS = 100
# Units of one slice: some links, or as many messages.
SIZE = 10 * LINK


@pytest.fixture
def net() -> Network:
    return Network(slice_size=SIZE)


class Passes:
    """How much happens in the broker's passes, one by one."""

    def __init__(self, net: Network) -> None:
        self.net = net

    def each(self, amount: Callable[[], int], most: int) -> int:
        """Make passes until nothing is left; no pass changes `amount` by more than `most`."""
        passes = 0
        while self.net.later:
            before = amount()
            todo = self.net.later.copy()
            self.net.later.clear()
            for call in todo:
                call()
            assert abs(amount() - before) <= most
            passes += 1
        return passes


def crowd(net: Network, kind: str, count: int = LINKS) -> Client:
    """A client with so many links to the queue q."""
    client = net.connect()
    for number in range(count):
        name = f"link-{number}"
        if kind == "sender":
            client.sender("q", name=name)
        else:
            mode = "copy" if kind == "browser" else "move"
            client.receiver("q", name=name, mode=mode, credit=1)
    return client


def links_of(queue: Queue) -> int:
    return int(queue.links)


def lose(client: Client) -> None:
    """The transport ends, and nothing else happens yet."""
    client.net.clients.remove(client)
    client.handler.receive_eof(client.net.now)


@pytest.mark.parametrize("kind", ["consumer", "browser", "sender"])
def test_links_are_dropped_a_few_in_each_pass(net: Network, kind: str) -> None:
    client = crowd(net, kind)
    queue = net.queue("q")
    assert links_of(queue) == LINKS
    lose(client)
    assert LINKS - 10 <= links_of(queue) <= LINKS
    assert Passes(net).each(lambda: links_of(queue), 10) >= 9
    assert links_of(queue) == 0 and not queue.consumers and not queue.producers
    assert len(net.broker.shared.names) == 0 and not net.broker.handlers


@pytest.mark.parametrize("kind", ["consumer", "browser", "sender"])
def test_a_node_with_many_links_is_deleted_a_few_in_each_pass(net: Network, kind: str) -> None:
    client = crowd(net, kind)
    queue = net.queue("q")
    net.space.remove(queue)
    assert net.space.find("q") is None and queue.deleted
    assert Passes(net).each(lambda: links_of(queue), 10) >= 9
    net.run()
    assert links_of(queue) == 0 and queue.ending is not None and queue.ending.over
    assert all(link.remote_detached for link in client.session.links.values())


def test_the_client_hears_of_the_end_when_all_is_done(net: Network) -> None:
    client = crowd(net, "consumer")
    queue = net.queue("q")
    client.session.end()
    told: list[int] = []
    while client.step() or net.later:
        if not client.session.mapped and client.session.state.name == "UNMAPPED" and not told:
            told.append(links_of(queue))
        todo = net.later.copy()
        net.later.clear()
        for call in todo:
            call()
    assert told == [0]


def test_many_connections_that_end_at_once_share_a_slice(net: Network) -> None:
    clients = [net.connect() for _ in range(50)]
    for client in clients:
        lose(client)
    assert len(net.broker.handlers) > 40
    Passes(net).each(lambda: len(net.broker.handlers), 10)
    assert not net.broker.handlers


def test_messages_return_in_order_and_none_overtakes_them(net: Network) -> None:
    net.declare("q")
    sender = net.connect().sender("q")
    bodies = [b"%04d" % number for number in range(600)]
    holder = net.connect()
    # Every other message is with another link of the same connection.
    for _ in range(2):
        holder.receiver("q", credit=250)
    sender.send(*bodies[:500])
    queue = net.queue("q")
    assert queue.acquired == 500
    other = net.connect().receiver("q", credit=1000)
    lose(holder)
    assert 0 < queue.acquired < 500
    # They come while the others are on their way back.
    sender.send(*bodies[500:])
    assert other.bodies() == bodies
    assert queue.acquired == 600 and queue.available == 0


def test_a_name_can_be_attached_again_at_once(net: Network) -> None:
    net.declare("q", QueuePolicy(exclusive=True))
    first = net.connect(container_id="c")
    mine = first.receiver("q", name="mine", credit=1000)
    sender = net.connect().sender("q")
    for number in range(400):
        sender.send(b"%03d" % number)
    assert len(mine.deliveries) == 400
    lose(first)
    assert net.queue("q").acquired > 0
    again = net.connect(container_id="c").receiver("q", name="mine", credit=1000)
    assert again.bodies() == [b"%03d" % number for number in range(400)]
    assert len(net.queue("q").consumers) == 1


def test_a_purge_counts_what_was_there_and_leaves_what_comes(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    for number in range(1000):
        sender.send(b"%03d" % number)
    purge = queue.purge()
    assert not purge.over and purge.count <= SIZE
    sender.link.send(sender_message(b"new"))
    Passes(net).each(lambda: int(purge.count), SIZE)
    net.run()
    assert purge.over and purge.count == 1000
    assert net.connect().receiver("q", credit=5).bodies() == [b"new"]


def test_a_deleted_queue_drops_its_messages_a_few_in_each_pass(net: Network) -> None:
    queue = net.declare("q")
    sender = net.connect().sender("q")
    for _ in range(1000):
        sender.send(b"x")
    net.space.remove(queue)
    assert queue.available > 0
    assert Passes(net).each(lambda: int(queue.available), SIZE) >= 5
    assert queue.available == 0 and net.broker.agenda.held == 0


def test_an_alarm_takes_credit_back_a_few_links_in_each_pass(net: Network) -> None:
    crowd(net, "sender")
    handler = next(iter(net.broker.handlers))
    assert isinstance(handler, ConnectionHandler)
    net.broker.set_alarm("disk", True)
    net.run()
    assert credit_of(net) == 0
    net.broker.set_alarm("disk", False)
    Passes(net).each(lambda: len(net.broker.credit._waiting), 10)
    net.run()
    assert credit_of(net) > 0


def credit_of(net: Network) -> int:
    return sum(link.credit for link in net.clients[0].session.links.values())


def sender_message(body: bytes) -> bytes:
    return b"\x00\x53\x75\xa0" + bytes([len(body)]) + body


def test_nobody_is_left_who_waits(net: Network) -> None:
    client = crowd(net, "consumer")
    queue = net.queue("q")
    endpoint = next(iter(queue.consumers))
    assert isinstance(endpoint, ConsumerLink)
    lose(client)
    net.run()
    assert len(net.broker.agenda.slices) == 0
    sender = net.connect().sender("q")
    sender.send(b"x")
    assert net.connect().receiver("q", credit=1).bodies() == [b"x"]


def test_credit_that_a_producer_leaves_goes_to_others_a_few_in_each_pass(net: Network) -> None:
    rich = net.connect().sender("q")
    net.broker.limit_credit(int(rich.link.credit))
    client = crowd(net, "sender")
    links = list(client.session.links.values())

    def supplied() -> int:
        client.step()
        return sum(link.credit > 0 for link in links)

    assert supplied() == 0
    rich.client.net.clients.remove(rich.client)
    rich.client.handler.receive_eof(net.now)
    assert supplied() <= 10
    assert Passes(net).each(supplied, 10) >= 9
    assert supplied() == LINKS
