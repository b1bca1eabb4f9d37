"""The state tables over the full product of states and inputs, against golden grids.

Each grid has a line for every state and a column for every input; a dot is what the table does
not have: a mistake of whoever made the input. A change of a table has to be made here as well.
"""

from __future__ import annotations

from enum import Enum

import pytest

from ferrymq.engine.events import AttachReceived, BeginReceived, Terminated
from ferrymq.engine.frames import EMPTY_FRAME
from ferrymq.engine.link import Link
from ferrymq.engine.session import Session
from ferrymq.engine.states import (
    CONNECTION_TABLE,
    LINK_TABLE,
    SESSION_TABLE,
    ConnectionInput,
    ConnectionState,
    LinkInput,
    LinkState,
    SessionInput,
    SessionState,
)
from ferrymq.errors import LocalProtocolError, TransportError
from ferrymq_types.messaging import Source
from ferrymq_types.transport import Begin, Close, Detach, End, Error, Open, Role
from tests.support.scenes import begin_script, open_script, peer_attach, peer_begin
from tests.support.script import AMQP_HEADER, TLS_HEADER, Script, condition, like

# Columns: the header that both ends speak, then one that differs from the other end's.
CONNECTION_GRID = """
               SEND_HEADER RECV_HEADER SEND_OTHER_HEADER RECV_OTHER_HEADER SEND_OPEN  RECV_OPEN  SEND_CLOSE SEND_CLOSE_ERROR RECV_CLOSE
    START      HDR_SENT    HDR_RCVD    .                 .                 .          .          .          .                .
    HDR_RCVD   HDR_EXCH    .           END               .                 .          .          .          .                .
    HDR_SENT   .           HDR_EXCH    .                 END               OPEN_PIPE  .          .          .                .
    HDR_EXCH   .           .           .                 .                 OPEN_SENT  OPEN_RCVD  .          .                .
    OPEN_PIPE  .           OPEN_SENT   .                 END               .          .          OC_PIPE    OC_PIPE          .
    OC_PIPE    .           CLOSE_PIPE  .                 END               .          .          .          .                .
    OPEN_RCVD  .           .           .                 .                 OPENED     .          .          .                OPEN_RCVD
    OPEN_SENT  .           .           .                 .                 .          OPENED     CLOSE_PIPE CLOSE_PIPE       .
    CLOSE_PIPE .           .           .                 .                 .          CLOSE_SENT .          .                .
    OPENED     .           .           .                 .                 .          .          CLOSE_SENT DISCARDING       CLOSE_RCVD
    CLOSE_RCVD .           .           .                 .                 .          .          END        END              .
    CLOSE_SENT .           .           .                 .                 .          .          .          .                END
    DISCARDING .           .           .                 .                 .          .          .          .                END
    END        .           .           .                 .                 .          .          .          .                .
"""  # noqa: E501

SESSION_GRID = """
               SEND_BEGIN RECV_BEGIN SEND_END SEND_END_ERROR RECV_END
    UNMAPPED   BEGIN_SENT BEGIN_RCVD .        .              .
    BEGIN_SENT .          MAPPED     END_SENT DISCARDING     .
    BEGIN_RCVD MAPPED     .          .        .              BEGIN_RCVD
    MAPPED     .          .          END_SENT DISCARDING     END_RCVD
    END_SENT   .          END_SENT   .        .              UNMAPPED
    END_RCVD   .          .          UNMAPPED UNMAPPED       .
    DISCARDING .          DISCARDING .        .              UNMAPPED
"""

LINK_GRID = """
                SEND_ATTACH RECV_ATTACH SEND_DETACH RECV_DETACH
    DETACHED    ATTACH_SENT ATTACH_RCVD .           .
    ATTACH_SENT .           ATTACHED    DETACH_SENT .
    ATTACH_RCVD ATTACHED    .           .           ATTACH_RCVD
    ATTACHED    .           .           DETACH_SENT DETACH_RCVD
    DETACH_SENT .           DETACH_SENT .           DETACHED
    DETACH_RCVD .           .           DETACHED    .
"""


