"""Contents: a method, a header frame and body frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrymq.engine.unfinished import Budget
from ferrymq_codec.errors import EncodeError
from ferrymq_rabbitmq.amqp_0_9_1.engine.engine_events import ContentReceived
from ferrymq_types_0_9_1.basic import (
    BasicCancel,
    BasicDeliver,
    BasicProperties,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from ferrymq_types_0_9_1.channel import ChannelClose, ChannelCloseOk, ChannelOpen
from ferrymq_types_0_9_1.connection import ConnectionClose
from tests.rabbitmq.engine_0_9_1.client import (
    EngineClient,
    body,
    frame,
    header,
    pipelined,
    publication,
)

PUBLISH = frame(1, BasicPublish(routing_key="q"))


def bodies(client: EngineClient) -> list[bytes]:
    return [event.body for event in client.events if isinstance(event, ContentReceived)]


@pytest.mark.parametrize("size", [0, 1, 8184, 8185, 50_000])
def test_bodies_of_all_sizes(size: int) -> None:
    client = EngineClient().opened().give(publication(1, bytes(size)))
    assert bodies(client) == [bytes(size)]


def test_a_client_may_leave_the_envelope_out_of_account() -> None:
    client = EngineClient().opened().give(PUBLISH + header(1, 8192) + body(1, bytes(8192), 8200))
    assert bodies(client) == [bytes(8192)]


def test_a_method_that_cannot_be_encoded_leaves_no_half_frame() -> None:
    client = EngineClient().opened()
    with pytest.raises(EncodeError):
        client.engine.send_content(1, BasicDeliver(routing_key="k" * 256), b"\0\0", b"x")
    with pytest.raises(EncodeError):
        client.engine.send_method(1, BasicCancel(consumer_tag="t" * 256))
    assert not client.engine.has_output


def test_properties_without_a_body_are_bounded() -> None:
    shared = Budget()
    client = EngineClient(max_unfinished=10_000, unfinished=shared).opened()
    long = BasicProperties(headers={"a": "x" * 7000})
    client.give(frame(2, ChannelOpen()))
    for channel in (1, 2):
        client.give(frame(channel, BasicPublish()) + header(channel, 1, properties=long))
    assert client.names()[-1] == "ConnectionEnded" and shared.held == 0


def test_the_engine_splits_what_it_writes() -> None:
    client = EngineClient().opened()
    client.engine.send_content(1, BasicDeliver(consumer_tag="t"), b"\0\0", bytes(20_000))
    output = client.engine.data_to_send()
    sizes, at = [], 0
    while at < len(output):
        sizes.append(int.from_bytes(output[at + 3 : at + 7], "big") + 8)
        at += sizes[-1]
    assert len(sizes) == 5 and max(sizes) == 8192


@given(st.lists(st.integers(1, 700), max_size=30), st.integers(1, 3))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts: list[int], channel: int) -> None:
    whole = pipelined(channel=channel) + publication(channel, b"a" * 500)
    whole += frame(channel, BasicQos()) + publication(channel, b"")
    expected = EngineClient().give(whole)
    client = EngineClient()
    at = 0
    for cut in [*cuts, len(whole)]:
        client.give(whole[at : at + cut])
        at += cut
    assert client.names() == expected.names() and bodies(client) == bodies(expected)
    assert client.output == expected.output


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (PUBLISH + frame(1, BasicQos()), 505),
        (PUBLISH + PUBLISH, 505),
        (PUBLISH + body(1, b"x"), 505),
        (PUBLISH + header(1, 5, class_id=50), 505),
        (PUBLISH + header(1, 2) + header(1, 2), 505),
        (PUBLISH + header(1, 2) + body(1, b"xyz"), 501),
        (header(1, 2), 505),
        (body(1, b"x"), 505),
        (header(0, 2), 505),
        (publication(2, b"x"), 504),
    ],
)
def test_frames_in_a_wrong_order_end_the_connection(frames: bytes, code: int) -> None:
    client = EngineClient().opened().give(frames)
    ((channel, close),) = client.methods()
    assert channel == 0 and isinstance(close, ConnectionClose) and close.reply_code == code
    assert client.names()[-1] == "ConnectionEnded" and bodies(client) == []


def test_a_message_that_is_too_large_closes_its_channel_and_is_discarded() -> None:
    client = EngineClient(max_message_size=10).opened()
    client.give(publication(1, bytes(11)) + publication(1, b"x"))
    ((channel, close),) = client.methods()
    assert isinstance(close, ChannelClose) and (channel, close.reply_code) == (1, 406)
    assert (close.class_id, close.method_id) == (60, 40)
    assert client.names() == ["ChannelClosed"]
    client.forget()
    client.give(frame(1, ChannelCloseOk()) + pipelined()[-13:] + publication(1, b"y"))
    assert client.names() == ["ChannelOpened", "ContentReceived"]


@pytest.mark.parametrize(
    "wrong",
    [
        publication(1, bytes(11)),
        header(1, 2),
        PUBLISH + PUBLISH,
        b"\x01\x00\x01\x00\x00\x00\x04\x00\x63\x00\x0a\xce",
        b"\x07\x00\x01\x00\x00\x00\x00\xce",
    ],
    ids=["too large", "no method", "a method", "unknown method", "unknown frame"],
)
def test_what_came_before_a_fault_is_answered_first(wrong: bytes) -> None:
    client = EngineClient(max_message_size=10).opened()
    client.engine.receive_data(publication(1, b"x") + frame(1, BasicQos()) + wrong, 0.0)
    first = client.engine.take_events()
    assert [type(event).__name__ for event in first] == ["ContentReceived", "MethodReceived"]
    client.engine.send_method(1, BasicQosOk())
    client.take()
    (ended,) = client.names()
    assert ended in ("ChannelClosed", "ConnectionEnded")
    answer, close = client.written()
    assert answer == "basic.qos-ok" and close in ("channel.close", "connection.close")


def test_incomplete_messages_are_bounded_and_forgotten_with_their_channels() -> None:
    shared = Budget()
    client = EngineClient(max_unfinished=10_000, unfinished=shared).opened()
    client.give(PUBLISH + header(1, 50_000) + body(1, bytes(8000)))
    # The properties count as well: here their flags.
    assert shared.held == 8002
    client.give(body(1, bytes(8000)))
    assert client.names() == ["ConnectionEnded"] and shared.held == 0
    client = EngineClient(unfinished=shared).opened()
    client.give(PUBLISH + header(1, 50_000) + body(1, bytes(8000)))
    client.give(frame(1, ChannelClose()))
    # A method in the middle of a content is a fault of the connection.
    assert client.names() == ["ConnectionEnded"] and shared.held == 0
