"""Link pairing: conditions, errors, the capability, pipelining.

Request-Response Messaging with Link Pairing 1.0.
"""

from __future__ import annotations

import pytest

from ferrymq.engine import ReceiverLink, SenderLink
from ferrymq.engine.events import (
    AttachReceived,
    BeginReceived,
    DeliveryReceived,
    LinkFailed,
    OpenReceived,
)
from ferrymq.engine.link_pair import attach_pair
from ferrymq.engine.pairing import LINK_PAIR, PAIRED, are_paired, is_paired, paired_properties
from ferrymq.errors import LocalProtocolError
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Attach, Begin, Detach, Flow, Open, Role, Transfer
from tests.support.scenes import (
    begin_script,
    open_script,
    peer_attach,
    peer_begin,
    peer_flow,
    transfer,
)
from tests.support.script import AMQP_HEADER, condition, like, on

A, B = "us", "service"
TRUE = {PAIRED: True}
FAILED = condition("amqp:precondition-failed")


@pytest.fixture
def play(script):
    return open_script(
        script(initiator=True, desired_capabilities=[LINK_PAIR]), offered_capabilities=[LINK_PAIR]
    )


@pytest.fixture
def session(play):
    session = play.engine.begin()
    play << Begin
    play >> peer_begin(0)
    play.events()
    return session


def answer(role, handle, properties=TRUE, source=None, target=None, name="pair"):
    """The service's attach; by default with the addresses that we gave."""
    here, there = (B, A) if role is Role.SENDER else (A, B)
    return peer_attach(
        name,
        handle,
        role,
        source=Source(address=source or here),
        target=Target(address=target or there),
        properties=properties,
    )


def establish(play, session):
    pair = attach_pair(session, "pair", address=B, reply_address=A)
    play << like(Attach, role=Role.SENDER, name="pair", source=Source(address=A),
                 target=Target(address=B), properties=TRUE)  # fmt: skip
    play << like(Attach, role=Role.RECEIVER, name="pair", source=Source(address=B),
                 target=Target(address=A), properties=TRUE)  # fmt: skip
    play << like(Flow, handle=1, link_credit=1)
    return pair


# -- establishing -----------------------------------------------------------------------


@pytest.mark.spec("pairing-2.1", "pairing-2.2")
def test_a_pair_is_established_and_used(play, session):
    pair = establish(play, session)
    assert not pair.paired
    play >> answer(Role.RECEIVER, 0)
    assert not pair.paired
    play >> answer(Role.SENDER, 1)
    assert pair.paired
    play.events()
    with pytest.raises(LocalProtocolError, match="no credit"):
        pair.send(b"request")
    play >> peer_flow(handle=0, delivery_count=0, link_credit=1)
    play.events()
    pair.send(b"request")
    play << on(0, like(Transfer, handle=0), b"request")
    play >> on(0, transfer(1, 0, settled=True), b"response")
    received = play.event(DeliveryReceived)
    assert received.link is pair.receiver and received.delivery.payload == b"response"
    pair.close()
    play << like(Detach, handle=0, closed=True) << like(Detach, handle=1, closed=True)
    assert not pair.paired


@pytest.mark.spec("pairing-2.2.2")
def test_credit_for_the_response_comes_before_the_request(play, session):
    pair = establish(play, session)
    play >> answer(Role.RECEIVER, 0) >> answer(Role.SENDER, 1)
    play >> peer_flow(handle=0, delivery_count=0, link_credit=10)
    pair.receiver.set_credit(0)
    play << Flow
    with pytest.raises(LocalProtocolError, match="no credit for a response"):
        pair.send(b"request")
    play.quiet()
    pair.receiver.set_credit(1)
    pair.send(b"request")
    play << like(Flow, link_credit=1) << Transfer


@pytest.mark.spec("pairing-2.2.1")
def test_the_property_is_on_every_attach_of_a_half(play, session):
    pair = establish(play, session)
    play >> answer(Role.RECEIVER, 0) >> answer(Role.SENDER, 1)
    for link in (pair.sender, pair.receiver):
        link.detach(closed=False)
        play << Detach
        play >> Detach(handle=link.remote_handle)
    # Reattached and resumed: the user's own properties stay.
    properties = paired_properties({"mine": 1})
    assert properties == {"mine": 1, PAIRED: True}
    session.attach_sender("pair", source=Source(address=A), target=Target(address=B),
                          properties=properties, unsettled={})  # fmt: skip
    play << like(Attach, properties=properties)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [(None, False), ({}, False), (TRUE, True), ({PAIRED: False}, False), ({PAIRED: 1}, False),
     ({PAIRED: "true"}, False), ({PAIRED: None}, False), ({PAIRED: True, "x": 1}, True)],
)  # fmt: skip
@pytest.mark.spec("pairing-2.2.1")
def test_only_true_pairs(properties, expected):
    assert is_paired(properties) is expected


