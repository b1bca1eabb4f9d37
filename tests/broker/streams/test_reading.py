"""Many readers: each gets everything, at its own pace, and takes nothing away."""

from __future__ import annotations

import pytest

from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    Accepted,
    Data,
    Header,
    MessageAnnotations,
    Modified,
    Rejected,
    Released,
    Source,
)
from ferrymq_types.transport import SenderSettleMode
from tests.broker.harness import Network, Sender, header
from tests.broker.streams.kit import (
    POSITION,
    coloured,
    declare,
    numbered,
    offsets,
    places,
    read,
)


def flood(sender: Sender, count: int) -> None:
    """So many messages that no filter here lets pass."""
    for _ in range(count // 500):
        sender.send(*[b"blue"] * 500, settled=True)


def test_two_connections_see_everything_in_order(net: Network) -> None:
    declare(net, partitions=2)
    alice, bob = net.connect(), net.connect()
    early = read(alice, "s")
    alice.sender("s").send(*numbered(10))
    late = read(bob, "s")
    bob.sender("s").send(*numbered(10, 10))
    for receiver in (early, late):
        assert sorted(receiver.bodies(), key=int) == numbered(20)
        for partition in (0, 1):
            there = [offset for number, offset in places(receiver) if number == partition]
            assert there == list(range(10))


def test_partitions_are_read_in_turn(net: Network) -> None:
    declare(net, partitions=3)
    client = net.connect()
    client.sender("s::0").send(*numbered(100))
    client.sender("s::2").send(*numbered(100))
    receiver = read(client, "s", credit=10)
    assert [partition for partition, _ in places(receiver)] == [0, 2] * 5


def test_partitions_take_turns_whatever_the_credit(net: Network) -> None:
    declare(net, partitions=2)
    client = net.connect()
    client.sender("s").send(*numbered(10))
    receiver = read(client, "s", credit=1)
    for count in range(2, 7):
        receiver.credit(1)
        assert len(receiver.deliveries) == count
    assert [partition for partition, _ in places(receiver)] == [0, 1] * 3


def test_a_partition_by_itself(net: Network) -> None:
    declare(net, partitions=2)
    client = net.connect()
    client.sender("s").send(*numbered(6))
    assert read(client, "s::1").bodies() == [b"1", b"3", b"5"]


@pytest.mark.parametrize(
    "outcome",
    [Accepted(), Rejected(), Released(), Modified(delivery_failed=True, undeliverable_here=True)],
)
def test_outcomes_change_nothing(
    net: Network, outcome: Accepted | Rejected | Released | Modified
) -> None:
    stream = declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(3))
    receiver = read(client, "s")
    receiver.settle(outcome)
    assert stream.range(0) == (0, 3)
    assert receiver.deliveries == []
    again = read(client, "s")
    assert again.bodies() == numbered(3)