def pairs(grid: str, states: type[Enum], inputs: type[Enum]) -> list[tuple[Enum, Enum, object]]:
    """(state, input, next state or None) for every field of a grid."""
    head, *lines = [line.split() for line in grid.strip().splitlines()]
    assert head == [i.name for i in inputs]
    assert [line[0] for line in lines] == [s.name for s in states]
    return [
        (states[line[0]], inputs[name], None if cell == "." else states[cell])
        for line in lines
        for name, cell in zip(head, line[1:], strict=True)
    ]


CONNECTION_PAIRS = pairs(CONNECTION_GRID, ConnectionState, ConnectionInput)
SESSION_PAIRS = pairs(SESSION_GRID, SessionState, SessionInput)
LINK_PAIRS = pairs(LINK_GRID, LinkState, LinkInput)


def names(pair: object) -> str | None:
    return pair.name if isinstance(pair, Enum) else None


@pytest.mark.spec("2.4.6")
@pytest.mark.parametrize(("state", "given", "next_state"), CONNECTION_PAIRS, ids=names)
def test_connection_table(state, given, next_state):
    assert CONNECTION_TABLE.get((state, given)) is next_state


@pytest.mark.spec("2.5.5")
@pytest.mark.parametrize(("state", "given", "next_state"), SESSION_PAIRS, ids=names)
def test_session_table(state, given, next_state):
    assert SESSION_TABLE.get((state, given)) is next_state


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize(("state", "given", "next_state"), LINK_PAIRS, ids=names)
def test_link_table(state, given, next_state):
    assert LINK_TABLE.get((state, given)) is next_state


@pytest.mark.parametrize(
    ("table", "start"),
    [
        (CONNECTION_TABLE, ConnectionState.START),
        (SESSION_TABLE, SessionState.UNMAPPED),
        (LINK_TABLE, LinkState.DETACHED),
    ],
    ids=["connection", "session", "link"],
)
def test_every_state_can_be_reached(table, start):
    reached = {start}
    while more := {new for (old, _), new in table.items() if old in reached} - reached:
        reached |= more
    assert reached == set(type(start))


# -- the machines themselves: every input of the peer in every state they rest in ------------

BROKEN = Error(condition="amqp:internal-error")
THEIRS = Open(container_id="peer")


def connection_in(script, state: ConnectionState) -> Script:
    """A connection in a state; those that only last for a moment are left out."""
    if state is ConnectionState.START:
        return script()
    client = state in (
        ConnectionState.HDR_SENT,
        ConnectionState.OPEN_PIPE,
        ConnectionState.OC_PIPE,
        ConnectionState.OPEN_SENT,
        ConnectionState.CLOSE_PIPE,
    )
    play = script(initiator=client)
    engine = play.engine
    if client:
        if state is not ConnectionState.HDR_SENT:
            engine.open()
        if state in (ConnectionState.OPEN_SENT, ConnectionState.CLOSE_PIPE):
            play >> AMQP_HEADER
        if state in (ConnectionState.OC_PIPE, ConnectionState.CLOSE_PIPE):
            engine.close()
    else:
        play >> AMQP_HEADER
        if state is not ConnectionState.HDR_EXCH:
            play >> THEIRS
        if state not in (ConnectionState.HDR_EXCH, ConnectionState.OPEN_RCVD):
            engine.open()
        if state is ConnectionState.CLOSE_SENT:
            engine.close()
        elif state is ConnectionState.DISCARDING:
            engine.close(BROKEN)
        elif state is ConnectionState.CLOSE_RCVD:
            play >> Close()
        elif state is ConnectionState.END:
            play.send(Close())
            engine.close()
    play.take()
    play.events()
    assert engine.state is state
    return play


RESTING = [s for s in ConnectionState if s is not ConnectionState.HDR_RCVD]
HAVE_HEADER = [
    s
    for s in RESTING
    if s.name not in ("START", "HDR_SENT", "OPEN_PIPE", "OC_PIPE", "END")
]  # fmt: skip


