"""Sources that outlive their links: each message gets out once (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

import pytest

from ferrymq_broker.nodes.queues.persistence import MOST_EXCLUDED
from ferrymq_broker.store.tables import DELIVERY, TERMINUS
from ferrymq_broker.values.policy import TopicPolicy
from ferrymq_types.messaging import Accepted, Data, Header, Modified, Released
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from tests.broker.harness import Network, encode, header, text
from tests.broker.termini.clients import (
    FIRST,
    SECOND,
    Consumer,
    drained,
    filled,
    message,
    source,
    stored,
)

MODES = pytest.mark.parametrize("mode", [FIRST, SECOND], ids=["first", "second"])
CUTS = pytest.mark.parametrize("broker", [False, True], ids=["connection", "broker"])


def consumer(net: Network, mode: ReceiverSettleMode = SECOND, credit: int = 100) -> Consumer:
    one = Consumer(net, mode)
    one.connect()
    one.attach(credit)
    return one


@MODES
@CUTS
@pytest.mark.spec("2.6.13")
def test_what_the_client_has_is_not_sent_again(mode: ReceiverSettleMode, broker: bool) -> None:
    net = stored()
    filled(net, b"a", b"b")
    one = consumer(net, mode)
    assert one.bodies() == [b"a", b"b"]
    one.restart(broker=broker)
    # Nobody else gets what it has.
    assert drained(net) == []
    one.connect()
    receiver = one.attach()
    assert one.bodies() == [b"a", b"b"] and receiver.deliveries == []
    assert all(delivery.resumed for delivery in one.unsettled.values())
    one.give(Accepted())
    assert not one.unsettled and net.queue("q").message_count() == 0


@CUTS
@pytest.mark.spec("2.6.13", "3.4.6")
def test_an_outcome_that_got_lost_is_in_the_map(broker: bool) -> None:
    net = stored()
    filled(net, b"a")
    one = consumer(net)
    one.client.silent = True
    one.give(Accepted())
    assert one.unsettled
    one.restart(broker=broker)
    assert net.queue("q").message_count() == 1
    one.connect()
    one.attach()
    assert not one.unsettled and net.queue("q").message_count() == 0


@CUTS
@pytest.mark.spec("2.6.13")
def test_an_outcome_whose_confirmation_got_lost_counts_once(broker: bool) -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    one = consumer(net)
    delivery = next(iter(one.unsettled.values()))
    delivery.settle(Accepted())
    data = one.client.engine.data_to_send()
    # It arrives, and is on disk; what is said of it does not get back.
    net.clients.remove(one.client)
    one.client.handler.receive_data(data, net.now)
    net.run()
    assert net.queue("q").message_count() == 0 and net.store.count(DELIVERY) == 0
    if broker:
        net.restart()
    else:
        one.client.handler.receive_eof(net.now)
        net.run()
    one.connect()
    one.attach()
    assert not one.unsettled and one.receiver.deliveries == []
    assert net.queue("q").message_count() == 0


@pytest.mark.spec("2.6.13")
def test_an_outcome_that_is_not_on_disk_is_not_confirmed() -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    one = consumer(net)
    net.store.held = True
    one.give(Accepted())
    assert one.unsettled
    net.store.held = False
    one.restart(broker=True)
    assert net.queue("q").message_count() == 1
    one.connect()
    one.attach()
    assert not one.unsettled and net.queue("q").message_count() == 0


@pytest.mark.spec("2.6.13")
def test_a_delivery_leaves_when_it_is_on_record() -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    one = consumer(net, credit=0)
    net.store.held = True
    one.receiver.credit(10)
    one.note()
    assert one.bodies() == []
    net.store.release()
    net.run()
    one.note()
    assert one.bodies() == [b"a"] and net.store.count(DELIVERY) == 1


@MODES
@CUTS
@pytest.mark.spec("2.6.13")
def test_what_never_arrived_is_delivered_again(mode: ReceiverSettleMode, broker: bool) -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    one = consumer(net, mode, credit=0)
    one.link.set_credit(10)
    data = one.client.engine.data_to_send()
    net.clients.remove(one.client)
    one.client.handler.receive_data(data, net.now)
    net.run()
    assert net.queue("q").acquired == 1
    if broker:
        net.restart()
    else:
        one.client.handler.receive_eof(net.now)
        net.run()
    one.connect()
    one.attach()
    assert one.bodies() == [b"a"]
    found = header(next(iter(one.unsettled.values())).payload)
    # It may have been lost in the client.
    assert not found.first_acquirer and found.delivery_count == 1
    assert net.store.count(DELIVERY) == 1


@CUTS
@pytest.mark.spec("2.6.13", "3.4.6")
def test_half_of_a_message_is_completed(broker: bool) -> None:
    net = stored()
    big = bytes(range(256)) * 20
    filled(net, big)
    one = Consumer(net, max_frame_size=512)
    client = one.connect()
    one.attach(credit=0)
    one.link.set_credit(1)
    client.handler.receive_data(client.engine.data_to_send(), net.now)
    while net.later:
        net.later.pop(0)()
    data = b"".join(client.inbox)
    client.engine.receive_data(data[: len(data) // 2], net.now)
    client.engine.take_events()
    client.engine.receive_eof(net.now)
    one.unsettled = dict(one.link.unsettled)
    (half,) = one.unsettled.values()
    assert not half.complete and 0 < len(half.data()) < len(big)
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert [text(delivery.payload) for delivery in one.unsettled.values()] == [big]
    one.give(Accepted())
    assert net.queue("q").message_count() == 0


@CUTS
@pytest.mark.spec("2.6.13", "3.2.1")
def test_half_of_a_message_with_a_ttl_is_completed_with_the_same_bytes(broker: bool) -> None:
    net = stored()
    big = bytes(range(256)) * 20
    payload = encode(Header(durable=True, ttl=1_000_000), Data(value=big))
    net.connect().sender("q").send_encoded(payload)
    net.advance(10)
    one = Consumer(net, max_frame_size=512)
    client = one.connect()
    one.attach(credit=0)
    one.link.set_credit(1)
    client.handler.receive_data(client.engine.data_to_send(), net.now)
    while net.later:
        net.later.pop(0)()
    data = b"".join(client.inbox)
    client.engine.receive_data(data[: len(data) // 2], net.now)
    client.engine.receive_eof(net.now)
    one.unsettled = dict(one.link.unsettled)
    one.restart(broker=broker)
    net.advance(50)
    one.connect()
    one.attach()
    (whole,) = one.unsettled.values()
    assert whole.complete and text(whole.payload) == big
    assert header(whole.payload).ttl == 990_000


@pytest.mark.spec("2.7.3")
@CUTS
def test_a_client_without_a_map_begins_anew(broker: bool) -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a", b"b")
    one = consumer(net)
    one.restart(broker=broker)
    one.connect()
    receiver = one.attach(anew=True)
    attach = receiver.link.remote_attach
    assert attach is not None and attach.unsettled is None
    assert one.bodies() == [b"a", b"b"]
    assert net.store.count(DELIVERY) == 2


@CUTS
@pytest.mark.spec("2.6.13")
def test_what_comes_meanwhile_comes_behind(broker: bool) -> None:
    net = stored()
    filled(net, b"a", b"b")
    one = consumer(net, credit=1)
    assert one.bodies() == [b"a"]
    one.restart(broker=broker)
    filled(net, b"c")
    # What nobody has is there for everybody.
    other = net.connect().receiver("q", credit=1)
    assert other.bodies() == [b"b"]
    other.settle(Accepted())
    one.connect()
    one.attach()
    assert one.bodies() == [b"a", b"c"]
    one.give(Accepted())
    other.credit(10)
    assert other.bodies() == [] and net.queue("q").message_count() == 0


@CUTS
@pytest.mark.parametrize(
    ("outcome", "count"), [(Released(), 0), (Modified(delivery_failed=True), 1)]
)
@pytest.mark.spec("2.6.13", "3.4.4", "3.4.5")
def test_what_is_given_back_with_the_map_comes_again(
    outcome: Modified | Released, count: int, broker: bool
) -> None:
    net = stored()
    filled(net, b"a", b"b")
    one = consumer(net)
    one.client.silent = True
    tag = next(iter(one.unsettled))
    one.give(outcome, tag)
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert sorted(one.bodies()) == [b"a", b"b"]
    again = one.unsettled[[*one.unsettled][one.bodies().index(b"a")]]
    assert header(again.payload).delivery_count == count
    one.give(Accepted())
    assert net.queue("q").message_count() == 0


@pytest.mark.spec("2.7.6", "2.6.4")
def test_an_outcome_counts_while_the_session_lasts() -> None:
    net = stored()
    filled(net, b"a", b"b")
    one = consumer(net)
    one.receiver.close(closed=False)
    first, second = one.unsettled
    one.give(Accepted(), first)
    assert net.queue("q").message_count() == 1
    one.attach()
    assert one.bodies() == [b"b"]
    one.give(Accepted(), second)
    assert net.queue("q").message_count() == 0


@MODES
@pytest.mark.spec("2.6.1", "2.6.13")
def test_a_link_that_is_stolen_takes_its_map_along(mode: ReceiverSettleMode) -> None:
    net = stored()
    filled(net, b"a")
    one = consumer(net, mode)
    one.connect()
    one.attach()
    assert one.bodies() == [b"a"] and one.receiver.deliveries == []
    one.give(Accepted())
    assert net.queue("q").message_count() == 0


@pytest.mark.spec("2.6.6", "3.5.3")
def test_a_link_that_is_closed_takes_its_terminus_with_it() -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    one = consumer(net)
    one.receiver.close()
    assert net.store.count(TERMINUS) == 0 and net.store.count(DELIVERY) == 0
    assert len(net.broker.shared.termini) == 0
    assert drained(net) == [b"a"]


@pytest.mark.spec("3.5.3", "3.5.5", "3.5.6")
def test_the_answer_says_what_is_kept() -> None:
    net = stored()
    one = Consumer(net, of=source(policy="session-end", timeout=60))
    one.connect()
    answer = one.attach().remote_source
    assert (answer.durable.value, answer.expiry_policy.value, answer.timeout) == (
        2,
        "session-end",
        60,
    )
    filled(net, b"a")
    one.note()
    assert one.bodies() == [b"a"]


@pytest.mark.spec("3.5.5")
def test_without_a_store_nothing_is_durable_but_lasts() -> None:
    net = Network()
    filled(net, b"a")
    one = consumer(net)
    assert one.receiver.remote_source.durable.value == (0 if net.store is None else 2)
    assert one.receiver.remote_source.expiry_policy.value == "never"
    one.restart(broker=False)
    assert drained(net) == []
    one.connect()
    one.attach()
    assert one.bodies() == [b"a"] and one.receiver.deliveries == []


@pytest.mark.spec("3.5.5")
def test_what_is_not_durable_is_held_while_the_broker_runs() -> None:
    net = stored()
    assert net.store is not None
    net.connect().sender("q").send(b"a")
    one = consumer(net)
    assert net.store.count(DELIVERY) == 0
    one.restart(broker=False)
    one.connect()
    one.attach()
    assert one.bodies() == [b"a"]
    one.restart(broker=True)
    one.connect()
    one.attach()
    assert one.bodies() == []


@pytest.mark.spec("3.5.3", "2.6.3")
@CUTS
def test_a_source_that_is_left_out_is_the_one_the_link_has_had(broker: bool) -> None:
    net = stored()
    filled(net, b"a")
    one = consumer(net)
    one.restart(broker=broker)
    one.connect()
    one.source = None
    receiver = one.attach()
    assert receiver.remote_source.address == "q" and not receiver.detached
    assert one.bodies() == [b"a"] and receiver.deliveries == []


@pytest.mark.spec("2.6.13")
def test_a_queue_that_is_gone_takes_what_it_had_along() -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    one = consumer(net)
    one.restart(broker=False)
    net.broker.begin_pass(net.now)
    net.space.remove(net.queue("q"))
    net.finish()
    net.restart()
    assert net.store.count(TERMINUS) == 0 and net.store.count(DELIVERY) == 0
    net.declare("q")
    one.connect()
    one.attach()
    assert one.bodies() == []
    filled(net, b"b")
    one.note()
    assert one.bodies() == [b"b"]


@pytest.mark.spec("2.7.3")
def test_what_is_sent_settled_is_nobodys() -> None:
    net = stored()
    assert net.store is not None
    filled(net, b"a")
    receiver = net.connect().receiver(
        None, source=source(), snd=SenderSettleMode.SETTLED, credit=10
    )
    assert receiver.bodies() == [b"a"]
    assert net.store.count(DELIVERY) == 0 and net.queue("q").message_count() == 0


@pytest.mark.parametrize("broker", [False, True])
@pytest.mark.spec("2.7.3", "2.6.13")
def test_maps_too_large_for_a_frame_are_resumed_in_rounds(broker: bool) -> None:
    net = stored()
    bodies = [b"%d" % n for n in range(200)]
    filled(net, *bodies)
    one = Consumer(net, max_frame_size=512)
    one.connect()
    one.attach(credit=200)
    one.note()
    assert len(one.unsettled) == 200
    one.restart(broker=broker)
    filled(net, b"later")
    one.connect()
    taken: list[bytes] = []
    rounds = 0
    while net.queue("q").message_count():
        rounds += 1
        assert rounds < 40
        receiver = one.attach(credit=200)
        assert receiver.link.remote_attach is not None
        partial = receiver.link.remote_attach.incomplete_unsettled
        assert partial is not None
        taken += one.bodies()
        if partial:
            assert b"later" not in one.bodies()
        one.give(Accepted())
        if partial:
            # What both know is done: the broker wants to go on with the rest.
            assert receiver.detached and receiver.error is None
    assert rounds > 1
    assert sorted(set(taken)) == sorted([*bodies, b"later"])


@CUTS
@pytest.mark.spec("2.6.13")
def test_of_a_subscription(broker: bool) -> None:
    net = stored()
    net.space.create("news", TopicPolicy())
    one = Consumer(net, of=source("news"))
    one.connect()
    answer = one.attach().remote_source
    assert answer.durable.value == 2 and answer.expiry_policy.value == "never"
    sender = net.connect().sender("news")
    sender.send_encoded(message(b"a"))
    one.note()
    assert one.bodies() == [b"a"]
    one.restart(broker=broker)
    net.connect().sender("news").send_encoded(message(b"b"))
    one.connect()
    receiver = one.attach()
    assert one.bodies() == [b"a", b"b"] and len(receiver.deliveries) == 0
    one.give(Accepted())
    net.restart()
    one.connect()
    one.attach()
    assert one.bodies() == []


@pytest.mark.spec("3.5.5")
def test_of_a_shared_subscription_somebody_else_gets_what_was_held() -> None:
    net = stored()
    net.space.create("news", TopicPolicy())
    shared = source("news")
    shared.capabilities = ["shared"]
    one, two = (Consumer(net, of=shared, name=name) for name in ("sub|1", "sub|2"))
    one.connect()
    assert one.attach().remote_source.durable.value == 1
    net.connect().sender("news").send_encoded(message(b"a"))
    one.note()
    assert one.bodies() == [b"a"]
    one.restart(broker=False)
    two.connect()
    two.attach()
    assert two.bodies() == [b"a"]


@pytest.mark.spec("3.4.5")
def test_of_the_links_that_a_message_is_kept_from_so_many_are_stored() -> None:
    net = stored()
    filled(net, b"a")
    links = []
    for number in range(MOST_EXCLUDED + 6):
        one = Consumer(net, name=f"link {number}")
        one.connect()
        one.attach(1)
        assert one.bodies() == [b"a"]
        one.give(Modified(undeliverable_here=True))
        one.client.lose()
        links.append(one)
    net.restart()
    got = []
    for number, one in enumerate(links):
        one.connect()
        one.attach(1)
        if one.unsettled:
            got.append(number)
            one.give(Released())
    assert got == list(range(6))
