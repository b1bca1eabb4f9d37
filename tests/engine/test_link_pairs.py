"""Two links that make a pair, and those that do not (Link Pairing 1.0 §2.1, §2.2)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import AttachReceived, LinkFailed
from ferrymq.engine.pairing import LINK_PAIR, ME, PAIRED, are_paired, paired_properties
from ferrymq_types.messaging import Source, Target
from ferrymq_types.transport import Attach, Detach, Flow, Open, Role
from tests.support.scenes import peer_attach, peer_flow, transfer
from tests.support.script import AMQP_HEADER, condition, like, on

PAIR = {"paired": True}
FAILED = condition("amqp:precondition-failed")


def halves(play, session, *, name="pair", properties=PAIR):
    """We attach both halves: requests go to `node`, answers come to `mine`."""
    requests = session.attach_sender(
        name, source=Source(address="mine"), target=Target(address="node"), properties=properties
    )
    answers = session.attach_receiver(
        name, source=Source(address="node"), target=Target(address="mine"), properties=properties
    )
    play << like(Attach, name=name, role=Role.SENDER, properties=properties)
    play << like(Attach, name=name, role=Role.RECEIVER, properties=properties)
    return requests, answers


def answer(play, role, handle, source, target, *, name="pair", **fields):
    """The peer's attach of one half."""
    fields = {"source": Source(address=source), "target": Target(address=target), **fields}
    play >> peer_attach(name, handle, role, **{"properties": PAIR, **fields})


@pytest.mark.spec("pairing-2.1")
def test_the_names_of_the_specification():
    assert (LINK_PAIR, PAIRED, ME) == ("LINK_PAIR_V1_0", "paired", "$me")
    assert paired_properties({"a": 1}) == {"a": 1, "paired": True}


@pytest.mark.spec("pairing-2.1")
def test_two_halves_that_mirror_each_other_are_a_pair(play, session):
    requests, answers = halves(play, session)
    assert not are_paired(requests, answers)
    answer(play, Role.RECEIVER, 0, "mine", "node")
    answer(play, Role.SENDER, 1, "node", "mine")
    assert are_paired(requests, answers) and are_paired(answers, requests)
    assert not are_paired(requests, requests)


@pytest.mark.spec("pairing-2.1")
def test_links_of_other_names_or_addresses_are_no_pair(play, session):
    requests, answers = halves(play, session)
    answer(play, Role.RECEIVER, 0, "mine", "node")
    answer(play, Role.SENDER, 1, "node", "mine")
    others, _ = halves(play, session, name="other")
    answer(play, Role.RECEIVER, 2, "mine", "node", name="other")
    assert not are_paired(others, answers)
    plain = session.attach_sender(
        "plain", source=Source(address="mine"), target=Target(address="node")
    )
    play << like(Attach, properties=None)
    assert not are_paired(plain, answers)
    assert are_paired(requests, answers)


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("unsettled", [None, {}])
def test_a_half_that_is_attached_again_or_resumed_says_so_again(play, session, unsettled):
    requests, _ = halves(play, session)
    answer(play, Role.RECEIVER, 0, "mine", "node")
    answer(play, Role.SENDER, 1, "node", "mine")
    requests.detach(closed=False)
    play << Detach
    play >> Detach(handle=0)
    session.attach_sender(
        "pair",
        source=Source(address="mine"),
        target=Target(address="node"),
        properties=paired_properties(),
        unsettled=unsettled,
    )
    play << like(Attach, role=Role.SENDER, properties=PAIR, unsettled=unsettled)


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize("properties", [None, {}, {"paired": False}, {"paired": 1}])
def test_an_answer_that_disagrees_is_detached_at_once(play, session, properties):
    requests, _ = halves(play, session)
    answer(play, Role.RECEIVER, 0, "mine", "node", properties=properties)
    play << like(Detach, handle=requests.handle, closed=True, error=FAILED)
    failed = play.find(LinkFailed)
    assert failed.link is requests and "AttachReceived" not in play.names()
    assert not requests.usable and session.mapped


