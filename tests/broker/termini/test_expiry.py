"""How long a terminus lasts without a link (AMQP 1.0 §3.5.6)."""

from __future__ import annotations

import pytest

from ferrymq_broker.store.tables import DELIVERY, TERMINUS
from ferrymq_types.messaging import Accepted, Rejected
from tests.broker.harness import Network, header
from tests.broker.termini.clients import (
    Consumer,
    Publisher,
    drained,
    filled,
    source,
    stored,
    target,
)

CUTS = pytest.mark.parametrize("broker", [False, True], ids=["connection", "broker"])


def held(net: Network, policy: str, timeout: int) -> Consumer:
    """A consumer that has the one message there is."""
    filled(net, b"a")
    one = Consumer(net, of=source(policy=policy, timeout=timeout))
    one.connect()
    one.attach()
    assert one.bodies() == [b"a"]
    return one


def gone(net: Network) -> bool:
    assert net.store is not None
    records = net.store.count(TERMINUS) + net.store.count(DELIVERY)
    assert (len(net.broker.shared.termini) == 0) == (records == 0)
    return records == 0


@CUTS
@pytest.mark.spec("3.5.6")
@pytest.mark.parametrize("policy", ["link-detach", "session-end", "connection-close"])
def test_when_its_time_is_over_it_gives_back_what_it_has(policy: str, broker: bool) -> None:
    net = stored()
    one = held(net, policy, 60)
    one.restart(broker=broker)
    net.advance(59)
    assert not gone(net) and net.queue("q").available == 0
    net.advance(1)
    net.run()
    assert gone(net)
    receiver = net.connect().receiver("q", credit=1)
    assert receiver.bodies() == [b"a"]
    # The client may have seen it.
    assert header(receiver.deliveries[0].payload).delivery_count == 1


@pytest.mark.spec("3.5.6")
@pytest.mark.parametrize("policy", ["link-detach", "session-end", "connection-close"])
def test_without_a_time_it_goes_with_what_it_is_bound_to(policy: str) -> None:
    net = stored()
    one = held(net, policy, 0)
    one.client.begin()
    one.receiver.close(closed=False)
    assert gone(net) == (policy == "link-detach")
    one.client.session.end()
    net.run()
    assert gone(net) == (policy != "connection-close")
    one.client.close()
    assert gone(net)
    assert drained(net) == [b"a"]


@pytest.mark.spec("3.5.6")
def test_never_is_never() -> None:
    net = stored()
    one = held(net, "never", 1)
    one.restart(broker=False)
    net.advance(1_000_000)
    net.restart()
    net.advance(1_000_000)
    assert not gone(net) and drained(net) == []


@pytest.mark.spec("3.5.6")
def test_coming_back_stops_the_time() -> None:
    net = stored()
    one = held(net, "link-detach", 60)
    for _ in range(3):
        one.restart(broker=False)
        net.advance(50)
        one.connect()
        one.attach()
        assert one.bodies() == [b"a"]
    net.advance(1000)
    assert not gone(net)


@pytest.mark.spec("3.5.6")
def test_the_time_goes_on_while_the_broker_is_away() -> None:
    net = stored()
    one = held(net, "link-detach", 60)
    one.restart(broker=False)
    net.advance(40)
    # The clock of the day goes on, nobody is there to see it.
    net.now += 15
    net.restart()
    assert not gone(net)
    net.now += 15
    net.restart()
    net.advance(1)
    net.run()
    assert gone(net) and drained(net) == [b"a"]


@pytest.mark.spec("3.5.6")
def test_the_time_is_counted_from_the_detach_in_the_session_that_ends_last() -> None:
    net = stored()
    one = held(net, "session-end", 60)
    one.receiver.close(closed=False)
    net.advance(100)
    assert not gone(net)
    one.client.session.end()
    net.run()
    net.advance(59)
    assert not gone(net)
    net.advance(2)
    net.run()
    assert gone(net)


@CUTS
@pytest.mark.spec("3.5.3")
def test_the_default_outcome_is_what_becomes_of_it(broker: bool) -> None:
    net = stored()
    filled(net, b"a")
    asked = source(policy="link-detach", timeout=60, default_outcome=Rejected())
    one = Consumer(net, of=asked)
    one.connect()
    one.attach()
    one.restart(broker=broker)
    net.advance(61)
    net.run()
    assert gone(net) and net.queue("q").message_count() == 0
    assert net.queue("q").rejected == 1


@CUTS
@pytest.mark.spec("3.5.6", "2.6.13")
def test_a_client_that_comes_too_late_is_told_by_the_answer(broker: bool) -> None:
    net = stored()
    one = held(net, "link-detach", 60)
    one.restart(broker=broker)
    net.advance(61)
    net.run()
    one.connect()
    receiver = one.attach()
    attach = receiver.link.remote_attach
    assert attach is not None and attach.unsettled is None
    assert one.bodies() == [b"a"]
    one.give(Accepted())
    assert net.queue("q").message_count() == 0


@CUTS
@pytest.mark.spec("3.5.6")
def test_a_target_forgets_when_its_time_is_over(broker: bool) -> None:
    net = stored()
    one = Publisher(net, to=target(policy="link-detach", timeout=60))
    one.connect()
    one.attach()
    one.send(b"a")
    one.restart(broker=broker)
    net.advance(61)
    net.run()
    assert gone(net)
    one.connect()
    sender = one.attach()
    assert sender.link.remote_attach is not None
    assert sender.link.remote_attach.unsettled is None


@pytest.mark.spec("3.5.5")
def test_a_link_that_asks_for_less_has_another_terminus() -> None:
    net = stored()
    one = held(net, "never", 0)
    one.restart(broker=False)
    client = net.connect(container_id="worker")
    receiver = client.receiver("q", name="link", credit=10)
    assert gone(net)
    assert receiver.bodies() == [b"a"] and receiver.remote_source.durable.value == 0


@pytest.mark.spec("3.5.5", "3.5.6")
def test_another_queue_is_another_terminus() -> None:
    net = stored()
    net.declare("other")
    one = held(net, "never", 0)
    one.restart(broker=False)
    one.connect()
    one.source = source("other")
    receiver = one.attach()
    attach = receiver.link.remote_attach
    assert attach is not None and attach.unsettled is None
    assert len(net.broker.shared.termini) == 1 and drained(net) == [b"a"]


def test_there_are_no_more_than_there_may_be_nodes() -> None:
    net = stored()
    net.space.max_nodes = 3
    client = net.connect()
    for n in range(3):
        assert not client.sender("q", target=target(), name=f"l{n}").detached
    refused = client.sender("q", target=target(), name="one too many")
    assert refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded"
    refused = client.receiver(None, source=source(), name="one too many")  # type: ignore[assignment]
    assert refused.error is not None
    # Others may come.
    assert not client.sender("q").detached
    net.restart()
    refused = net.connect().sender("q", target=target(), name="one too many")
    assert refused.error is None