# -- the capability -----------------------------------------------------------------------


@pytest.mark.spec("pairing-2.1.1")
def test_the_open_tells_what_is_supported_and_desired(script):
    play = script(offered_capabilities=[LINK_PAIR], desired_capabilities=[LINK_PAIR])
    play >> AMQP_HEADER << AMQP_HEADER
    play >> Open(container_id="peer")
    play.find(OpenReceived)
    play.engine.open()
    play << like(Open, offered_capabilities=[LINK_PAIR], desired_capabilities=[LINK_PAIR])


@pytest.mark.spec("pairing-2.1.1")
@pytest.mark.parametrize(
    ("ours", "theirs", "complaint"),
    [(None, [LINK_PAIR], "desire"), ([LINK_PAIR], None, "offer"), ([LINK_PAIR], ["x"], "offer")],
)
def test_pairs_are_made_only_with_the_capability(script, ours, theirs, complaint):
    play = open_script(
        script(initiator=True, desired_capabilities=ours), offered_capabilities=theirs
    )
    session = play.engine.begin()
    play << Begin
    with pytest.raises(LocalProtocolError, match=complaint):
        attach_pair(session, "pair", address=B, reply_address=A)
    play.quiet()
    assert session.links == {}


# -- what does not fit -------------------------------------------------------------------


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("properties", [None, {PAIRED: False}, {PAIRED: 1}])
def test_an_answer_that_is_not_paired_costs_the_link(play, session, properties):
    pair = establish(play, session)
    play >> answer(Role.RECEIVER, 0, properties)
    play << like(Detach, handle=0, closed=True, error=FAILED)
    failed = play.event(LinkFailed)
    assert failed.link is pair.sender and failed.error.condition == "amqp:precondition-failed"
    # What the service sent behind its attach costs nothing more.
    play >> peer_flow(handle=0, delivery_count=0, link_credit=1)
    play.quiet()
    assert session.mapped and play.names() == []


@pytest.mark.spec("pairing-2.2.1")
def test_an_answer_that_is_paired_when_we_are_not(play, session):
    link = session.attach_sender("plain", target=Target(address=B))
    play << Attach
    play >> answer(Role.RECEIVER, 0, name="plain")
    play << like(Detach, closed=True, error=FAILED)
    assert play.event(LinkFailed).link is link


@pytest.mark.spec("pairing-2.2.1")
def test_a_refusal_is_told_as_such(play, session):
    pair = establish(play, session)
    play >> Attach(name="pair", handle=0, role=Role.RECEIVER, source=Source(address=A), target=None)
    assert play.event(AttachReceived).link is pair.sender
    play.quiet()


@pytest.mark.spec("pairing-2.2.1")
def test_we_answer_a_paired_attach_as_paired_or_detach(script):
    play = open_script(script())
    begin_script(play)
    play >> answer(Role.SENDER, 0, source=A, target=B)
    link = play.event(AttachReceived).link
    link.accept()
    play << like(Attach, properties=None) << like(Detach, closed=True, error=FAILED)
    assert play.event(LinkFailed).link is link
    play >> Detach(handle=0, closed=True)
    play >> answer(Role.SENDER, 0, source=A, target=B)
    again = play.find(AttachReceived).link
    again.accept(properties=TRUE)
    play << like(Attach, properties=TRUE)
    assert again.usable


@pytest.mark.spec("pairing-2.2.1")
def test_an_unpaired_attach_is_not_answered_as_paired(script):
    play = open_script(script())
    begin_script(play)
    play >> answer(Role.SENDER, 0, None)
    play.event(AttachReceived).link.accept(properties=TRUE)
    play << Attach << like(Detach, closed=True, error=FAILED)
    play.event(LinkFailed)


def service(script):
    """A server that accepts pairs, with the client's first half attached."""
    play = open_script(script(offered_capabilities=[LINK_PAIR]))
    session = begin_script(play)
    play >> answer(Role.SENDER, 0, source=A, target=B)
    first = play.event(AttachReceived).link
    assert isinstance(first, ReceiverLink)
    first.accept(properties=TRUE)
    play << like(Attach, properties=TRUE)
    return play, session, first


