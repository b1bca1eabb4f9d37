"""The frames of a resumed link, one by one: attach, maps, transfers (§2.6.13, §3.4.6)."""

from __future__ import annotations

import pytest

from ferrymq.engine import IncomingDelivery, OutgoingDelivery, ReceiverLink, SenderLink
from ferrymq.engine.events import (
    AttachReceived,
    DeliveryAborted,
    DeliveryReceived,
    LinkFailed,
    SettlementReceived,
)
from ferrymq.engine.resumption import Resolution
from ferrymq.errors import LocalProtocolError
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Accepted, Data, Properties, Received, Released
from ferrymq_types.registry import typed
from ferrymq_types.transport import (
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    ReceiverSettleMode,
    Role,
    Transfer,
)
from tests.support.scenes import begin_script, open_script, peer_attach, peer_flow, transfer
from tests.support.script import condition, encode, encoded, frame, like, on

MESSAGE = encode(Properties(subject="s")) + encode(Data(b"x" * 300)) + encode(Data(b"y" * 30))
HEAD = len(encode(Properties(subject="s")))


def at(section: int, offset: int) -> Received:
    return Received(section_number=section, section_offset=offset)


def expect_map(play, states):
    """Our attach comes next, and its map has these states by tag."""
    (answer,) = play.take()
    attach = answer.body
    assert isinstance(attach, Attach) and not attach.incomplete_unsettled
    assert attach.unsettled is not None
    found = {
        tag: typed(state) if isinstance(state, Described) else state
        for tag, state in attach.unsettled.items()
    }
    assert found == states


def resumed_sender(play, session, ours, theirs, *, credit=100, incomplete=False):
    """We send; `ours` and `theirs` are the maps of both ends, by tag."""
    play >> peer_attach("link", 0, Role.RECEIVER, unsettled=theirs, incomplete_unsettled=incomplete)
    link = play.event(AttachReceived).link
    assert isinstance(link, SenderLink)
    deliveries = {}
    for tag, state in ours.items():
        deliveries[tag] = OutgoingDelivery(link, tag, False)
        deliveries[tag].state = state
    link.resume_from(deliveries)
    link.accept()
    expect_map(play, ours)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=credit)
    play.events()
    return link, deliveries


def resumed_receiver(play, session, ours, theirs, *, incomplete=False):
    """We receive; `ours` has what we hold of each delivery: bytes, or an outcome."""
    play >> peer_attach(
        "link",
        0,
        Role.SENDER,
        unsettled=theirs,
        incomplete_unsettled=incomplete,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
    )
    link = play.event(AttachReceived).link
    assert isinstance(link, ReceiverLink)
    deliveries = {}
    for tag, held in ours.items():
        delivery = deliveries[tag] = IncomingDelivery(link, 0, tag, 0)
        delivery.second = True
        if isinstance(held, bytes):
            delivery.payload = held
        else:
            delivery.payload, delivery.complete, delivery.state = MESSAGE, True, held
    settled = link.resume_from(deliveries)
    link.accept()
    play << like(Attach, role=Role.RECEIVER)
    link.set_credit(100)
    play << like(Flow, handle=0)
    return link, deliveries, settled


# ── Attach ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("2.6.3")
def test_the_attach_of_a_terminus_that_existed_has_its_unsettled_state(play, session):
    ours = {b"a": None, b"b": Accepted(), b"c": at(0, 5)}
    resumed_sender(play, session, ours, {})


@pytest.mark.spec("2.6.5")
def test_a_map_without_entries_is_a_map(play, session):
    # It resumes: a null map would make a new beginning of it.
    resumed_sender(play, session, {}, {})


@pytest.mark.spec("2.7.3")
def test_the_map_of_a_link_that_is_not_resumed_is_null(play, session):
    for handle, role in enumerate((Role.RECEIVER, Role.SENDER)):
        play >> peer_attach("link", handle, role)
        play.event(AttachReceived).link.accept()
        play << like(Attach, unsettled=None, incomplete_unsettled=False)
        play >> Detach(handle=handle)
        play.events()[-1].link.detach(closed=False)
        play << Detach
        # Attached again, still without a map of the other end.
        play >> peer_attach("link", handle, role, unsettled=None)
        play.event(AttachReceived).link.accept()
        play << like(Attach, unsettled=None)


