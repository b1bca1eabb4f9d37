"""What holds whatever an open says: 512 octets, and texts in English (§2.7.1, §2.8.12)."""

from __future__ import annotations

import pytest

from ferrymq.engine.events import DeliveryReceived
from ferrymq_types.transport import Close, Open
from tests.support.scenes import begin_script, open_script, receiver_script, transfer
from tests.support.script import AMQP_HEADER, encoded, like, on


@pytest.mark.spec("2.7.1")
def test_a_frame_of_512_octets_is_always_taken(script):
    # 512 is also the least that can be announced.
    play = open_script(script(max_frame_size=512))
    receiver_script(play, begin_script(play))
    room = 512 - len(encoded(transfer(0, 0)))
    play >> on(0, transfer(0, 0), b"x" * room)
    assert len(play.event(DeliveryReceived).delivery.payload) == room
    play >> on(0, transfer(0, 1), b"x" * (room + 1))
    play << Close


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize("initiator", [False, True])
def test_texts_are_english_and_no_other_locale_is_claimed(script, initiator):
    play = script(initiator=initiator)
    # Neither list names en-US, which goes without saying: null is "no others".
    wanted = like(Open, outgoing_locales=None, incoming_locales=None)
    theirs = Open(container_id="peer", incoming_locales=["de-DE"], outgoing_locales=["de-DE"])
    if initiator:
        play.engine.open()
        play << AMQP_HEADER << wanted
        play >> AMQP_HEADER >> theirs
    else:
        play >> AMQP_HEADER << AMQP_HEADER >> theirs
        play.engine.open()
        play << wanted
    # A peer that would rather have German gets English all the same.
    play >> on(7, Close())
    play.events()
    play.engine.close()
    play << Close


@pytest.mark.spec("2.7.1")
def test_the_reason_of_a_close_is_english_for_every_peer(script):
    play = script()
    play >> AMQP_HEADER << AMQP_HEADER >> Open(container_id="peer", incoming_locales=["de-DE"])
    play.engine.open()
    play << Open
    play >> Open(container_id="peer")
    (answer,) = play.take()
    assert isinstance(answer.body, Close)
    description = answer.body.error.description
    assert description and description.isascii()
    play >> Close()
