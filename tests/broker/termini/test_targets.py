"""Targets that outlive their links: each message gets in once (AMQP 1.0 §2.6.13)."""

from __future__ import annotations

import pytest

from ferrymq.engine.resumption import Resolution
from ferrymq_broker.store.tables import DELIVERY, TERMINUS
from ferrymq_types.messaging import Accepted, Rejected
from ferrymq_types.transport import ReceiverSettleMode
from tests.broker.harness import Network
from tests.broker.termini.clients import (
    FIRST,
    SECOND,
    Publisher,
    drained,
    message,
    stored,
    target,
)

MODES = pytest.mark.parametrize("mode", [FIRST, SECOND], ids=["first", "second"])
CUTS = pytest.mark.parametrize("broker", [False, True], ids=["connection", "broker"])


def publisher(net: Network, mode: ReceiverSettleMode = SECOND) -> Publisher:
    one = Publisher(net, mode)
    one.connect()
    one.attach()
    return one


@MODES
@CUTS
@pytest.mark.spec("2.6.13", "3.4.6")
def test_what_was_taken_in_is_not_taken_in_again(mode: ReceiverSettleMode, broker: bool) -> None:
    net = stored()
    one = publisher(net, mode)
    one.send(b"a")
    # The outcome has come, but the client has not looked at it.
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.SETTLE}
    assert one.outcomes == {b"a": Accepted()} and not one.unsettled
    assert drained(net) == [b"a"]


@MODES
@pytest.mark.spec("2.6.13")
def test_what_never_arrived_is_sent_again(mode: ReceiverSettleMode) -> None:
    net = stored()
    one = publisher(net, mode)
    one.client.silent = True
    one.send(b"a")
    one.restart(broker=True)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.RESEND}
    one.learn()
    assert drained(net) == [b"a"] and one.outcomes == {b"a": Accepted()}


@MODES
@pytest.mark.spec("2.6.13")
def test_nothing_is_remembered_of_what_was_not_on_disk(mode: ReceiverSettleMode) -> None:
    net = stored()
    assert net.store is not None
    one = publisher(net, mode)
    net.store.held = True
    delivery = one.send(b"a")
    assert delivery.remote_state is None
    net.store.held = False
    one.restart(broker=True)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.RESEND}
    assert drained(net) == [b"a"]


@CUTS
@pytest.mark.spec("2.6.13", "2.6.14")
def test_a_part_of_a_message_is_forgotten(broker: bool) -> None:
    net = stored()
    net.incoming_window = 4
    one = Publisher(net, max_frame_size=512)
    client = one.connect()
    one.attach()
    big = b"x" * 4000
    one.unsettled[b"a"] = message(big)
    one.link.send(one.unsettled[b"a"], tag=b"a")
    data = client.engine.data_to_send()
    client.handler.receive_data(data[: len(data) // 2], net.now)
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.RESEND}
    one.learn()
    assert drained(net) == [big]


@pytest.mark.spec("2.6.12", "2.6.13")
def test_what_its_sender_settles_is_forgotten() -> None:
    net = stored()
    assert net.store is not None
    one = publisher(net)
    one.send(b"a")
    assert net.store.count(DELIVERY) == 1
    one.learn()
    assert net.store.count(DELIVERY) == 0
    # The tag is free.
    one.send(b"a", b"other")
    assert drained(net) == [b"a", b"other"]


@MODES
@CUTS
@pytest.mark.spec("2.6.13")
def test_what_the_sender_does_not_have_any_more_is_forgotten(
    mode: ReceiverSettleMode, broker: bool
) -> None:
    net = stored()
    assert net.store is not None
    one = publisher(net, mode)
    for tag in (b"a", b"b"):
        one.send(tag)
    assert net.store.count(DELIVERY) == 2
    del one.unsettled[b"a"]
    one.restart(broker=broker)
    one.connect()
    sender = one.attach()
    attach = sender.link.remote_attach
    assert attach is not None and list(attach.unsettled or {}) == [b"b"]
    assert net.store.count(DELIVERY) == 1


@CUTS
@pytest.mark.spec("2.6.13", "3.4.3")
def test_a_rejection_is_remembered(broker: bool) -> None:
    net = stored()
    one = publisher(net)
    one.unsettled[b"a"] = b"\x00\x53\x70\xff"
    one.link.send(one.unsettled[b"a"], tag=b"a")
    net.run()
    one.restart(broker=broker)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.SETTLE}
    state = one.outcomes[b"a"]
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:decode-error"