@pytest.mark.spec("pairing-2.2.1")
def test_an_answer_that_pairs_unasked_is_detached_too(play, session):
    link = session.attach_sender("plain", target=Target(address="node"))
    play << Attach
    answer(play, Role.RECEIVER, 0, "mine", "node", name="plain")
    play << like(Detach, handle=link.handle, closed=True, error=FAILED)
    assert play.find(LinkFailed).link is link


@pytest.mark.spec("pairing-2.2.1")
def test_our_own_answer_that_disagrees_is_taken_back(play, session):
    answer(play, Role.SENDER, 0, "theirs", "node")
    link = play.event(AttachReceived).link
    link.accept()
    play << like(Attach, properties=None) << like(Detach, closed=True, error=FAILED)
    assert play.find(LinkFailed).link is link
    answer(play, Role.SENDER, 1, "theirs", "node", name="second")
    link = play.event(AttachReceived).link
    link.accept(properties=paired_properties())
    play << like(Attach, properties=PAIR)
    assert link.usable


@pytest.mark.spec("pairing-2.2.1")
@pytest.mark.parametrize(
    ("source", "target"), [("other", "theirs"), ("node", "other"), (None, "theirs"), ("node", None)]
)
def test_a_half_that_does_not_mirror_the_link_of_its_name_is_detached(
    play, session, source, target
):
    answer(play, Role.SENDER, 0, "theirs", "node")
    first = play.event(AttachReceived).link
    first.accept(properties=paired_properties())
    play << Attach
    answer(play, Role.RECEIVER, 1, source, target)
    play << like(Attach, role=Role.SENDER, name="pair")
    play << like(Detach, closed=True, error=FAILED)
    assert "AttachReceived" not in play.names()
    assert first.usable
    # What the peer says of it meanwhile is dropped.
    play >> peer_flow(handle=1, delivery_count=0, link_credit=5)
    play >> Detach(handle=1, closed=True)
    assert session.mapped
    answer(play, Role.RECEIVER, 1, "node", "theirs")
    play.find(AttachReceived).link.accept(properties=paired_properties())
    play << like(Attach, properties=PAIR)


@pytest.mark.spec("pairing-2.2.2")
def test_a_pair_can_be_pipelined_up_to_the_credit_for_the_answer(play, session):
    requests, answers = halves(play, session)
    answers.set_credit(1)
    play << like(Flow, handle=answers.handle, link_credit=1)
    # The request waits for credit of its own: it is never sent into the blue.
    assert requests.credit == 0
    answer(play, Role.RECEIVER, 0, "mine", "node")
    answer(play, Role.SENDER, 1, "node", "mine")
    play >> peer_flow(handle=0, delivery_count=0, link_credit=1)
    assert requests.credit == 1 and answers.credit == 1


@pytest.mark.spec("pairing-2.2.2")
def test_a_request_without_credit_costs_the_link(play, session):
    answer(play, Role.SENDER, 0, "theirs", "node")
    link = play.event(AttachReceived).link
    link.accept(properties=paired_properties())
    play << like(Attach, properties=PAIR)
    play >> transfer(0, 0)
    play << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))
    assert play.find(LinkFailed).link is link


@pytest.mark.spec("pairing-2.1.1")
@pytest.mark.parametrize(
    ("offered", "desired"), [([LINK_PAIR], None), (None, [LINK_PAIR]), ([LINK_PAIR], [LINK_PAIR])]
)
def test_the_open_says_whether_pairs_are_supported_or_wanted(script, offered, desired):
    play = script(initiator=True, offered_capabilities=offered, desired_capabilities=desired)
    play.engine.open()
    play << AMQP_HEADER
    play << on(0, like(Open, offered_capabilities=offered, desired_capabilities=desired))