@pytest.mark.spec("2.7.3")
def test_the_receivers_map_tells_how_far_each_delivery_got(play, session):
    play >> peer_attach("link", 0, Role.SENDER, unsettled={b"a": None, b"b": None, b"c": None})
    link = play.event(AttachReceived).link
    held = {b"a": MESSAGE[:HEAD], b"b": MESSAGE[: HEAD + 100], b"c": b""}
    deliveries = {}
    for tag, data in held.items():
        deliveries[tag] = IncomingDelivery(link, 0, tag, 0)
        deliveries[tag].second = True
        deliveries[tag].payload = data
    link.resume_from(deliveries)
    link.accept()
    expect_map(play, {b"a": at(1, 0), b"b": at(1, 100), b"c": at(0, 0)})


@pytest.mark.spec("2.7.3")
def test_a_null_key_in_a_map_is_refused(play, session):
    good = encoded(peer_attach("link", 0, Role.RECEIVER, unsettled={b"k": None}))
    # The map of one key, two octets shorter with null for it; so is the list it is in.
    body = good[8:].replace(b"\xc1\x05\x02\xa0\x01k\x40", b"\xc1\x03\x02\x40\x40")
    assert len(body) == len(good) - 10 and body[3] == 0xC0
    play >> frame(body[:4] + bytes([body[4] - 2]) + body[5:])
    play << like(End, error=condition("amqp:invalid-field"))
    assert not session.mapped


@pytest.mark.spec("2.7.3")
@pytest.mark.parametrize("value", [5, "state", {"a": 1}])
def test_the_values_of_a_map_are_delivery_states(play, session, value):
    play >> peer_attach("link", 0, Role.RECEIVER, unsettled={b"k": value})
    play << like(End, error=condition("amqp:invalid-field"))
    assert not session.mapped and "AttachReceived" not in play.names()


# ── The sender ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("3.4.6")
@pytest.mark.parametrize("local", [None, at(0, 200)])
def test_unknown_to_the_receiver_sent_again_as_new(play, session, local):
    link, held = resumed_sender(play, session, {b"t": local}, {})
    assert link.resume(held[b"t"], MESSAGE) is Resolution.RESEND
    expected = like(Transfer, delivery_tag=b"t", delivery_id=0, resume=False, state=None)
    play << on(0, expected, MESSAGE)


@pytest.mark.spec("3.4.6")
def test_continued_where_the_receiver_stopped(play, session):
    link, held = resumed_sender(play, session, {b"t": None}, {b"t": at(1, 100)})
    assert link.resume(held[b"t"], MESSAGE) is Resolution.CONTINUE
    expected = like(
        Transfer, delivery_tag=b"t", delivery_id=0, resume=True, settled=False, state=at(1, 100)
    )
    play << on(0, expected, MESSAGE[HEAD + 100 :])


@pytest.mark.spec("3.4.6")
def test_known_without_data_sent_whole_and_as_resumed(play, session):
    link, held = resumed_sender(play, session, {b"t": None}, {b"t": None})
    link.resume(held[b"t"], MESSAGE)
    play << on(
        0, like(Transfer, delivery_tag=b"t", delivery_id=0, resume=True, state=None), MESSAGE
    )


@pytest.mark.spec("2.7.5")
def test_the_first_of_several_frames_has_resume_and_the_position(script):
    play = open_script(script(), max_frame_size=512)
    session = begin_script(play)
    big = encode(Data(b"x" * 2000))
    link, held = resumed_sender(play, session, {b"t": None}, {b"t": at(0, 50)})
    link.resume(held[b"t"], big)
    frames = play.take()
    assert len(frames) > 3
    first, *rest = (f.body for f in frames)
    assert first.resume and first.delivery_tag == b"t" and first.state == at(0, 50)
    # A position is the sender's word on the first frame alone.
    assert all(later.state is None and later.delivery_id in (None, 0) for later in rest)
    assert b"".join(f.payload for f in frames) == big[50:]


@pytest.mark.spec("3.4.6")
def test_an_outcome_that_the_receiver_wants_is_confirmed_by_a_resumed_transfer(play, session):
    link, held = resumed_sender(play, session, {b"t": None}, {b"t": Accepted()})
    assert link.resume(held[b"t"], MESSAGE) is Resolution.SETTLE
    expected = like(
        Transfer,
        delivery_tag=b"t",
        delivery_id=0,
        resume=True,
        more=False,
        settled=True,
        state=Accepted(),
    )
    play << on(0, expected, b"")
    assert held[b"t"].settled


@pytest.mark.spec("3.4.6")
@pytest.mark.parametrize(
    ("local", "remote"),
    [(at(0, 500), at(0, 100)), (at(2, 0), None), (Accepted(), at(1, 200)), (Accepted(), None)],
)
def test_what_cannot_be_completed_is_aborted(play, session, local, remote):
    link, held = resumed_sender(play, session, {b"t": local}, {b"t": remote})
    assert link.resume(held[b"t"], MESSAGE) is Resolution.ABORT
    expected = like(Transfer, delivery_tag=b"t", resume=True, aborted=True, more=False)
    play << on(0, expected, b"")


