"""Rate limits: a client may send so many messages and bytes a second; others notice nothing."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq.engine.sasl import Plain
from ferrymq_broker.config.apply.declare import make_hosts
from ferrymq_broker.config.model import Config
from ferrymq_broker.management.setup import install
from ferrymq_broker.server import BrokerServer
from ferrymq_broker.values.policy import QueuePolicy
from tests.broker.harness import Client, Network, Sender
from tests.broker.management.asker import Asker


def limited(**limits: int) -> Network:
    """A broker with these rate limits."""
    net = Network()
    for name, value in limits.items():
        setattr(net.broker.rate_limits, name, value)
    return net


def flood(senders: list[Sender], seconds: int, body: bytes = b"x") -> list[int]:
    """Send all that the links allow, for so many seconds; how many messages each has sent."""
    sent = [0] * len(senders)
    net = senders[0].net
    for _ in range(seconds * 20):
        for number, sender in enumerate(senders):
            count = int(sender.link.credit)
            if count:
                sender.send(*[body] * count)
                sent[number] += count
        net.advance(0.05)
    return sent


def as_user(net: Network, name: str) -> Client:
    return net.connect(sasl=Plain(name, "any password"))


def test_without_a_limit_there_is_nothing_to_ask() -> None:
    assert Network().connect().handler.client.throttle is None


def test_a_link_gets_credit_for_so_many_messages_a_second() -> None:
    net = limited(messages=10)
    sender = net.connect().sender("q")
    assert sender.link.credit == 10
    (sent,) = flood([sender], 10)
    # At the beginning it has those of a second.
    assert 100 <= sent <= 111


def test_the_links_of_a_connection_share_its_messages() -> None:
    net = limited(messages=20)
    client = net.connect()
    sent = flood([client.sender("q"), client.sender(None), client.sender("r")], 10)
    assert 200 <= sum(sent) <= 225
    assert min(sent) >= 30


def test_the_connections_of_a_user_share_the_messages_of_the_user() -> None:
    net = limited(user_messages=20)
    anns = [as_user(net, "ann").sender("q") for _ in range(2)]
    bob = as_user(net, "bob").sender("q")
    sent = flood([*anns, bob], 10)
    assert 195 <= sent[0] + sent[1] <= 225 and min(sent[:2]) >= 50
    assert 200 <= sent[2] <= 225
    assert len(net.broker.rate_limits._users) == 2
    for client in list(net.clients):
        client.close()
    assert not net.broker.rate_limits._users


def test_anonymous_clients_have_no_user_whose_limit_could_count() -> None:
    net = limited(user_messages=5)
    assert net.connect().sender("q").link.credit == 1000


def test_a_node_with_a_bound_counts_too() -> None:
    net = limited(messages=10)
    net.declare("q", QueuePolicy(max_length=8, overflow="block"))
    sender = net.connect().sender("q")
    flood([sender], 5)
    assert net.queue("q").available == 8
    net.queue("q").purge()
    net.finish()
    assert sum(flood([sender], 1)) <= 8


def test_what_a_link_has_not_used_is_given_back() -> None:
    """A client that attaches for each message has the same rate."""
    net = limited(messages=10)
    client = net.connect()
    sent = 0
    for _ in range(100):
        sender = client.sender("q")
        if sender.link.credit:
            sender.send(b"x")
            sent += 1
        sender.close()
        net.advance(0.05)
    assert 50 <= sent <= 61


def test_requests_of_management_do_not_count() -> None:
    net = limited(messages=1)
    install(net.space, net.broker)
    client = net.connect()
    asker = Asker(net, client)
    name = str(client.handler.client.id)
    flood([client.sender("q")], 1)
    for _ in range(20):
        assert asker.ask("READ", "connection", name).map()["throttled"] is True
    assert net.broker.counters.throttles >= 1


def test_a_client_that_sends_too_many_bytes_is_not_read_for_a_while() -> None:
    net = limited(bytes=1000)
    client, other = net.connect(idle_time_out=None), net.connect()
    handler = client.handler
    rearmed: list[bool] = []
    handler.rearm = lambda: rearmed.append(handler.is_behind())
    client.sender("q").send(b"x" * 5000)
    assert handler.is_behind() and not other.handler.is_behind()
    throttle = handler.client.throttle
    assert throttle is not None and throttle.is_throttled()
    net.advance(3)
    assert handler.is_behind()
    net.advance(2)
    assert not handler.is_behind() and rearmed == [False]
    assert 4000 <= throttle.throttled_time() <= 5000
    # The bytes of all reads count, and the rest of a second is not saved up.
    net.advance(60)
    client.sender("q").send(b"x" * 500)
    assert not handler.is_behind()
    client.sender("q").send(b"x" * 500)
    assert handler.is_behind()


def test_a_client_that_is_not_read_is_not_silent() -> None:
    net = Network(idle_time_out=10)
    net.broker.rate_limits.bytes = 100
    client = net.connect()
    client.sender("q").send(b"x" * 5000)
    # The client writes, but nothing is read.
    client.silent = True
    net.advance(40)
    assert client.handler.is_behind() and not client.hung_up
    net.advance(15)
    assert not client.handler.is_behind() and not client.hung_up
    # From now on its silence counts.
    net.advance(15)
    assert client.closed_with is not None


@pytest.mark.parametrize("end", ["close", "lose"])
def test_a_connection_that_ends_while_it_waits(end: str) -> None:
    net = limited(messages=1, bytes=10, user_messages=1)
    client = as_user(net, "ann")
    client.sender("q")
    client.sender("q")
    assert client.handler.is_behind()
    getattr(client, end)()
    net.advance(60)
    assert not net.broker.handlers and len(net.broker.timers) == 0
    # Nobody waits any more: the next connection gets all of it.
    assert as_user(net, "ann").sender("q").link.credit == 1


def test_the_configuration_sets_the_limits() -> None:
    net = Network()
    limits = {
        "messages-per-second": 1,
        "bytes-per-second": "2KiB",
        "messages-per-second-per-user": 3,
        "bytes-per-second-per-user": 4,
    }
    make_hosts(Config.model_validate({"limits": limits}), net.broker)
    rates = net.broker.rate_limits
    assert (rates.messages, rates.bytes) == (1, 2048)
    assert (rates.user_messages, rates.user_bytes) == (3, 4)


async def test_a_broker_that_serves_goes_on_reading_when_the_time_is_over() -> None:
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "limits": {"bytes-per-second": "64KiB", "messages-per-second": 50},
        }
    )
    async with BrokerServer(config) as server, ferrymq.connect(server.url) as connection:
        sender = await connection.sender("q")
        for size in (80_000, 10):
            await sender.send(b"x" * size)
        counters = server.broker.counters
        assert counters.throttles >= 1
        for _ in range(60):
            await sender.send(b"x")
        assert server.broker.default.nodes["q"].message_count() == 62
