"""Frames of a few bytes that take long: others have their turn in between."""

from __future__ import annotations

import pytest

from ferrymq.engine.input import MAX_WORK
from ferrymq_types.messaging import Received
from ferrymq_types.transport import Disposition, Role
from tests.support.scenes import begin_script, open_script, peer_flow, sender_script
from tests.support.script import encoded, on

COUNT = MAX_WORK * 2 // 3


@pytest.mark.spec("2.7.6")
def test_dispositions_of_many_are_read_in_turns(script) -> None:
    """Each looks at two thirds of what may be looked at in one go: reading pauses after two."""
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session, credit=COUNT)
    play >> on(session.remote_channel, peer_flow(incoming_window=COUNT))
    deliveries = [link.send(b"x") for _ in range(COUNT)]
    play.engine.data_to_send()
    connection = play.engine
    said = b"".join(
        encoded(
            on(
                session.remote_channel,
                Disposition(
                    role=Role.RECEIVER,
                    first=0,
                    last=0x7FFFFFFE,
                    state=Received(section_number=number, section_offset=0),
                ),
            )
        )
        for number in range(5)
    )
    connection.receive_data(said, play.now)
    for read in (2, 4, 5):
        state = deliveries[-1].remote_state
        assert isinstance(state, Received) and state.section_number == read - 1
        assert connection.unread == (read < 5)
        if connection.unread:
            assert connection.next_deadline() == play.now
            connection.handle_timeout(play.now)
    assert connection.next_deadline() != play.now


@pytest.mark.spec("2.7.6")
def test_a_disposition_that_says_nothing_is_passed_over(script) -> None:
    play = open_script(script())
    session = begin_script(play)
    link = sender_script(play, session)
    link.send(b"x")
    play.take()
    play.engine.take_events()
    play >> on(session.remote_channel, Disposition(role=Role.RECEIVER, first=0, last=100))
    assert play.engine.take_events() == []