@pytest.mark.spec("3.4.6")
def test_the_senders_outcome_stands_and_is_stated_again(play, session):
    link, held = resumed_sender(play, session, {b"t": Accepted()}, {b"t": Released()})
    assert link.resume(held[b"t"], MESSAGE) is Resolution.RESTATE
    expected = like(Transfer, delivery_id=0, resume=True, settled=False, state=Accepted())
    play << on(0, expected, b"")
    assert held[b"t"].state == Accepted()
    # The receiver comes round and settles.
    play >> Disposition(role=Role.RECEIVER, first=0, settled=True, state=Accepted())
    assert held[b"t"].remote_settled and held[b"t"].state == Accepted()


@pytest.mark.spec("2.6.13")
def test_what_only_the_receiver_holds_is_ignored(play, session):
    link, _ = resumed_sender(play, session, {}, {b"t": None, b"u": Accepted()})
    play.quiet()
    link.send(MESSAGE, tag=b"new")
    play << on(0, like(Transfer, delivery_tag=b"new", delivery_id=0, resume=False))


@pytest.mark.spec("2.7.5")
def test_only_what_is_in_the_map_can_be_resumed(play, session):
    link, held = resumed_sender(play, session, {b"t": None}, {b"t": None, b"u": None})
    stranger = OutgoingDelivery(link, b"u", False)
    with pytest.raises(LocalProtocolError, match="not to be resumed"):
        link.resume(stranger, MESSAGE)
    link.resume(held[b"t"], MESSAGE)
    play << Transfer
    with pytest.raises(LocalProtocolError, match="not to be resumed"):
        link.resume(held[b"t"], MESSAGE)


@pytest.mark.spec("2.7.3")
def test_with_the_receivers_map_incomplete_only_resumed_deliveries_are_sent(play, session):
    theirs = {b"a": None, b"b": Accepted()}
    link, held = resumed_sender(
        play, session, {b"a": None, b"b": None, b"c": None}, theirs, incomplete=True
    )
    with pytest.raises(LocalProtocolError, match="incomplete"):
        link.send(MESSAGE)
    # What can be seen in the receiver's map is reduced, about the rest nothing is known.
    assert link.resume(held[b"a"], MESSAGE) is Resolution.CONTINUE
    assert link.resume(held[b"b"], MESSAGE) is Resolution.SETTLE
    assert link.resume(held[b"c"], MESSAGE) is Resolution.WAIT
    play << on(0, like(Transfer, delivery_tag=b"a", resume=True))
    play << on(0, like(Transfer, delivery_tag=b"b", resume=True, settled=True))
    play.quiet()
    with pytest.raises(LocalProtocolError, match="incomplete"):
        link.send(MESSAGE)
    # Then the link is suspended, and resumed with what is left.
    link.detach(closed=False)
    play << like(Detach, closed=False)
    play >> Detach(handle=0)
    play.events()
    again, held = resumed_sender(play, session, {b"a": None, b"c": None}, {b"a": None})
    assert again.resume(held[b"c"], MESSAGE) is Resolution.RESEND
    play << on(0, like(Transfer, delivery_tag=b"c", resume=False))
    again.send(MESSAGE, tag=b"new")
    play << on(0, like(Transfer, delivery_tag=b"new"))


@pytest.mark.spec("3.4.6")
def test_an_outcome_that_only_the_receiver_has_named_is_not_claimed_in_our_map(play, session):
    play >> peer_attach("link", 0, Role.RECEIVER)
    link = play.event(AttachReceived).link
    assert isinstance(link, SenderLink)
    link.accept()
    play << Attach
    play >> peer_flow(handle=0, delivery_count=0, link_credit=5)
    link.send(MESSAGE, tag=b"told")
    reached = link.send(MESSAGE, tag=b"reached")
    play << Transfer << Transfer
    play >> Disposition(role=Role.RECEIVER, first=0, last=1, state=Accepted())
    # Only what this end has come to itself is final.
    reached.update(Accepted())
    play << Disposition
    link.detach(closed=False)
    play << Detach
    play >> Detach(handle=0)
    play.events()
    session.attach_sender("link", target=link.target, unsettled=link.unsettled)
    expect_map(play, {b"told": None, b"reached": Accepted()})


