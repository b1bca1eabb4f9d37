"""All producers of a broker together are promised no more than its budget."""

from __future__ import annotations

import pytest

from ferrymq_types.messaging import Data, Properties
from tests.broker.harness import Network, Sender


def total(senders: list[Sender]) -> int:
    return sum(int(sender.link.credit) for sender in senders)


@pytest.mark.spec("broker-2.3.9")
@pytest.mark.parametrize("address", ["q", None])
def test_the_budget_is_never_exceeded(net: Network, address: str | None) -> None:
    net.broker.limit_credit(50_000)
    clients = [net.connect() for _ in range(4)]
    senders = [clients[i % 4].sender(address) for i in range(2000)]
    assert 0 < total(senders) <= 50_000
    assert net.broker.credit.reserved <= 50_000
    # The late ones have less than the early ones, but they have something.
    assert all(sender.link.credit > 0 for sender in senders[:1000])


@pytest.mark.spec("broker-2.3.9")
def test_a_link_without_credit_gets_it_when_another_goes(net: Network) -> None:
    net.broker.limit_credit(3)
    client = net.connect()
    senders = [client.sender("q") for _ in range(5)]
    assert [int(sender.link.credit) for sender in senders] == [1, 1, 1, 0, 0]
    senders[0].close()
    assert [int(sender.link.credit) for sender in senders[1:]] == [1, 1, 1, 0]
    senders[3].send(b"x")
    assert senders[3].link.credit == 1
    client.lose()
    assert net.broker.credit.reserved == 0


def test_a_poor_link_grows_when_there_is_more(net: Network) -> None:
    net.broker.limit_credit(2048)
    client = net.connect()
    first, second = client.sender("q"), client.sender("q")
    assert second.link.credit <= 2
    first.close()
    net.broker.limit_credit(10_000_000)
    second.send(b"x", b"y")
    assert second.link.credit == net.credit


def test_anonymous_links_count_like_any_other(net: Network) -> None:
    net.broker.limit_credit(1)
    client = net.connect()
    relay = client.sender(None)
    relay.send_sections(Properties(to="q"), Data(value=b"x"))
    assert relay.link.credit == 1
    assert client.sender("q").link.credit == 0


def test_without_a_budget_everybody_has_all(net: Network) -> None:
    client = net.connect()
    assert all(client.sender("q").link.credit == net.credit for _ in range(50))
