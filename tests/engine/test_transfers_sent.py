"""Transfers of ours (AMQP 1.0 §2.6.12, §2.6.14, §2.7.5)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import DetachReceived
from ferrymq.errors import EncodeError, LocalProtocolError, Scope
from ferrymq_types.messaging import Modified, Received
from ferrymq_types.transactions import TransactionalState
from ferrymq_types.transport import Detach, Transfer
from tests.support.scenes import open_script, peer_flow, sender_script
from tests.support.script import encoded, like, on


@pytest.fixture
def play(script):
    return open_script(script(), max_frame_size=512)


@pytest.mark.spec("2.7.5")
def test_one_frame(play, session):
    link = sender_script(play, session)
    delivery = link.send(b"payload", tag=b"t", message_format=3)
    play << on(
        0,
        Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=3, settled=False),
        b"payload",
    )
    assert delivery.sent and delivery.id == 0
    assert link.credit == 99 and link.delivery_count == 1
    assert session.outgoing.unsettled.items() == [(0, delivery)]


@pytest.mark.spec("2.7.5")
def test_settled(play, session):
    link = sender_script(play, session)
    delivery = link.send(b"payload", settled=True)
    play << like(Transfer, settled=True)
    assert delivery.settled and not session.outgoing.unsettled


@pytest.mark.spec("2.6.14")
@pytest.mark.parametrize("size", [0, 1, 400, 470, 480, 490, 500, 512, 513, 5000, 100_000])
@pytest.mark.parametrize("settled", [False, True])
def test_cut_into_frames_that_fit(play, session, size, settled):
    link = sender_script(play, session)
    play >> peer_flow(incoming_window=1000)
    payload = bytes(i % 251 for i in range(size))
    link.send(payload, tag=b"t" * 32, settled=settled)
    frames = play.take()
    assert b"".join(f.payload for f in frames) == payload
    assert [f.body.more for f in frames] == [True] * (len(frames) - 1) + [False]
    assert frames[0].body.delivery_id == 0
    assert all(f.body.delivery_id is None for f in frames[1:])
    assert all(f.body.settled == settled for f in frames)
    # No frame is smaller than it need be.
    sizes = [len(encoded(f.body)) + len(f.payload) for f in frames]
    assert set(sizes[:-1]) <= {512} and sizes[-1] <= 512


@pytest.mark.spec("2.8.7")
def test_tags_are_unique_on_a_link(play, session):
    link = sender_script(play, session)
    tags = {link.send(b"").tag for _ in range(50)}
    assert len(tags) == 50 and max(map(len, tags)) <= 32
    play.take()


@pytest.mark.spec("2.8.8")
def test_delivery_ids_run_through_all_links_of_a_session(play, session):
    links = [sender_script(play, session, name) for name in "ab"]
    ids = [links[i % 2].send(b"").id for i in range(6)]
    assert ids == [0, 1, 2, 3, 4, 5]
    play.take()


def test_state_goes_with_the_transfer(play, session):
    link = sender_script(play, session)
    link.send(b"", state=TransactionalState(txn_id=b"t"))
    play << like(Transfer, state=TransactionalState(txn_id=b"t"))


@pytest.mark.spec("3.4.1")
def test_received_is_stated_only_where_a_delivery_is_resumed(play, session):
    link = sender_script(play, session)
    with pytest.raises(LocalProtocolError, match="received"):
        link.send(b"", state=Received(section_number=1, section_offset=2))
    delivery = link.send(b"")
    play << Transfer
    with pytest.raises(LocalProtocolError, match="received"):
        delivery.update(Received(section_number=0, section_offset=0))
    play.quiet()


# -- refused, with nothing sent and nothing changed -----------------------------------


def refused(play, link, error: type[Exception], **send: object) -> Exception:
    before = (link.credit, link.delivery_count, link.session.outgoing.unsettled.items())
    with pytest.raises(error) as caught:
        link.send(send.pop("payload", b"x"), **send)
    play.quiet()
    assert (link.credit, link.delivery_count, link.session.outgoing.unsettled.items()) == before
    assert link.session.outgoing.next_id == 0
    return caught.value


@pytest.mark.spec("2.6.7")
def test_without_credit(play, session):
    link = sender_script(play, session, credit=0)
    error = refused(play, link, LocalProtocolError)
    assert error.scope is Scope.LINK
    assert error.condition == "amqp:link:transfer-limit-exceeded"


@pytest.mark.spec("2.7.3")
def test_larger_than_the_peer_takes(play, session):
    link = sender_script(play, session, max_message_size=10)
    error = refused(play, link, LocalProtocolError, payload=b"x" * 11)
    assert error.condition == "amqp:link:message-size-exceeded"
    link.send(b"x" * 10)
    play << Transfer


@pytest.mark.spec("2.8.7")
def test_tag_of_more_than_32_bytes(play, session):
    refused(play, sender_script(play, session), EncodeError, tag=b"t" * 33)


@pytest.mark.spec("2.8.11")
@pytest.mark.parametrize("message_format", [-1, 1 << 32])
def test_message_format_of_more_than_32_bits(play, session, message_format):
    refused(play, sender_script(play, session), EncodeError, message_format=message_format)


def test_state_that_cannot_be_encoded(play, session):
    state = Modified(message_annotations={"x": object()})
    refused(play, sender_script(play, session), EncodeError, state=state)


@pytest.mark.spec("2.8.15")
def test_state_larger_than_a_frame(play, session):
    state = Modified(message_annotations={"x": "y" * 500})
    error = refused(play, sender_script(play, session), LocalProtocolError, state=state)
    assert error.condition == "amqp:frame-size-too-small"


def test_on_a_link_that_is_not_attached(play, session):
    link = session.attach_sender("a", target=None)
    play.take()
    with pytest.raises(LocalProtocolError):
        link.send(b"x")
    play.quiet()


def test_on_a_link_that_the_peer_has_detached(play, session):
    link = sender_script(play, session)
    play >> Detach(handle=0)
    play.event(DetachReceived)
    refused(play, link, LocalProtocolError)


def test_after_the_connection_has_ended(play, session):
    link = sender_script(play, session)
    play.eof()
    with pytest.raises(LocalProtocolError):
        link.send(b"x")