@CUTS
@pytest.mark.spec("2.6.13")
def test_the_outcome_may_get_lost_more_than_once(broker: bool) -> None:
    net = stored()
    one = publisher(net, FIRST)
    one.send(b"a")
    for _ in range(3):
        one.restart(broker=broker)
        one.connect()
        one.attach()
        assert one.link.resumption is not None
        assert one.link.resumption.remote == {b"a": Accepted()}
    one.resume()
    assert drained(net) == [b"a"]


@pytest.mark.spec("3.5.5", "2.7.3")
def test_a_sender_without_a_map_begins_anew() -> None:
    net = stored()
    assert net.store is not None
    one = publisher(net)
    one.send(b"a")
    one.restart(broker=False)
    one.connect()
    sender = one.attach(anew=True)
    attach = sender.link.remote_attach
    assert attach is not None and attach.unsettled is None
    assert net.store.count(DELIVERY) == 0
    one.send(b"a", b"new")
    assert drained(net) == [b"a", b"new"]


@CUTS
def test_a_sender_without_a_map_may_send_again_if_it_has_said_so(broker: bool) -> None:
    """The delivery mode promises more than the specification does of a link without a map."""
    net = stored()
    one = Publisher(net, FIRST, properties={"delivery-mode": "exactly-once"})
    one.connect()
    one.attach()
    one.send(b"a")
    one.restart(broker=broker)
    one.connect()
    one.attach(anew=True)
    assert isinstance(one.send(b"a").remote_state, Accepted)
    one.send(b"b")
    assert drained(net) == [b"a", b"b"]


@pytest.mark.spec("2.6.6")
@MODES
def test_a_link_that_is_closed_takes_its_terminus_with_it(mode: ReceiverSettleMode) -> None:
    net = stored()
    assert net.store is not None
    one = publisher(net, mode)
    one.send(b"a")
    assert net.store.count(TERMINUS) == 1
    one.sender.close()
    assert net.store.count(TERMINUS) == 0 and net.store.count(DELIVERY) == 0
    assert len(net.broker.shared.termini) == 0


@pytest.mark.spec("3.5.4", "3.5.5")
def test_the_answer_says_what_is_kept() -> None:
    net = stored()
    one = Publisher(net, to=target(timeout=60, policy="connection-close"))
    one.connect()
    answer = one.attach().remote_target
    assert (answer.durable.value, answer.expiry_policy.value, answer.timeout) == (
        2,
        "connection-close",
        60,
    )


@pytest.mark.spec("3.5.5")
def test_without_a_store_nothing_is_durable_but_lasts() -> None:
    net = Network()
    one = Publisher(net, to=target(timeout=60, policy="connection-close"))
    one.connect()
    answer = one.attach().remote_target
    assert (answer.durable.value, answer.expiry_policy.value, answer.timeout) == (
        0 if net.store is None else 2,
        "connection-close",
        60,
    )
    one.send(b"a")
    one.restart(broker=False)
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.SETTLE}
    assert drained(net) == [b"a"]


@pytest.mark.spec("3.5.4", "2.6.3")
def test_a_target_that_is_left_out_is_the_one_the_link_has_had() -> None:
    net = stored()
    one = publisher(net)
    one.send(b"a")
    one.restart(broker=True)
    one.connect()
    one.target = None
    sender = one.attach()
    assert sender.remote_target.address == "q" and not sender.detached
    assert one.resume() == {b"a": Resolution.SETTLE}


@pytest.mark.spec("2.6.1", "2.6.13")
@MODES
def test_a_link_that_is_stolen_takes_its_map_along(mode: ReceiverSettleMode) -> None:
    net = stored()
    one = publisher(net, mode)
    one.send(b"a")
    one.connect()
    one.attach()
    assert one.resume() == {b"a": Resolution.SETTLE}
    assert drained(net) == [b"a"]


@MODES
@pytest.mark.spec("2.7.3", "2.6.13")
def test_maps_too_large_for_a_frame_are_resumed_in_rounds(mode: ReceiverSettleMode) -> None:
    net = stored()
    one = Publisher(net, mode, max_frame_size=512)
    one.connect()
    one.attach()
    tags = [b"%030d" % n for n in range(60)]
    for tag in tags:
        one.send(tag)
    one.restart(broker=True)
    rounds = 0
    while one.unsettled:
        rounds += 1
        assert rounds < 30
        if rounds == 1:
            one.connect()
        one.attach()
        one.resume()
        one.learn()
        assert not one.sender.detached
        one.sender.close(closed=False)
    assert rounds > 2
    assert len(one.outcomes) == 60
    assert sorted(drained(net)) == tags
