"""The state tables: each state with each input, as the table says and as the engine does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ferrymq_codec_0_9_1.frames import PROTOCOL_HEADER
from ferrymq_codec_0_9_1.method import Method
from ferrymq_rabbitmq.amqp_0_9_1.engine import server_states as states
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import (
    ClosedByPeer,
    ConnectionEnded,
    EngineEvent,
)
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_connection import ServerConnection
from ferrymq_rabbitmq.amqp_0_9_1.engine.server_states import (
    CHANNEL_INPUTS,
    CHANNEL_STATES,
    CHANNEL_TABLE,
    CONNECTION_INPUTS,
    CONNECTION_STATES,
    CONNECTION_TABLE,
    Transition,
)
from ferrymq_types_0_9_1.basic import BasicDeliver, BasicPublish, BasicQos
from ferrymq_types_0_9_1.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from ferrymq_types_0_9_1.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionSecureOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
)
from tests.rabbitmq.engine_0_9_1.client import LOGIN, EngineClient, body, frame, header, settings

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "engine-0-9-1.md"
SECRET: Final = frame(0, ConnectionUpdateSecret(new_secret=b"new"))
BEATS: Final = b"\x08\x00\x01\x00\x00\x00\x00\xce"


# -- connections -------------------------------------------------------------------------


def end_transport(engine: ServerConnection) -> None:
    engine.receive_eof(1.0)


CONNECTION_DOES: Final[dict[str, bytes | Callable[[ServerConnection], None]]] = {
    "RECV_HEADER": PROTOCOL_HEADER,
    "RECV_OTHER_HEADER": b"AMQP\x00\x01\x00\x00",
    "RECV_START_OK": frame(0, LOGIN),
    "RECV_SECURE_OK": frame(0, ConnectionSecureOk()),
    "RECV_TUNE_OK": frame(0, ConnectionTuneOk()),
    "RECV_OPEN": frame(0, ConnectionOpen(virtual_host="/")),
    "RECV_UPDATE_SECRET": SECRET,
    "RECV_CLOSE": frame(0, ConnectionClose(reply_code=200)),
    "RECV_CLOSE_OK": frame(0, ConnectionCloseOk()),
    "RECV_OTHER_METHOD": frame(0, BasicQos()),
    "RECV_CONTENT": header(0, 1),
    "RECV_CHANNEL_FRAME": frame(1, ChannelOpen()),
    "SEND_SECURE": lambda engine: engine.challenge(b"who?"),
    "SEND_TUNE": lambda engine: engine.accept_login(),
    "SEND_OPEN_OK": lambda engine: engine.open_ok(),
    "SEND_UPDATE_SECRET_OK": lambda engine: engine.accept_secret(),
    "SEND_CLOSE": lambda engine: engine.close(320, "going"),
    "END": end_transport,
}
# What leads to each state from the one above it.
PATH: Final[dict[str, tuple[str, ...]]] = {
    "EXPECT_HEADER": (),
    "EXPECT_START_OK": ("RECV_HEADER",),
    "EXPECT_LOGIN": ("RECV_HEADER", "RECV_START_OK"),
    "EXPECT_SECURE_OK": ("RECV_HEADER", "RECV_START_OK", "SEND_SECURE"),
    "EXPECT_TUNE_OK": ("RECV_HEADER", "RECV_START_OK", "SEND_TUNE"),
    "EXPECT_OPEN": ("RECV_HEADER", "RECV_START_OK", "SEND_TUNE", "RECV_TUNE_OK"),
}
PATH["EXPECT_HOST"] = (*PATH["EXPECT_OPEN"], "RECV_OPEN")
PATH["OPENED"] = (*PATH["EXPECT_HOST"], "SEND_OPEN_OK")
PATH["EXPECT_SECRET"] = (*PATH["OPENED"], "RECV_UPDATE_SECRET")
PATH["EXPECT_CLOSE_OK"] = (*PATH["OPENED"], "SEND_CLOSE")
PATH["ENDED"] = (*PATH["EXPECT_CLOSE_OK"], "RECV_CLOSE_OK")
# In these the user decides, and nothing is read.
DECIDES: Final = ("EXPECT_LOGIN", "EXPECT_HOST", "EXPECT_SECRET")


def give(engine: ServerConnection, given: str) -> list[type[EngineEvent]]:
    does = CONNECTION_DOES[given]
    if isinstance(does, bytes):
        engine.receive_data(does, 0.0)
    else:
        does(engine)
    return [type(event) for event in engine.take_events()]


def connection_in(state: str) -> ServerConnection:
    engine = ServerConnection(settings(), 0.0)
    for given in PATH[state]:
        give(engine, given)
    engine.data_to_send()
    assert CONNECTION_STATES[engine.state] == state
    return engine


def written(data: bytes) -> list[tuple[int, Method]]:
    client = EngineClient()
    client.output = data
    return client.methods()


@pytest.mark.parametrize("state", CONNECTION_STATES)
@pytest.mark.parametrize("given", CONNECTION_INPUTS)
def test_a_connection_does_what_its_table_says(state: str, given: str) -> None:
    engine = connection_in(state)
    transition = CONNECTION_TABLE.get(
        (CONNECTION_STATES.index(state), CONNECTION_INPUTS.index(given))
    )
    events = give(engine, given)
    found = CONNECTION_STATES[engine.state]
    output = engine.data_to_send()
    if transition is None:
        if not given.startswith("RECV") or state in (*DECIDES, "ENDED"):
            # It is not read, or is a call at the wrong time.
            assert (found, events, output) == (state, [], b"")
        elif state == "EXPECT_HEADER":
            # Eight bytes of a frame are another header.
            assert found == "ENDED"
        else:
            # A header is no frame.
            assert found == ("ENDED" if state == "EXPECT_CLOSE_OK" else "EXPECT_CLOSE_OK")
    elif transition.code:
        ((channel, close),) = written(output)
        assert channel == 0 and isinstance(close, ConnectionClose)
        assert close.reply_code == transition.code
        assert (found, events) == ("EXPECT_CLOSE_OK", [ConnectionEnded])
    elif (state, given) == ("OPENED", "RECV_CHANNEL_FRAME"):
        assert found == "OPENED"
    else:
        assert found == CONNECTION_STATES[transition.state]
        assert events == told(transition)


def told(transition: Transition) -> list[type[EngineEvent]]:
    """The events of a transition, in their order."""
    events = [] if transition.event is None else [transition.event]
    return [*events, ConnectionEnded] if transition.event is ClosedByPeer else events


@pytest.mark.parametrize("state", CONNECTION_STATES)
def test_only_frames_that_are_not_read_are_not_in_the_table(state: str) -> None:
    """Each method and each frame has a place in each state that reads frames."""
    frames = {name for name in CONNECTION_INPUTS if name.startswith("RECV")} - {
        "RECV_HEADER",
        "RECV_OTHER_HEADER",
    }
    number = CONNECTION_STATES.index(state)
    there = {CONNECTION_INPUTS[given] for known, given in CONNECTION_TABLE if known == number}
    reads = state not in (*DECIDES, "EXPECT_HEADER", "ENDED")
    assert frames & there == (frames if reads else set())


# -- channels ----------------------------------------------------------------------------

CHANNEL_DOES: Final[dict[str, bytes | Callable[[ServerConnection], None]]] = {
    "RECV_CHANNEL_OPEN": frame(1, ChannelOpen()),
    "RECV_CHANNEL_CLOSE": frame(1, ChannelClose()),
    "RECV_CHANNEL_CLOSE_OK": frame(1, ChannelCloseOk()),
    "RECV_PUBLISH": frame(1, BasicPublish()),
    "RECV_METHOD": frame(1, BasicQos()),
    "RECV_WRONG_METHOD": frame(1, BasicDeliver()),
    "RECV_CONTENT_HEADER": header(1, 2),
    "RECV_CONTENT_BODY": body(1, b"x"),
    "RECV_HEARTBEAT": BEATS,
    # The whole body of the header that came before.
    "COMPLETE": body(1, b"xx"),
    "SEND_CHANNEL_CLOSE": lambda engine: engine.close_channel(1, 404, "no", None),
}
CHANNEL_PATH: Final[dict[str, tuple[str, ...]]] = {
    "UNOPENED": (),
    "CLOSING": ("RECV_CHANNEL_OPEN", "SEND_CHANNEL_CLOSE"),
    "OPEN": ("RECV_CHANNEL_OPEN",),
    "CONTENT_HEADER": ("RECV_CHANNEL_OPEN", "RECV_PUBLISH"),
    "CONTENT_BODY": ("RECV_CHANNEL_OPEN", "RECV_PUBLISH", "RECV_CONTENT_HEADER"),
}


def give_channel(engine: ServerConnection, given: str) -> list[type[EngineEvent]]:
    does = CHANNEL_DOES[given]
    if isinstance(does, bytes):
        engine.receive_data(does, 0.0)
    else:
        does(engine)
    return [type(event) for event in engine.take_events()]


def state_of_channel(engine: ServerConnection) -> str:
    channel = engine.channels.get(1)
    return CHANNEL_STATES[0 if channel is None else channel.state]


@pytest.mark.parametrize("state", CHANNEL_STATES)
@pytest.mark.parametrize("given", CHANNEL_INPUTS)
def test_a_channel_does_what_its_table_says(state: str, given: str) -> None:
    engine = connection_in("OPENED")
    for each in CHANNEL_PATH[state]:
        give_channel(engine, each)
    engine.data_to_send()
    assert state_of_channel(engine) == state
    transition = CHANNEL_TABLE.get((CHANNEL_STATES.index(state), CHANNEL_INPUTS.index(given)))
    if transition is None and given == "COMPLETE":
        # Only a frame of a content can make it complete.
        return
    events = give_channel(engine, given)
    output = written(engine.data_to_send())
    if transition is None:
        assert (state_of_channel(engine), events, output) == (state, [], [])
    elif transition.code:
        ((channel, close),) = output
        assert channel == 0 and isinstance(close, ConnectionClose)
        assert close.reply_code == transition.code
        assert events == [ConnectionEnded]
        assert CONNECTION_STATES[engine.state] == "EXPECT_CLOSE_OK"
    else:
        assert state_of_channel(engine) == CHANNEL_STATES[transition.state]
        assert events == ([] if transition.event is None else [transition.event])


def test_a_channel_has_a_step_for_each_frame_in_each_state() -> None:
    frames = [name for name in CHANNEL_INPUTS if name.startswith("RECV")]
    for state in range(len(CHANNEL_STATES)):
        assert all((state, CHANNEL_INPUTS.index(name)) in CHANNEL_TABLE for name in frames)


# -- the names, and the page -------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [CONNECTION_STATES, CONNECTION_INPUTS, CHANNEL_STATES, CHANNEL_INPUTS]
)
def test_the_names_are_those_of_the_numbers(names: tuple[str, ...]) -> None:
    assert [getattr(states, name) for name in names] == list(range(len(names)))
    assert len(CHANNEL_INPUTS) == states.INPUTS


@pytest.mark.parametrize(
    ("table", "names", "start"),
    [
        (CONNECTION_TABLE, CONNECTION_STATES, "EXPECT_HEADER"),
        (CHANNEL_TABLE, CHANNEL_STATES, "UNOPENED"),
    ],
)
def test_every_state_can_be_reached(
    table: dict[tuple[int, int], Transition], names: tuple[str, ...], start: str
) -> None:
    reached = {names.index(start)}
    moves = [
        (old, transition.state) for (old, _), transition in table.items() if not transition.code
    ]
    while more := {new for old, new in moves if old in reached} - reached:
        reached |= more
    assert reached == set(range(len(names)))


def rows(
    table: dict[tuple[int, int], Transition], names: tuple[str, ...], inputs: tuple[str, ...]
) -> list[str]:
    """The rows of the page: inputs that do the same are in one row."""
    found: dict[tuple[int, Transition], list[int]] = {}
    for (state, given), transition in table.items():
        found.setdefault((state, transition), []).append(given)
    return [
        f"| `{names[state]}` | {', '.join(f'`{inputs[each]}`' for each in given)} | "
        + (f"{transition.code} |" if transition.code else f"`{names[transition.state]}` |")
        + (f" `{transition.event.__name__}` |" if transition.event else " |")
        for (state, transition), given in sorted(found.items(), key=lambda item: item[0][0])
    ]


@pytest.mark.parametrize(
    ("table", "names", "inputs"),
    [
        (CONNECTION_TABLE, CONNECTION_STATES, CONNECTION_INPUTS),
        (CHANNEL_TABLE, CHANNEL_STATES, CHANNEL_INPUTS),
    ],
    ids=["connection", "channel"],
)
def test_the_page_has_the_tables(
    table: dict[tuple[int, int], Transition], names: tuple[str, ...], inputs: tuple[str, ...]
) -> None:
    wanted = "\n".join(rows(table, names, inputs))
    assert wanted in PAGE.read_text("utf-8"), f"the table of {PAGE.name} has to be:\n{wanted}"