# ── The receiver ────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("3.4.6")
@pytest.mark.parametrize(
    ("state", "start"),
    [
        (None, 0),
        (at(0, 0), 0),
        (at(0, 3), 3),
        (at(1, 0), HEAD),
        (at(1, 60), HEAD + 60),
        (at(1, 100), HEAD + 100),
    ],
)
def test_what_we_have_already_is_skipped(play, session, state, start):
    have = MESSAGE[: HEAD + 100]
    resumed_receiver(play, session, {b"t": have}, {b"t": None})
    play >> on(0, transfer(0, 7, b"t", resume=True, state=state), MESSAGE[start:])
    delivery = play.find(DeliveryReceived).delivery
    assert delivery.payload == MESSAGE
    assert delivery.id == 7


@pytest.mark.spec("3.4.6")
def test_what_we_have_is_skipped_over_several_frames(play, session):
    have = MESSAGE[: HEAD + 100]
    resumed_receiver(play, session, {b"t": have}, {b"t": None})
    play >> on(0, transfer(0, 0, b"t", resume=True, more=True), MESSAGE[:40])
    play >> on(0, transfer(0, None, None, more=True), MESSAGE[40:200])
    play >> on(0, transfer(0, None, None), MESSAGE[200:])
    assert play.find(DeliveryReceived).delivery.payload == MESSAGE


@pytest.mark.spec("2.6.13")
@pytest.mark.parametrize("more", [False, True])
def test_a_resumed_delivery_that_we_do_not_know_is_ignored(play, session, more):
    link, _, _ = resumed_receiver(play, session, {}, {b"t": None})
    play >> on(0, transfer(0, 0, b"t", resume=True, more=more), MESSAGE)
    if more:
        play >> on(0, transfer(0, None, None), b"rest")
    play >> on(0, transfer(0, 1, b"next"), MESSAGE)
    (event,) = [e for e in play.events() if isinstance(e, DeliveryReceived)]
    assert event.delivery.tag == b"next"
    assert not link.local_detached


@pytest.mark.spec("2.6.13")
def test_what_the_sender_has_forgotten_is_settled(play, session):
    _, held, settled = resumed_receiver(
        play, session, {b"gone": Accepted(), b"half": MESSAGE[:50], b"kept": b""}, {b"kept": None}
    )
    assert {d.tag for d in settled} == {b"gone", b"half"}
    assert held[b"gone"].remote_settled and held[b"half"].remote_settled
    assert not held[b"kept"].remote_settled


@pytest.mark.spec("2.7.3")
def test_absence_from_an_incomplete_map_settles_nothing(play, session):
    _, held, settled = resumed_receiver(
        play, session, {b"t": Accepted()}, {b"other": None}, incomplete=True
    )
    assert settled == [] and not held[b"t"].remote_settled


@pytest.mark.spec("3.4.6")
def test_a_resumed_delivery_can_be_aborted(play, session):
    resumed_receiver(play, session, {b"t": MESSAGE[:50]}, {b"t": Accepted()})
    play >> on(0, transfer(0, 0, b"t", resume=True, aborted=True))
    assert play.find(DeliveryAborted).delivery.tag == b"t"
    assert "DeliveryReceived" not in play.names()


@pytest.mark.spec("3.4.6")
def test_the_senders_outcome_is_taken_over_and_settled(play, session):
    _, held, _ = resumed_receiver(play, session, {b"t": Released()}, {b"t": Accepted()})
    play >> on(0, transfer(0, 3, b"t", resume=True, state=Accepted()))
    delivery = play.find(SettlementReceived).delivery
    assert delivery is held[b"t"] and delivery.remote_state == Accepted()
    delivery.settle(delivery.remote_state)
    play << like(Disposition, role=Role.RECEIVER, first=3, settled=True, state=Accepted())


@pytest.mark.spec("2.6.13")
def test_a_delivery_has_no_id_before_it_is_resumed(play, session):
    _, held, _ = resumed_receiver(play, session, {b"t": MESSAGE}, {b"t": None})
    # An id of the old endpoint would mean another delivery here.
    play >> Disposition(role=Role.SENDER, first=0, settled=True, state=Accepted())
    assert not held[b"t"].remote_settled
    play >> on(0, transfer(0, 0, b"t", resume=True, settled=True, state=Accepted()))
    assert held[b"t"].remote_settled


@pytest.mark.spec("3.4.1")
def test_a_position_beyond_what_we_have_fails_the_link(play, session):
    resumed_receiver(play, session, {b"t": MESSAGE[:20]}, {b"t": None})
    play >> on(0, transfer(0, 0, b"t", resume=True, state=at(2, 0)), b"y")
    play << like(Detach, closed=True, error=condition("amqp:invalid-field"))
    assert play.find(LinkFailed).error.condition == "amqp:invalid-field"
    play >> Detach(handle=0, closed=True)
    play.events()
