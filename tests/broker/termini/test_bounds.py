"""What a terminus that outlives its link may cost the broker."""

from __future__ import annotations

from ferrymq.engine.sasl import Plain
from ferrymq_types.messaging import Accepted, Target
from tests.broker.harness import Network, Sender
from tests.broker.termini.clients import FIRST, Consumer, Publisher, filled, source, stored


def test_a_receiver_that_leaves_too_much_without_an_outcome_gets_no_more() -> None:
    net = stored()
    net.broker.shared.termini.unsettled = 3
    filled(net, *[b"%d" % n for n in range(10)])
    one = Consumer(net)
    one.connect()
    one.attach(100)
    assert one.bodies() == [b"0", b"1", b"2"]
    one.give(Accepted(), *list(one.unsettled)[:2])
    assert one.bodies() == [b"2", b"3", b"4"]
    one.restart(broker=True)
    net.broker.shared.termini.unsettled = 3
    one.connect()
    one.attach(100)
    assert one.bodies() == [b"2", b"3", b"4"]
    taken = 0
    while one.unsettled:
        taken += len(one.unsettled)
        one.give(Accepted())
    assert taken == 8 and net.queue("q").message_count() == 0


def test_a_sender_that_does_not_settle_gets_no_more_credit() -> None:
    net = Network(credit=4)
    net.broker.shared.termini.unsettled = 3
    one = Publisher(net)
    one.connect()
    one.attach()
    sent = 0
    while one.link.credit > 0:
        sent += 1
        assert sent < 20
        one.send(b"%d" % sent)
    # What it had been given when it reached the bound.
    assert 3 <= sent <= 3 + 4
    one.learn()
    assert one.link.credit == 4


def test_a_sender_that_settles_first_is_remembered_for_as_long_as_it_may_ask() -> None:
    net = Network(credit=5000)
    one = Publisher(net, FIRST)
    one.connect()
    one.attach()
    assert one.link.credit == 1024
    for n in range(6000):
        one.link.send(b"\x00\x53\x75\xa0\x01x", tag=b"%d" % n)
        if one.link.credit == 0:
            net.run()
    net.run()
    (terminus,) = net.broker.shared.termini.of("default")
    assert terminus.unsettled() == 2048


def keep(net: Network, user: str, name: str) -> Sender:
    """A sender of a user, whose terminus outlives its link."""
    client = net.connect(container_id="c", sasl=Plain(user, "-"))
    return client.sender("q", name=name, target=Target(address="q", timeout=60))


def test_a_user_has_so_many_and_takes_none_from_others() -> None:
    net = Network()
    net.broker.shared.termini.per_user = 3
    for n in range(3):
        assert not keep(net, "eve", f"link {n}").detached
    refused = keep(net, "eve", "link 3")
    assert refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded"
    assert "the user has 3 termini" in str(refused.error.description)
    assert not keep(net, "ann", "link 0").detached
    # One that is there may come back; one that ends makes room.
    again = keep(net, "eve", "link 1")
    assert not again.detached
    again.close()
    assert not keep(net, "eve", "link 3").detached


def test_the_termini_of_a_user_share_what_may_be_unsettled() -> None:
    net = Network()
    first = keep(net, "eve", "link 0")
    (terminus,) = net.broker.shared.termini.of("default")
    assert terminus.most_unsettled() == 100_000
    for n in range(1, 20):
        keep(net, "eve", f"link {n}")
    keep(net, "ann", "link")
    *eves, anns = net.broker.shared.termini.of("default")
    assert {one.most_unsettled() for one in eves} == {50_000}
    assert anns.most_unsettled() == 100_000
    first.close()
    assert eves[1].most_unsettled() == 1_000_000 // 19


def test_one_whose_queue_is_gone_makes_room() -> None:
    net = stored()
    one = Consumer(net)
    one.connect()
    one.attach()
    one.restart(broker=False)
    net.broker.begin_pass(net.now)
    net.space.remove(net.queue("q"))
    net.broker.finish_pass()
    net.declare("other")
    net.space.max_nodes = 1
    two = Consumer(net, of=source("other"), name="two")
    two.connect()
    assert not two.attach().detached
    assert [terminus.key[3] for terminus in net.broker.shared.termini.of("default")] == ["two"]
