"""Rates of nodes, and how old their oldest message is."""

from __future__ import annotations

import pytest

from ferrymq_broker.history.sampler import series_of
from ferrymq_broker.history.series import ARRAY_BYTES
from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Header
from tests.broker.harness import Network
from tests.broker.history.sampling import begin_history
from tests.broker.management.asker import Asker
from tests.broker.stores import ManualStore
from tests.broker.streams.kit import read

RATES = ("in-rate", "out-rate", "oldest-age")


def rates(asker: Asker, type: str, name: str) -> tuple[object, ...]:
    shown = asker.ask("READ", type, name).map()
    return tuple(shown[key] for key in RATES)


def test_a_queue(net: Network, asker: Asker) -> None:
    client = net.connect()
    sender = client.sender("q")
    assert rates(asker, "queue", "q") == (0.0, 0.0, 0)
    for _ in range(50):
        sender.send(b"m")
    receiver = client.receiver("q", credit=20)
    assert len(receiver.deliveries) == 20
    net.advance(5)
    assert rates(asker, "queue", "q")[:2] == (10.0, 4.0)
    net.advance(5)
    # Messages that a consumer holds are there, and nothing moves.
    assert rates(asker, "queue", "q") == (0.0, 0.0, 10)
    receiver.settle(Accepted())
    net.advance(20)
    assert rates(asker, "queue", "q") == (0.0, 0.0, 28)
    answer = asker.ask("HISTORY", "queue", "q", {"seconds": 25})
    assert answer.status == 200
    shown = answer.map()
    assert shown["interval"] == 5
    assert shown["end"] == net.wall
    assert shown["messages"] == [50, 30, 30, 30, 30]
    assert shown["in-rate"] == [0.0] * 5
    shown = asker.ask("HISTORY", "queue", "q").map()
    assert shown["in-rate"] == [10.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert shown["out-rate"] == [4.0, 0.0, 0.0, 0.0, 0.0, 0.0]


def test_the_oldest_message_is_the_next_one_when_one_has_left(net: Network, asker: Asker) -> None:
    """Messages have no time of arrival: the samples tell it, minutes later too."""
    client = net.connect()
    sender = client.sender("q")
    for _ in range(4):
        sender.send(b"m")
        net.advance(1000)
    receiver = client.receiver("q", credit=0)
    for age in (4000, 3000, 2000, 1000):
        net.advance(5)
        found = rates(asker, "queue", "q")[2]
        assert isinstance(found, int)
        # Samples of the last hour are a minute apart, those of the day ten.
        assert abs(found - age) <= (300 if age > 3500 else 60)
        receiver.credit(1)
        receiver.settle(Accepted())
    assert rates(asker, "queue", "q")[2] == 0


def test_a_topic_and_its_subscriptions(net: Network, asker: Asker) -> None:
    net.space.create("t", TopicPolicy())
    client = net.connect()
    first = client.receiver("t", credit=100)
    client.receiver("t", credit=0)
    sender = client.sender("t")
    for _ in range(10):
        sender.send(b"m")
    assert len(first.deliveries) == 10
    first.close()
    net.advance(5)
    # What an ended subscription got and delivered still counts for the topic.
    assert rates(asker, "topic", "t")[:2] == (2.0, 2.0)
    (row,) = asker.query("subscription")
    assert (row["in-rate"], row["out-rate"], row["oldest-age"]) == (2.0, 0.0, 5)
    host = asker.ask("HISTORY", "virtual-host", "self").map()
    # Both copies of ten messages; answers to this client come after the sample.
    assert host["in-rate"] == [4.0]
    assert host["messages"] == [10]


def test_a_stream(net: Network, asker: Asker) -> None:
    net.space.create("s", StreamPolicy())
    client = net.connect()
    sender = client.sender("s")
    for _ in range(10):
        sender.send(b"m")
    net.advance(5)
    assert rates(asker, "stream", "s") == (2.0, 0.0, 5)
    assert len(read(client, "s", credit=100).deliveries) == 10
    net.advance(5)
    assert rates(asker, "stream", "s") == (0.0, 2.0, 10)
    # Records are no messages that wait.
    assert asker.ask("HISTORY", "broker", "broker").map()["messages"][-1] == 0  # type: ignore[index]


def test_the_sums_count_nodes_that_are_gone(net: Network, asker: Asker) -> None:
    client = net.connect()
    sender = client.sender("q")
    for _ in range(10):
        sender.send(b"m")
    sender.close()
    assert asker.ask("DELETE", "queue", "q").status == 204
    answers = 1
    net.advance(5)
    broker = asker.ask("HISTORY", "broker", "broker").map()
    assert broker["in-rate"] == [(10 + answers) / 5]
    assert rates(asker, "virtual-host", "self")[0] == 2.2


def test_messages_of_before_a_restart() -> None:
    net = Network(store=ManualStore())
    begin_history(net)
    sender = net.connect().sender("q")
    for _ in range(2):
        sender.send_sections(Header(durable=True), Data(value=b"m"))
        net.advance(100)
    net.restart()
    begin_history(net)
    asker = Asker(net)
    net.advance(5)
    assert rates(asker, "queue", "q") == (0.0, 0.0, 205)
    receiver = net.connect().receiver("q", credit=1)
    receiver.settle(Accepted())
    net.advance(5)
    assert rates(asker, "queue", "q")[2] == 110


def test_without_history_there_are_no_rates() -> None:
    net = Network(memory=True)
    install(net.space, net.broker)
    asker = Asker(net)
    asker.ask("CREATE", "queue", "q")
    assert rates(asker, "queue", "q") == (None, None, None)
    answer = asker.ask("HISTORY", "queue", "q")
    assert (answer.status, "[history]" in answer.description) == (409, True)
    assert asker.ask("HISTORY", "broker", "broker").status == 409
    assert rates(asker, "virtual-host", "self") == (None, None, None)


@pytest.mark.parametrize("body", [{"seconds": 0}, {"seconds": "long"}, {"hours": 1}])
def test_arguments_that_make_no_sense(asker: Asker, body: dict[str, object]) -> None:
    asker.ask("CREATE", "queue", "q")
    answer = asker.ask("HISTORY", "queue", "q", body)
    assert answer.status == 400
    assert next(iter(body)) in answer.description


def test_hours_and_a_day(net: Network, asker: Asker) -> None:
    sender = net.connect().sender("q")
    for _ in range(1500):
        sender.send(b"m")
        net.advance(60)
    for seconds, interval, count in ((600, 5, 120), (3600, 60, 60), (86_400, 600, 144)):
        shown = asker.ask("HISTORY", "queue", "q", {"seconds": seconds}).map()
        assert shown["interval"] == interval
        for key in ("in-rate", "out-rate", "messages", "oldest-age"):
            values = shown[key]
            assert isinstance(values, list) and len(values) == count, (key, seconds)
        assert sum(shown["in-rate"]) == pytest.approx(count / 60, rel=0.01)  # type: ignore[arg-type]


def test_the_samples_have_a_bound(asker: Asker) -> None:
    net = Network(memory=True)
    # The broker and the virtual host have one each beside these.
    sampler = begin_history(net, 2 * ARRAY_BYTES)
    client = net.connect()
    for number in range(4):
        client.sender(f"q{number}").send(b"m")
    net.advance(5)
    kept = [series_of(net.space.nodes[f"q{number}"].history) for number in range(4)]
    assert all(series is not None and series.in_rate() == 0.2 for series in kept)
    assert sampler.arrays == 4
    net.advance(5)
    assert sampler.arrays == 4
    asker = Asker(net)
    shown = [asker.ask("HISTORY", "queue", f"q{n}").map()["messages"] for n in range(4)]
    assert shown.count([1, 1]) == 2
    # A node that ends leaves room for another one.
    net.space.remove(next(net.space.nodes[f"q{n}"] for n in range(4) if shown[n] == [1, 1]))
    net.advance(5)
    assert sampler.arrays == 3


def test_nodes_are_sampled_in_slices() -> None:
    net = Network(memory=True, slice_size=100)
    sampler = begin_history(net)
    for number in range(950):
        net.declare(f"q{number}", QueuePolicy())
    sender = net.connect().sender("q0")
    sender.send(b"m")
    net.run()
    net.now += 5
    net.broker.handle_timeout(net.now)
    passes = 0
    while sampler.clock.tick == 0:
        # A client is served between two slices, and sees the samples before.
        (call,) = net.later
        net.later.clear()
        call()
        passes += 1
    assert passes >= 9
    series = series_of(net.space.nodes["q0"].history)
    assert series is not None and series.in_rate() == 0.2


def test_a_node_that_does_not_change_costs_no_array(net: Network, asker: Asker) -> None:
    for number in range(100):
        net.declare(f"q{number}")
    net.advance(50)
    kept = [series_of(net.space.nodes[f"q{number}"].history) for number in range(100)]
    assert not any(series is not None and series.kept for series in kept)
    assert asker.ask("HISTORY", "queue", "q5").map()["messages"] == [0] * 10
