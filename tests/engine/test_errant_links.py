"""After our detach with an error only the peer's detach may come, or a resuming attach (§2.6.5)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import (
    AttachReceived,
    DeliveryReceived,
    DetachReceived,
    LinkFailed,
)
from ferrymq_types.transport import (
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    Role,
    SenderSettleMode,
)
from tests.support.scenes import (
    peer_attach,
    peer_flow,
    receiver_script,
    transfer,
)
from tests.support.script import condition, like, on

ERRANT = condition("amqp:session:errant-link")


@pytest.fixture
def failed(play, session):
    """A link on which the peer sent a settled delivery, and had said that it never would."""
    link = receiver_script(play, session, credit=2, snd=SenderSettleMode.UNSETTLED)
    play >> transfer(0, 0)
    play >> transfer(0, 1, settled=True)
    play << like(Detach, handle=0, closed=True, error=condition("amqp:not-allowed"))
    assert play.find(LinkFailed).link is link
    return link


@pytest.mark.spec("2.6.5")
@pytest.mark.parametrize(
    "frame",
    [
        transfer(0, 2),
        transfer(0, None, None, more=True),
        peer_flow(handle=0, delivery_count=2, link_credit=0),
        peer_flow(handle=0, delivery_count=2, echo=True),
        Disposition(role=Role.SENDER, first=0, settled=True),
        Disposition(role=Role.SENDER, first=0, last=5),
    ],
    ids=str,
)
def test_any_other_frame_of_the_link_ends_the_session(play, session, failed, frame):
    play >> frame
    play << like(End, error=ERRANT)
    assert not session.mapped


@pytest.mark.spec("2.6.5")
def test_a_link_attached_before_the_error_was_seen_ends_the_session(play, session, failed):
    play >> peer_attach("link", 1, Role.SENDER)
    play << like(End, error=ERRANT)


@pytest.mark.spec("2.6.5")
@pytest.mark.parametrize("unsettled", [{}, {b"tag": None}])
def test_a_link_that_resumes_is_no_such_attach(play, session, failed, unsettled):
    play >> peer_attach("link", 1, Role.SENDER, unsettled=unsettled)
    again = play.event(AttachReceived).link
    assert again is not failed
    again.accept()
    play << like(Attach, name="link")
    # The old one is still to be answered.
    play >> Detach(handle=0, closed=True)
    assert play.event(DetachReceived).link is failed
    again.set_credit(1)
    play << like(Flow, handle=again.handle)
    assert again.usable and session.mapped


@pytest.mark.spec("2.6.5")
def test_the_endpoint_is_gone_after_the_peers_detach(play, session, failed):
    play >> Detach(handle=0, closed=True)
    assert session.links == {} and play.engine.channels.links == {}
    assert not session.incoming.unsettled
    play.events()
    # Handle and name serve a new link.
    link = receiver_script(play, session, handle=0)
    assert link is not failed and link.handle == failed.handle


@pytest.mark.spec("2.6.5")
def test_flow_of_the_session_itself_is_no_input_of_the_link(play, session, failed):
    play >> peer_flow(next_outgoing_id=2)
    play >> on(0, Detach(handle=0, closed=True))
    assert session.mapped


@pytest.fixture
def overrun(play, session):
    """A link that the peer attached, and on which it sent more than it had credit for."""
    link = receiver_script(play, session, credit=1)
    play >> transfer(0, 0) >> transfer(0, 1)
    play << like(Detach, closed=True, error=condition("amqp:link:transfer-limit-exceeded"))
    assert [type(event) for event in play.events()] == [DeliveryReceived, LinkFailed]
    return link


@pytest.mark.spec("2.6.5", "pairing-2.2.2")
@pytest.mark.parametrize(
    "frames",
    [
        [transfer(0, 2), transfer(0, 3)],
        [transfer(0, 2, more=True), transfer(0, None, None)],
        [peer_flow(handle=0, delivery_count=2, echo=True)],
        [Disposition(role=Role.SENDER, first=0, settled=True)],
    ],
    ids=["transfers", "frames", "flow", "disposition"],
)
def test_who_may_not_have_seen_its_credit_pays_with_the_link_alone(play, session, overrun, frames):
    for frame in frames:
        play >> frame
    play >> on(0, Detach(handle=0, closed=True))
    assert session.mapped and not session.links
    assert [type(event) for event in play.events()] == [DetachReceived]