def test_settled_or_not_is_up_to_the_client(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(b"a", b"b")
    settled = client.receiver("s::0", snd=SenderSettleMode.SETTLED, credit=10)
    client.sender("s").send(b"c")
    assert [delivery.remote_settled for delivery in settled.deliveries] == [True]
    unsettled = read(client, "s")
    assert [delivery.remote_settled for delivery in unsettled.deliveries] == [False] * 3


@pytest.mark.spec("2.6.7")
def test_credit_is_respected(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(10))
    receiver = read(client, "s", credit=4)
    assert receiver.bodies() == numbered(4)
    receiver.credit(3)
    assert receiver.bodies() == numbered(7)


@pytest.mark.spec("2.6.7")
def test_drain_is_answered_at_the_end(net: Network) -> None:
    declare(net, partitions=2)
    client = net.connect()
    client.sender("s").send(*numbered(300))
    receiver = read(client, "s", credit=0)
    receiver.link.set_credit(1000)
    receiver.drain()
    assert len(receiver.deliveries) == 300
    assert (receiver.drained, receiver.link.credit) == (1, 0)
    client.sender("s").send(b"more")
    assert len(receiver.deliveries) == 300
    receiver.link.set_credit(1000)
    receiver.drain()
    assert len(receiver.deliveries) == 301
    assert receiver.drained == 2


def test_a_drain_that_finds_nothing_is_answered_at_once(net: Network) -> None:
    declare(net)
    receiver = read(net.connect(), "s", credit=5)
    receiver.drain()
    assert (receiver.drained, receiver.link.credit) == (1, 0)


def test_filters_keep_records_out_and_offsets_as_they_are(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    for number in range(10):
        sender.send_sections(*coloured("red" if number % 3 == 0 else "blue", b"%d" % number))
    receiver = read(client, "s", selector="colour = 'red'")
    assert offsets(receiver) == [0, 3, 6, 9]
    assert receiver.bodies() == [b"0", b"3", b"6", b"9"]
    sender.send_sections(*coloured("blue", b"10"))
    sender.send_sections(*coloured("red", b"11"))
    assert offsets(receiver) == [0, 3, 6, 9, 11]


def test_a_filter_reads_messages_with_a_header_too(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    for colour in ("blue", "red"):
        sender.send_sections(Header(priority=7), *coloured(colour, colour.encode()))
    assert read(client, "s", selector="colour = 'red'").bodies() == [b"red"]


def test_a_reader_may_leave_out_what_its_own_connection_sent(net: Network) -> None:
    declare(net)
    alice, bob = net.connect(), net.connect()
    alice.sender("s").send(b"from alice")
    bob.sender("s").send(b"from bob")
    local = Described(Symbol("apache.org:no-local-filter:list"), [])
    first = Described(Symbol(POSITION), "first")
    source = Source(address="s", filter={"local": local, POSITION: first})
    assert alice.receiver(None, source=source, credit=10).bodies() == [b"from bob"]
    assert bob.receiver(None, source=source, credit=10).bodies() == [b"from alice"]


def test_a_drain_waits_for_a_filter_to_have_seen_everything(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    flood(sender, 9000)
    sender.send_sections(*coloured("red", b"here"))
    receiver = read(client, "s", selector="colour = 'red'", credit=0)
    receiver.link.set_credit(5)
    receiver.drain()
    # Passing over so much is not done in one go.
    assert (receiver.bodies(), receiver.drained) == ([], 0)
    net.advance(1)
    assert (receiver.bodies(), receiver.drained) == ([b"here"], 1)


def test_what_a_filter_lets_pass_now_and_then_is_no_licence(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    for _ in range(10):
        flood(sender, 500)
        sender.send_sections(*coloured("red", b"here"))
    receiver = read(client, "s", selector="colour = 'red'")
    assert 0 < len(receiver.deliveries) < 5
    net.advance(1)
    assert receiver.bodies() == [b"here"] * 10


def test_many_that_look_for_something_hold_nobody_up(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    flood(sender, 9000)
    seekers = [read(client, "s", selector="colour = 'red'") for _ in range(10)]
    plain = read(client, "s", "last", credit=10)
    sender.send_sections(*coloured("red", b"here"))
    assert plain.bodies() == [b"blue", b"here"]
    assert all(not seeker.deliveries for seeker in seekers)
    net.advance(1)
    assert all(seeker.bodies() == [b"here"] for seeker in seekers)


def test_a_long_stream_is_read_in_shares(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*[b"x" * 10_000] * 100)
    receiver = read(client, "s", credit=0)
    receiver.link.set_credit(1000)
    # One pass of the broker, with what the client sends in it.
    data = client.engine.data_to_send()
    client.handler.receive_data(data, net.now)
    assert sum(map(len, client.inbox)) < 400_000
    net.run()
    assert len(receiver.deliveries) == 100


def test_a_client_that_does_not_read_stalls_nobody(net: Network) -> None:
    declare(net)
    slow, quick = net.connect(), net.connect()
    stuck, going = read(slow, "s"), read(quick, "s")
    slow.pause()
    sender = quick.sender("s")
    for body in numbered(50):
        sender.send(body)
    assert going.bodies() == numbered(50)
    assert stuck.bodies() == []
    slow.resume()
    assert stuck.bodies() == numbered(50)


def test_a_record_too_large_for_the_link_is_not_left_out_in_silence(net: Network) -> None:
    declare(net)
    client = net.connect()
    sender = client.sender("s")
    sender.send(b"small", b"x" * 1000, b"behind")
    receiver = read(client, "s", max_message_size=600)
    assert receiver.bodies() == [b"small"]
    error = receiver.error
    assert error is not None and error.condition == "amqp:link:message-size-exceeded"
    assert error.info is not None and error.info["offset"] == 1
    assert len(read(client, "s").deliveries) == 3


def test_exclusive_use_is_refused(net: Network) -> None:
    declare(net)
    receiver = read(net.connect(), "s", None, properties={"exclusive": True})
    assert receiver.error is not None and receiver.error.condition == "amqp:not-implemented"


def test_the_header_of_the_sender_is_kept(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send_sections(
        Header(durable=True, priority=7, ttl=5), MessageAnnotations(value={}), Data(value=b"x")
    )
    net.advance(60)
    receiver = read(client, "s")
    assert receiver.bodies() == [b"x"]
    kept = header(receiver.deliveries[0].payload)
    assert (kept.durable, kept.priority, kept.ttl) == (True, 7, 5)