@pytest.mark.spec("2.4.6")
@pytest.mark.parametrize("state", HAVE_HEADER, ids=names)
@pytest.mark.parametrize(
    "given", [ConnectionInput.RECV_OPEN, ConnectionInput.RECV_CLOSE], ids=names
)
def test_connection_takes_what_its_table_has_and_nothing_else(script, state, given):
    play = connection_in(script, state)
    play >> (THEIRS if given is ConnectionInput.RECV_OPEN else Close())
    expected = CONNECTION_TABLE.get((state, given))
    output = play.take()
    if expected is not None:
        assert play.engine.state is expected and output == []
        return
    if state in (ConnectionState.CLOSE_SENT, ConnectionState.DISCARDING):
        # Sent before the peer saw our close: read and dropped.
        assert play.engine.state is state and output == []
        return
    # A mistake of the peer is answered by a close, unless ours has gone out before.
    assert play.engine.failure is not None
    assert play.engine.state in (
        ConnectionState.DISCARDING, ConnectionState.CLOSE_PIPE, ConnectionState.END,
    )  # fmt: skip
    if state is ConnectionState.CLOSE_PIPE:
        assert output == []
    else:
        assert output[-1].body.error == condition("amqp:illegal-state")


# What may be sent and received in each state, as Figure 2.24 has it: a header, an open, any frame
# or nothing. Where it says that everything may be sent, a begin stands for it.
LEGAL = {
    "START": ("header", "header"),
    "HDR_SENT": ("open", "header"),
    "HDR_EXCH": ("open", "open"),
    "OPEN_RCVD": ("open", "any"),
    "OPEN_SENT": ("any", "open"),
    "OPEN_PIPE": ("any", "header"),
    "CLOSE_PIPE": ("-", "open"),
    "OC_PIPE": ("-", "header"),
    "OPENED": ("any", "any"),
    "CLOSE_RCVD": ("close", "-"),
    "CLOSE_SENT": ("-", "any"),
    "DISCARDING": ("-", "any"),
    "END": ("-", "-"),
}


@pytest.mark.spec("2.4.7")
@pytest.mark.parametrize("state", RESTING, ids=names)
@pytest.mark.parametrize("given", ["header", "open", "begin", "empty"])
def test_what_a_state_admits_from_the_peer(script, state, given):
    play = connection_in(script, state)
    items = {"header": AMQP_HEADER, "open": THEIRS, "begin": peer_begin(), "empty": EMPTY_FRAME}
    play >> items[given]
    play.take()
    legal = LEGAL[state.name][1]
    if state is ConnectionState.END:
        assert play.events() == []
    elif given == "header":
        # Read as a frame, a header is far too long.
        assert (play.engine.failure is None and not play.engine.finished) is (legal == "header")
    elif state.name in ("CLOSE_SENT", "DISCARDING"):
        assert play.engine.state is state and play.engine.failure is None
    else:
        # A second open is the one frame that is no frame like any other.
        admitted = legal == given or (legal == "any" and given != "open")
        assert (play.engine.failure is None and not play.engine.finished) is admitted


@pytest.mark.spec("2.4.7")
@pytest.mark.parametrize("state", RESTING, ids=names)
def test_what_a_state_admits_from_us(script, state):
    play = connection_in(script, state)
    legal = LEGAL[state.name][0]
    try:
        play.engine.begin()
        begun = True
    except LocalProtocolError:
        begun = False
    assert [type(item.body) for item in play.take()] == ([Begin] if begun else [])
    assert begun is (legal == "any")
    assert ((state, ConnectionInput.SEND_OPEN) in CONNECTION_TABLE) is (legal == "open")
    assert ((state, ConnectionInput.SEND_HEADER) in CONNECTION_TABLE) is (legal == "header")


@pytest.mark.spec("2.4.7")
@pytest.mark.parametrize("state", ["HDR_SENT", "OPEN_PIPE", "OC_PIPE"])
def test_header_that_differs_from_ours_ends(script, state):
    play = connection_in(script, ConnectionState[state])
    play >> TLS_HEADER
    play.quiet()
    assert play.engine.state is ConnectionState.END
    assert isinstance(play.event(Terminated).error, TransportError)


@pytest.mark.parametrize("state", RESTING, ids=names)
def test_open_and_close_by_the_user_in_every_state(script, state):
    play = connection_in(script, state)
    play.engine.close()
    allowed = CONNECTION_TABLE.get((state, ConnectionInput.SEND_CLOSE))
    output = play.take()
    if allowed is not None:
        assert play.engine.state is allowed
        assert isinstance(output[-1].body, Close)
    elif state in (ConnectionState.HDR_EXCH, ConnectionState.OPEN_RCVD):
        assert [type(item.body) for item in output] == [Open, Close]
    else:
        assert output == []
        silent = (ConnectionState.START, ConnectionState.HDR_SENT, ConnectionState.END)
        assert play.engine.finished is (state in silent)
    play.engine.close()
    play.quiet()