@pytest.mark.spec("pairing-2.1")
def test_the_service_sees_the_pair(script):
    play, _, first = service(script)
    play >> answer(Role.RECEIVER, 1, source=B, target=A)
    second = play.event(AttachReceived).link
    assert isinstance(second, SenderLink) and not are_paired(first, second)
    second.accept(properties=TRUE)
    play << like(Attach, properties=TRUE)
    assert are_paired(first, second) and are_paired(second, first)
    assert not are_paired(first, first)


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize(
    ("source", "target"), [("elsewhere", A), (B, "elsewhere"), (A, B)], ids=str
)
@pytest.mark.parametrize("answered", [True, False])
def test_addresses_that_do_not_mirror_cost_the_newcomer(script, source, target, answered):
    if answered:
        play, session, first = service(script)
    else:
        play = open_script(script())
        session = begin_script(play)
        play >> answer(Role.SENDER, 0, source=A, target=B)
        first = play.event(AttachReceived).link
    play >> answer(Role.RECEIVER, 1, source=source, target=target)
    play << like(Attach, role=Role.SENDER) << like(Detach, closed=True, error=FAILED)
    # The user never hears of it, and the first half goes on.
    assert play.events() == []
    play >> peer_flow(handle=1, delivery_count=0, link_credit=1) >> Detach(handle=1, closed=True)
    assert play.events() == []
    assert session.mapped and list(session.links.values()) == [first]
    if not answered:
        first.accept(properties=TRUE)
        play << Attach
    assert first.usable


@pytest.mark.spec("pairing-2.1")
def test_halves_may_be_on_different_sessions(script):
    play, _, first = service(script)
    begin_script(play, 1)
    play >> on(1, answer(Role.RECEIVER, 0, source=B, target="elsewhere"))
    play << on(1, Attach) << on(1, like(Detach, error=FAILED))
    (
        play
        >> on(1, Detach(handle=0, closed=True))
        >> on(1, answer(Role.RECEIVER, 0, source=B, target=A))
    )
    second = play.find(AttachReceived).link
    second.accept(properties=TRUE)
    play << on(1, Attach)
    assert are_paired(first, second)


@pytest.mark.spec("pairing-2.1")
@pytest.mark.parametrize("unpaired", [0, 1])
def test_links_of_one_name_that_are_not_both_paired_are_no_pair(script, unpaired):
    play = open_script(script())
    begin_script(play)
    links = []
    for handle, (role, source, target) in enumerate([(Role.SENDER, A, B), (Role.RECEIVER, B, A)]):
        properties = None if handle == unpaired else TRUE
        play >> answer(role, handle, properties, source=source, target=target)
        link = play.event(AttachReceived).link
        link.accept(properties=properties)
        play << Attach
        links.append(link)
    assert all(link.usable for link in links) and not are_paired(*links)


# -- pipelining ---------------------------------------------------------------------------


@pytest.mark.spec("pairing-2.2.2")
def test_before_the_peers_open_only_pipelined(script):
    play = script(initiator=True, desired_capabilities=[LINK_PAIR])
    play.engine.open()
    session = play.engine.begin()
    play.take()
    with pytest.raises(LocalProtocolError, match="not known yet"):
        attach_pair(session, "pair", address=B, reply_address=A)
    play.quiet()


@pytest.mark.spec("pairing-2.2.2")
def test_everything_in_one_flight(script):
    play = script(initiator=True, desired_capabilities=[LINK_PAIR])
    play.engine.open()
    session = play.engine.begin()
    pair = attach_pair(session, "pair", address=B, reply_address=A, pipelined=True)
    pair.send(b"request")
    play << AMQP_HEADER << Open << Begin
    play << like(Attach, role=Role.SENDER) << like(Attach, role=Role.RECEIVER)
    play << like(Flow, handle=1, link_credit=1)
    with pytest.raises(LocalProtocolError):
        pair.send(b"more than was assumed")
    # The transfer needs a window, which only the begin tells.
    play.quiet()
    play >> AMQP_HEADER >> Open(container_id="service", offered_capabilities=[LINK_PAIR])
    play >> peer_begin(0)
    play << on(0, like(Transfer, handle=0), b"request")
    play >> answer(Role.RECEIVER, 0) >> answer(Role.SENDER, 1)
    assert pair.paired and pair.sender.credit == 0
    # The service counts the request that it has seen.
    play >> peer_flow(handle=0, delivery_count=1, link_credit=1)
    assert pair.sender.credit == 1
    play >> on(0, transfer(1, 0, settled=True), b"response")
    assert play.find(DeliveryReceived).delivery.payload == b"response"
    assert play.events() == []


@pytest.mark.spec("pairing-2.2.2")
def test_a_pipelined_request_without_credit_costs_the_link(script):
    play, _, first = service(script)
    play >> transfer(0, 0)
    play << like(Detach, handle=0, error=condition("amqp:link:transfer-limit-exceeded"))
    assert play.event(LinkFailed).link is first


def test_credit_is_assumed_only_before_the_receiver_attaches(play, session):
    pair = establish(play, session)
    play >> answer(Role.RECEIVER, 0)
    with pytest.raises(LocalProtocolError):
        pair.sender.assume_credit(1)
    with pytest.raises(LocalProtocolError):
        pair.send(b"request")
    assert BeginReceived not in [type(e) for e in play.events()]
