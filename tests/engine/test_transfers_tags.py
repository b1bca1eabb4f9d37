"""Delivery-tags: no two unsettled deliveries of a link have the same (AMQP 1.0 §2.6.12)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import DeliveryReceived, LinkFailed
from ferrymq.errors import LocalProtocolError
from ferrymq_types.messaging import Accepted
from ferrymq_types.transport import (
    Detach,
    Disposition,
    ReceiverSettleMode,
    Role,
    Transfer,
)
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_flow,
    receiver_script,
    sender_script,
    transfer,
)
from tests.support.script import condition, like

SETTLED = Disposition(role=Role.RECEIVER, first=0, settled=True, state=Accepted())


# -- ours -----------------------------------------------------------------------------


@pytest.mark.spec("2.6.12")
def test_a_tag_in_use_is_refused_and_nothing_is_sent(play, session):
    link = sender_script(play, session)
    link.send(b"", tag=b"a")
    play << Transfer
    with pytest.raises(LocalProtocolError, match="unsettled") as caught:
        link.send(b"", tag=b"a")
    assert caught.value.condition == "amqp:not-allowed"
    play.quiet()
    assert link.credit == 99


@pytest.mark.spec("2.6.12")
def test_a_tag_with_the_prefix_leads_to_its_delivery(play, session):
    link = sender_script(play, session)
    other = sender_script(play, session, "other")
    link.tag_prefix = b"12345678"
    first, settled, second = link.send(b""), link.send(b"", settled=True), link.send(b"")
    plain = other.send(b"")
    assert [link.find_unsettled(d.tag) for d in (first, second)] == [first, second]
    assert first.tag != second.tag and first.tag[:8] == b"12345678" and len(first.tag) == 16
    assert (len(settled.tag), len(plain.tag)) == (4, 4)
    first.settle(Accepted())
    assert link.find_unsettled(first.tag) is None
    assert link.find_unsettled(b"12345678" + bytes(8)) is None
    play.take()


@pytest.mark.spec("2.6.12", "2.6.7")
def test_tags_with_the_prefix_of_deliveries_that_waited(play, session):
    link = sender_script(play, session)
    other = sender_script(play, session, "other")
    link.tag_prefix = b"12345678"
    play >> peer_flow(next_incoming_id=0, incoming_window=0)
    overtaken, waiting = other.send(b""), [link.send(b""), link.send(b"")]
    play.take()
    assert [link.find_unsettled(d.tag) for d in waiting] == waiting
    play >> peer_flow(next_incoming_id=0, incoming_window=10)
    play << like(Transfer, delivery_tag=overtaken.tag)
    for delivery in waiting:
        play << like(Transfer, delivery_tag=delivery.tag)
        assert link.find_unsettled(delivery.tag) is delivery
    third = link.send(b"")
    link.detach(closed=False)
    assert [link.find_unsettled(d.tag) for d in [*waiting, third]] == [*waiting, third]
    play.take()


@pytest.mark.spec("2.6.12")
def test_the_peers_settlement_frees_the_tag(play, session):
    link = sender_script(play, session)
    link.send(b"", tag=b"a")
    play << Transfer
    play >> SETTLED
    link.send(b"", tag=b"a")
    play << like(Transfer, delivery_tag=b"a")


@pytest.mark.spec("2.6.12")
def test_our_settlement_frees_the_tag(play, session):
    link = sender_script(play, session)
    link.send(b"", tag=b"a").settle(Accepted())
    link.send(b"", tag=b"a")
    play << Transfer << like(Transfer, delivery_tag=b"a")
    play << Disposition


@pytest.mark.spec("2.6.12")
def test_settled_deliveries_may_share_a_tag(play, session):
    link = sender_script(play, session)
    link.send(b"", tag=b"a", settled=True)
    link.send(b"", tag=b"a", settled=True)
    play << Transfer << Transfer


@pytest.mark.spec("2.6.12")
def test_another_link_may_use_the_tag(play, session):
    one, two = sender_script(play, session, "one"), sender_script(play, session, "two")
    one.send(b"", tag=b"a")
    two.send(b"", tag=b"a")
    play << like(Transfer, handle=0) << like(Transfer, handle=1)


@pytest.mark.spec("2.6.12")
def test_tags_we_make_pass_over_those_of_the_user(play, session):
    link = sender_script(play, session)
    second = (2).to_bytes(4, "big")
    link.send(b"", tag=second)
    tags = [link.send(b"").tag for _ in range(3)]
    assert second not in tags and len(set(tags)) == 3
    play.take()


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("window", [0, 100])
def test_a_tag_that_we_made_is_refused_while_it_is_in_use(script, window):
    play = open_script(script())
    session = begin_script(play, incoming_window=window)
    link = sender_script(play, session, credit=0)
    play >> peer_flow(incoming_window=window, handle=0, delivery_count=0, link_credit=5)
    made = link.send(b"")
    play.take()
    with pytest.raises(LocalProtocolError):
        link.send(b"", tag=made.tag)
    play.quiet()
    if window:
        play >> SETTLED
        link.send(b"", tag=made.tag)
        play << Transfer


# -- the peer's -----------------------------------------------------------------------


def expect_duplicate(play):
    play << like(Detach, error=condition("amqp:not-allowed"))
    assert "tag" in play.find(LinkFailed).error.description


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize(
    "tags",
    [
        [b"a", b"a"],
        [b"", b""],
        [b"b", b"a", b"c", b"b"],
        [b"9", b"10", b"11", b"10"],
        [b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01"],
        [b"aaaa", b"aaaaa", b"aaaa"],
        [b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x80\x00\x00\x00"],
        [b"abc", b"abcd", b"abcd"],
    ],
)
def test_the_peer_uses_a_tag_twice(play, session, tags):
    receiver_script(play, session)
    for id, tag in enumerate(tags):
        play.quiet()
        play >> transfer(0, id, tag)
    expect_duplicate(play)


@pytest.mark.spec("2.6.12")
def test_tags_may_repeat_where_nothing_is_resumed(play, session):
    link = receiver_script(play, session)
    link.unique_tags = False
    for id, tag in enumerate([b"b", b"a", b"b", b"b"]):
        play >> transfer(0, id, tag)
        assert play.event(DeliveryReceived).delivery.id == id
    assert link.usable


@pytest.mark.spec("2.6.12")
def test_the_tag_of_a_delivery_that_is_still_coming_is_in_use(play, session):
    first = receiver_script(play, session)
    play >> transfer(0, 0, b"b")
    play >> transfer(0, 1, b"a", more=True) >> transfer(0, 1, b"a")
    assert first.usable
    play >> transfer(0, 2, b"a")
    expect_duplicate(play)


@pytest.mark.spec("2.6.12")
@pytest.mark.parametrize("tags", [[b"b", b"a", b"b"], [b"a", b"a"]])
@pytest.mark.parametrize("mode", ReceiverSettleMode)
def test_a_tag_is_free_again_when_both_have_settled(play, session, tags, mode):
    link = receiver_script(play, session, rcv=mode)
    for id, tag in enumerate(tags):
        play >> transfer(0, id, tag)
        play.event(DeliveryReceived).delivery.settle(Accepted())
        play << Disposition
        if mode is ReceiverSettleMode.SECOND:
            play >> Disposition(role=Role.SENDER, first=id, settled=True, state=Accepted())
            play.events()
    assert link.usable


@pytest.mark.spec("2.6.12")
def test_in_mode_second_a_tag_is_in_use_until_the_sender_settles(play, session):
    receiver_script(play, session, rcv=ReceiverSettleMode.SECOND)
    play >> transfer(0, 0, b"a")
    play.event(DeliveryReceived).delivery.settle(Accepted())
    play << Disposition
    play >> transfer(0, 1, b"a")
    expect_duplicate(play)


@pytest.mark.spec("2.6.12")
def test_what_is_settled_or_aborted_takes_no_tag(play, session):
    link = receiver_script(play, session)
    play >> transfer(0, 0, b"a", settled=True) >> transfer(0, 1, b"a", settled=True)
    play >> transfer(0, 2, b"a", more=True) >> transfer(0, 2, None, aborted=True)
    play >> transfer(0, 3, b"a", more=True) >> transfer(0, 3, None, settled=True)
    play >> transfer(0, 4, b"a")
    assert link.usable and play.names().count("DeliveryReceived") == 4
