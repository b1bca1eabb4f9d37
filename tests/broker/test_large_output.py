"""Large messages on their way out: a window of output for each reader, and one payload for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferrymq.engine.outgoing import _Parked
from ferrymq.engine.output_limit import FRAME
from ferrymq_broker.config import Config, Listener
from ferrymq_broker.connections.output_turns import OUTPUT_LIMIT
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.server.protocol import WRITE_HIGH_WATER
from ferrymq_broker.values.policy import StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Header, Modified, Released, Source, Target
from ferrymq_types.transport import Error, SenderSettleMode
from tests.broker.harness import (
    Client,
    Network,
    Receiver,
    encode,
    header,
    message_annotations,
    text,
)
from tests.broker.socket_client import SocketClient
from tests.broker.streams.kit import read
from tests.broker.transactions.kit import Controller

MIB = 1 << 20
BODY = bytes(range(256)) * (4 * MIB // 256)
# What one connection may have in its output after a pass.
WINDOW = OUTPUT_LIMIT + FRAME
TOPIC = Source(address="news", capabilities=["topic"])


def publish(net: Network, *sections: Header, address: str = "q") -> None:
    net.connect().sender(address).send_sections(*sections, Data(value=BODY))


def begin_to_receive(
    net: Network, client: Client | None = None, **options: object
) -> tuple[Client, Receiver]:
    """A client that has credit for one message, of which it has got the first window."""
    client = client or net.connect()
    receiver = client.receiver("q", **options)  # type: ignore[arg-type]
    receiver.link.set_credit(1)
    client.step()
    assert client.handler.connection.holds_back
    return client, receiver


def held(client: Client) -> int:
    """Bytes for the client in the broker and on their way."""
    return len(client.handler.connection.output) + sum(map(len, client.inbox))


def parked_for(client: Client) -> list[_Parked]:
    """Deliveries for the client of which some is still to be encoded."""
    sessions = client.handler.connection.channels.by_remote.values()
    return [parked for session in sessions for parked in session.outgoing._backlog]


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sections", [(), (Header(ttl=1_000_000),)], ids=["as it came", "with a header of its own"]
)
def test_readers_of_a_large_message_share_it(net: Network, sections: tuple[Header, ...]) -> None:
    publish(net, *sections)
    # What is left of its time differs from what it came with.
    net.advance(1)
    clients = [net.connect() for _ in range(10)]
    receivers = [client.receiver("q", mode="copy") for client in clients]
    net.clients.clear()
    for client, receiver in zip(clients, receivers, strict=True):
        receiver.link.set_credit(10)
        client.step()
    assert all(held(client) <= WINDOW for client in clients)
    sent = [parked.payload for client in clients for parked in parked_for(client)]
    assert sent and len({id(payload) for payload in sent}) == 1
    net.clients.extend(clients)
    net.run()
    assert [receiver.bodies() for receiver in receivers] == [[BODY]] * 10


def test_a_large_message_for_many_is_encoded_in_turns(net: Network) -> None:
    net.space.create("news", TopicPolicy())
    publisher = net.connect()
    readers = [net.connect() for _ in range(40)]
    receivers = [reader.receiver(None, source=TOPIC, credit=10) for reader in readers]
    sender = publisher.sender("news")
    sent = net.broker.counters

    def spent(call: Callable[[], object]) -> int:
        before = sent.bytes_sent
        call()
        waiting = sum(len(reader.handler.connection.output) for reader in readers)
        return int(sent.bytes_sent) - before + waiting

    sender.link.send(encode(Data(value=BODY)))
    passes = [spent(publisher.step)]
    while net.later:
        for call in [net.later.pop(0) for _ in range(len(net.later))]:
            passes.append(spent(call))
    # Four of them have a window each; what is told of settlements is small.
    assert max(passes) <= 4 * WINDOW + 10_000
    assert sum(passes) > 40 * len(BODY)
    net.run()
    assert [receiver.bodies() for receiver in receivers] == [[BODY]] * 40


def test_small_messages_are_not_kept_waiting_by_large_ones(net: Network) -> None:
    net.space.create("news", TopicPolicy())
    readers = [net.connect() for _ in range(40)]
    receivers = [reader.receiver(None, source=TOPIC, credit=10) for reader in readers]
    other = net.connect()
    small = other.sender("small")
    answer = other.receiver("small", credit=10)
    publisher = net.connect()
    sender = publisher.sender("news")
    sender.link.send(encode(Data(value=BODY)))
    publisher.step()
    assert any(not client.inbox for client in readers)
    small.link.send(encode(Data(value=b"small")))
    other.step()
    other.step()
    assert answer.bodies() == [b"small"]
    net.run()
    assert [receiver.bodies() for receiver in receivers] == [[BODY]] * 40


@pytest.mark.parametrize("mode", ["copy", "move"])
async def test_who_does_not_read_costs_a_window(mode: str) -> None:
    """Over sockets: however large a message is, each connection holds a bounded part of it."""
    body = bytes(24 * MIB)
    listener = Listener(url="amqp://127.0.0.1:0")
    async with (
        BrokerServer(Config(listener=[listener])) as server,
        SocketClient(server.port) as publisher,
    ):
        session = publisher.engine.begin()
        sender = session.attach_sender("s", target=Target(address="q"))
        await publisher.until(lambda: sender.credit > 4)
        for _ in range(1 if mode == "copy" else 4):
            delivery = sender.send(encode(Data(value=body)))
        await publisher.until(lambda: delivery.remote_settled)
        readers = [SocketClient(server.port) for _ in range(4)]
        for reader in readers:
            await reader.__aenter__()
            session = reader.engine.begin()
            source = Source(address="q", distribution_mode=mode)
            link = session.attach_receiver("r", source=source)
            await reader.until(lambda link=link: link.usable)
            reader._transport.pause_reading()
            link.set_credit(1)
            reader.flush()
        while sum(one.handler.output.paused for one in server.connections) < len(readers):
            await publisher.round_trip()
        for one in server.connections:
            waiting = one._transport.get_write_buffer_size()
            assert waiting + len(one.handler.connection.output) <= WRITE_HIGH_WATER + WINDOW
        for reader in readers:
            reader._transport.resume_reading()
            await reader.until(lambda reader=reader: reader.deliveries)
            assert text(reader.deliveries[0].payload) == body
            await reader.__aexit__(None, None, None)


# -- what happens meanwhile ------------------------------------------------------------------------


def test_the_connection_is_lost_when_it_is_half_sent(net: Network) -> None:
    publish(net)
    client, receiver = begin_to_receive(net)
    client.lose()
    assert net.queue("q").available == 1
    other = net.connect().receiver("q", credit=1)
    assert other.bodies() == [BODY]
    assert header(other.deliveries[0].payload).delivery_count == 1
    assert not receiver.deliveries


@pytest.mark.spec("2.6.14")
def test_the_client_detaches_when_it_is_half_sent(net: Network) -> None:
    publish(net)
    client, receiver = begin_to_receive(net)
    receiver.close()
    assert not receiver.deliveries and receiver.detached
    assert not client.handler.connection.has_output
    assert client.receiver("q", credit=1).bodies() == [BODY]


def test_the_session_ends_when_it_is_half_sent(net: Network) -> None:
    publish(net)
    client, receiver = begin_to_receive(net)
    client.session.end()
    net.run()
    assert not receiver.deliveries
    client.session = client.begin()
    assert client.receiver("q", credit=1).bodies() == [BODY]


@pytest.mark.spec("2.6.7")
def test_credit_is_withdrawn_when_it_is_half_sent(net: Network) -> None:
    """The delivery was allowed: it comes to its end. None follows it."""
    publish(net)
    publish(net)
    client, receiver = begin_to_receive(net)
    receiver.link.set_credit(0)
    net.run()
    assert receiver.bodies() == [BODY]
    assert net.queue("q").available == 1
    assert client.handler.connection.state is client.engine.state


@pytest.mark.spec("2.6.7")
def test_a_drain_is_answered_when_it_is_sent(net: Network) -> None:
    publish(net)
    client = net.connect()
    receiver = client.receiver("q")
    receiver.link.set_credit(5)
    client.step()
    assert client.handler.connection.holds_back
    receiver.link.drain_credit()
    client.step()
    assert receiver.drained == 0
    net.run()
    assert receiver.bodies() == [BODY]
    assert receiver.drained == 1 and receiver.link.credit == 0


def test_the_queue_is_deleted_when_it_is_half_sent(net: Network) -> None:
    publish(net)
    client, receiver = begin_to_receive(net)
    net.queue("q").delete(Error(condition="amqp:resource-deleted"))
    net.finish()
    assert receiver.detached and not receiver.deliveries
    assert not client.handler.connection.has_output


def test_what_a_browser_is_shown_may_go_meanwhile(net: Network) -> None:
    publish(net)
    _, receiver = begin_to_receive(net, mode="copy")
    net.queue("q").purge()
    net.run()
    assert receiver.bodies() == [BODY]


def test_its_time_is_over_when_it_is_half_sent(net: Network) -> None:
    publish(net, Header(ttl=1000))
    _, receiver = begin_to_receive(net)
    net.now += 10
    net.broker.handle_timeout(net.now)
    net.run()
    assert receiver.bodies() == [BODY]
    receiver.settle(Released())
    assert net.queue("q").available == 0


@pytest.mark.parametrize("settled", [True, False])
def test_one_after_the_other_without_gaps(net: Network, settled: bool) -> None:
    publisher = net.connect().sender("q")
    bodies = [BODY[: 1 + 300_000 * number] for number in range(8)]
    publisher.send(*bodies)
    mode = SenderSettleMode.SETTLED if settled else SenderSettleMode.UNSETTLED
    receiver = net.connect().receiver("q", credit=100, snd=mode)
    assert receiver.bodies() == bodies
    receiver.settle(Accepted())
    assert net.queue("q").acquired == 0


def test_a_redelivery_is_not_copied(net: Network) -> None:
    publish(net)
    entry = net.queue("q").entries.first_available()
    assert entry is not None
    payload = entry.message.payload
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Modified(delivery_failed=True, undeliverable_here=False))
    receiver.link.set_credit(1)
    receiver.client.step()
    [parked] = parked_for(receiver.client)
    assert parked.payload is payload and len(parked.head) < 50
    net.run()
    assert receiver.bodies() == [BODY]
    assert header(receiver.deliveries[0].payload).delivery_count == 1


@pytest.mark.spec("4.4.3")
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_when_it_is_half_sent(net: Network, committed: bool) -> None:
    publish(net)
    client = net.connect()
    control = Controller(client)
    receiver = client.receiver("q")
    txn = control.declare()
    receiver.link.set_credit(1, properties={"txn-id": txn})
    client.step()
    assert client.handler.connection.holds_back
    (control.commit if committed else control.roll_back)(txn)
    assert receiver.bodies() == [BODY]
    assert net.queue("q").available == (not committed)


def test_a_slow_client_gets_the_rest_when_it_reads(net: Network) -> None:
    publish(net)
    client, receiver = begin_to_receive(net)
    client.pause()
    before = held(client)
    net.run()
    assert held(client) == before and not receiver.deliveries
    client.resume()
    assert receiver.bodies() == [BODY]


def test_other_links_go_on_when_it_is_sent(net: Network) -> None:
    publish(net)
    client, receiver = begin_to_receive(net)
    other = client.receiver("other", credit=5)
    client.sender("other").send(b"a", b"b")
    net.run()
    assert receiver.bodies() == [BODY]
    assert other.bodies() == [b"a", b"b"]


def test_readers_of_a_large_record_share_it(net: Network) -> None:
    net.space.create("log", StreamPolicy(partitions=1))
    publish(net, Header(durable=True), address="log")
    clients = [net.connect() for _ in range(4)]
    receivers = [read(client, "log", credit=0) for client in clients]
    net.clients.clear()
    for client, receiver in zip(clients, receivers, strict=True):
        receiver.link.set_credit(10)
        client.step()
    assert all(held(client) <= WINDOW for client in clients)
    sent = [parked.payload for client in clients for parked in parked_for(client)]
    assert len(sent) == 4 and len({id(payload) for payload in sent}) == 1
    net.clients.extend(clients)
    net.run()
    for receiver in receivers:
        assert receiver.bodies() == [BODY]
        annotations = message_annotations(receiver.deliveries[0].payload)
        assert annotations["x-opt-offset"] == 0 and header(receiver.deliveries[0].payload).durable