def session_in(script, state: SessionState) -> tuple[Script, Session]:
    play = open_script(script())
    engine = play.engine
    if state is SessionState.BEGIN_SENT:
        session = engine.begin()
    elif state is SessionState.BEGIN_RCVD:
        play >> peer_begin()
        session = play.event(BeginReceived).session
    else:
        session = begin_script(play)
        if state in (SessionState.END_SENT, SessionState.UNMAPPED):
            session.end()
        elif state is SessionState.DISCARDING:
            session.end(BROKEN)
        if state in (SessionState.END_RCVD, SessionState.UNMAPPED):
            play.take()
            play >> End()
    play.take()
    play.events()
    assert session.state is state
    return play, session


@pytest.mark.spec("2.5.5")
@pytest.mark.parametrize("state", list(SessionState), ids=names)
@pytest.mark.parametrize("given", list(SessionInput), ids=names)
def test_session_takes_what_its_table_has_and_nothing_else(script, state, given):
    play, session = session_in(script, state)
    channel = session.channel
    if given is SessionInput.SEND_BEGIN:
        if state is SessionState.BEGIN_RCVD:
            session.accept()
            play << like(Begin, remote_channel=0)
            assert session.state is SessionState.MAPPED
        return
    if given is SessionInput.RECV_BEGIN:
        if state is SessionState.BEGIN_SENT:
            play >> peer_begin(channel)
            assert session.state is SessionState.MAPPED
        return
    expected = SESSION_TABLE.get((state, given))
    if given is SessionInput.RECV_END:
        play >> End()
        if expected is None:
            # No session of the peer is on the channel: never was, or no longer is.
            play << like(Close, error=condition("amqp:connection:framing-error"))
        else:
            assert session.state is expected
        return
    session.end(BROKEN if given is SessionInput.SEND_END_ERROR else None)
    output = [type(item.body) for item in play.take()]
    if expected is not None:
        assert session.state is expected and output == [End]
    elif state is SessionState.BEGIN_RCVD:
        assert output == [Begin, End]
    else:
        assert session.state is state and output == []


def link_in(script, state: LinkState) -> tuple[Script, Link]:
    play = open_script(script())
    session = begin_script(play)
    if state is LinkState.ATTACH_SENT:
        link: Link = session.attach_receiver("a", source=Source(address="q"))
    else:
        play >> peer_attach("a", 0, Role.SENDER)
        link = play.event(AttachReceived).link
        if state is not LinkState.ATTACH_RCVD:
            link.accept()
        if state in (LinkState.DETACH_SENT, LinkState.DETACHED):
            link.detach()
        play.take()
        if state in (LinkState.DETACH_RCVD, LinkState.DETACHED):
            play >> Detach(handle=0, closed=True)
    play.take()
    play.events()
    assert link.state is state
    return play, link


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize("state", list(LinkState), ids=names)
@pytest.mark.parametrize("given", list(LinkInput), ids=names)
def test_link_takes_what_its_table_has_and_nothing_else(script, state, given):
    play, link = link_in(script, state)
    expected = LINK_TABLE.get((state, given))
    if given is LinkInput.SEND_ATTACH:
        if state is LinkState.ATTACH_RCVD:
            link.accept()
            assert link.state is LinkState.ATTACHED
            play.take()
    elif given is LinkInput.RECV_ATTACH:
        if state is LinkState.ATTACH_SENT:
            play >> peer_attach("a", 0, Role.SENDER)
            assert link.state is LinkState.ATTACHED
    elif given is LinkInput.RECV_DETACH:
        play >> Detach(handle=0, closed=True)
        if expected is None:
            play << like(End, error=condition("amqp:session:unattached-handle"))
        else:
            assert link.state is expected
    else:
        link.detach()
        output = play.take()
        if expected is not None:
            assert link.state is expected
            assert isinstance(output[-1].body, Detach)
        elif state is LinkState.ATTACH_RCVD:
            assert link.state is LinkState.DETACH_SENT and len(output) == 2
        else:
            assert link.state is state and output == []
