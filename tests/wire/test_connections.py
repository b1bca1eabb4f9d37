"""Headers, open and close as a peer of the running broker sees them (AMQP 1.0 §2.2 to §2.4)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    begin_frame,
    close_frame,
    disposition_frame,
    end_frame,
    flow_frame,
    frame,
    open_frame,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import TRUE, binary, composite, data_section, symbol, uint
from tests.wire.control import ACCEPTED, waiting

EMPTY = frame(b"")
FRAMING = "amqp:connection:framing-error"

UNKNOWN = {
    "0.9.1": b"AMQP\x00\x00\x09\x01",
    "0.2.0": b"AMQP\x00\x00\x02\x00",
    "1.0.1": b"AMQP\x00\x01\x00\x01",
    "2.0.0": b"AMQP\x00\x02\x00\x00",
    "protocol-9": b"AMQP\x09\x01\x00\x00",
    "http": b"GET / HT",
    "zeros": bytes(8),
}


@pytest.mark.spec("2.2")
def test_a_known_header_is_answered_with_itself_and_the_open_follows(broker: Broker) -> None:
    with Client(broker.port) as client:
        assert client.send(AMQP_HEADER).take(8) == AMQP_HEADER
        client.send(open_frame())
        opened = client.expect("open")
        assert opened.channel == 0
        client.close()


@pytest.mark.spec("2.2")
@pytest.mark.parametrize("header", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_header_is_answered_with_a_known_one_and_the_end(
    broker: Broker, header: bytes
) -> None:
    with Client(broker.port) as client:
        client.send(header)
        assert client.take(8) in (AMQP_HEADER, SASL_HEADER)
        # The broker reads on, whatever comes, and says no more.
        client.send(open_frame())
        assert client.take(1) == b""
    broker.check()


@pytest.mark.spec("2.4.2")
def test_a_peer_that_pipelines_is_served_as_one_that_waits(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(), begin_frame(), end_frame(), begin_frame())
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        assert client.expect("begin").field(0) == 0
        client.expect("end")
        assert client.expect("begin").field(0) == 0
        client.close()


@pytest.mark.spec("2.4.3")
def test_what_comes_in_one_write_with_the_close_counts(broker: Broker, address: str) -> None:
    section = data_section(b"in time")
    with Client(broker.port) as client:
        sent = transfer_frame(section, 0, uint(0), binary(b"t"), settled=TRUE)
        client.begin().sender(address).send(sent, close_frame())
        client.expect("close", "flow", "empty")
    with Client(broker.port) as client:
        client.begin().receiver(address)
        (arrived,) = client.arrivals(1)
        assert arrived.payload == section
        number = arrived.field(1)
        assert isinstance(number, int)
        client.send(disposition_frame(number, settled=TRUE, state=ACCEPTED), close_frame())
        client.expect("close", "flow", "empty")
    assert waiting(broker.port, address) == []


@pytest.mark.spec("2.4.2")
def test_an_open_and_a_close_in_one_write_without_a_session(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(), close_frame())
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        assert client.expect("close").channel == 0
        assert client.take(1) == b""


@pytest.mark.spec("2.3.2")
def test_an_extended_header_is_skipped(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.open()
        body = begin_frame()[8:]
        client.send(frame(body, doff=7, size=8 + 20 + len(body))[:8] + b"\xff" * 20 + body)
        client.expect("begin")
        client.close()


@pytest.mark.spec("2.4.3")
@pytest.mark.parametrize("channel", [0, 1, 100])
def test_a_close_on_any_channel_is_answered_on_channel_0(broker: Broker, channel: int) -> None:
    with Client(broker.port) as client:
        client.begin().send(close_frame(channel))
        assert client.expect("close", "empty").channel == 0
        # Not a byte follows.
        assert client.take(1) == b""


@pytest.mark.spec("2.4.5")
@pytest.mark.parametrize("channel", [0, 1, 500])
def test_an_empty_frame_on_any_channel_changes_nothing(broker: Broker, channel: int) -> None:
    with Client(broker.port) as client:
        client.open().send(frame(b"", channel) * 3, begin_frame())
        client.expect("begin")
        client.close()


@pytest.mark.spec("2.4.6")
@pytest.mark.parametrize(
    "behind",
    [begin_frame(5), transfer_frame(b"x", 3), EMPTY, frame(composite(0x99, []))],
    ids=["begin", "transfer", "empty", "no-performative"],
)
def test_what_comes_behind_an_error_has_no_answer_until_the_close(
    broker: Broker, behind: bytes
) -> None:
    with Client(broker.port) as client:
        client.begin().send(frame(b"", 60_000), behind)
        closed = client.expect("close", "empty")
        assert closed.channel == 0
        error = closed.error()
        assert error is not None and error[0] == FRAMING and error[1]
        # The broker reads on until it is answered, and writes nothing.
        client.send(behind, close_frame())
        assert client.take(1) == b""
    broker.check()


@pytest.mark.spec("2.4.4")
def test_two_closes_that_cross_end_the_connection(broker: Broker) -> None:
    with Client(broker.port) as client:
        # The broker's close is due to the first frame, and meets the one behind it.
        client.begin().send(frame(b"", 60_000), close_frame())
        client.expect("close", "empty")
        assert client.take(1) == b""
    broker.check()


@pytest.mark.spec("2.7.1")
def test_an_idle_time_out_that_cannot_be_kept_is_refused(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(idle_time_out=uint(1)))
        client.take(8)
        client.expect("open")
        closed = client.verdict()
        assert closed.scope == "connection" and closed.condition and closed.description
        client.close()


@pytest.mark.spec("2.7.1")
def test_an_idle_time_out_of_zero_is_none(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame(idle_time_out=uint(0)), begin_frame())
        client.take(8)
        client.expect("open")
        client.expect("begin")
        client.close()


@pytest.mark.spec("2.7.1")
def test_an_idle_peer_is_sent_empty_frames_on_channel_0(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.open(open_frame(idle_time_out=uint(1000)))
        assert client.expect("empty").channel == 0
        client.close()


@pytest.mark.spec("2.7.1")
def test_no_frame_is_larger_than_the_peer_takes(broker: Broker, address: str) -> None:
    with Client(broker.port) as client:
        client.begin().sender(address).publish([b"\x00\x53\x75\xb0\x00\x00\x27\x10" + bytes(10000)])
        client.close()
    with Client(broker.port) as client:
        client.open(open_frame(max_frame_size=512)).send(begin_frame())
        client.expect("begin")
        client.receiver(address)
        frames = [client.expect("transfer", "flow")]
        while frames[-1].field(5) is True:
            frames.append(client.expect("transfer"))
        # The raw peer's decoder has no need of sizes: what is around the payload is under 60 bytes.
        assert all(len(one.payload) <= 512 - 8 for one in frames)
        assert sum(len(one.payload) for one in frames) == 10_008
        first, *later = frames
        assert first.field(1) is not None and first.field(2) is not None
        assert first.field(3) == 0
        assert all(one.field(1) in (None, first.field(1)) for one in later)
        client.close()


@pytest.mark.spec("2.7.1")
def test_a_frame_above_the_limit_costs_the_connection(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.send(AMQP_HEADER, open_frame())
        client.take(8)
        limit = client.expect("open").field(2)
        assert isinstance(limit, int)
        client.send(frame(b"", size=limit + 1))
        assert client.verdict()[:2] == ("connection", FRAMING)
        client.close()


@pytest.mark.spec("2.8.14")
def test_conditions_of_the_peer_are_taken_as_they_are(broker: Broker) -> None:
    error = composite(0x1D, [symbol("com.example:unheard-of")])
    with Client(broker.port) as client:
        client.begin().send(frame(composite(0x17, [error])))
        client.expect("end", "empty")
        client.send(frame(composite(0x18, [error])))
        client.expect("close", "empty")
        assert client.take(1) == b""
    broker.check()


@pytest.mark.spec("2.5.1")
def test_sessions_come_and_go_on_channels_of_both_sides(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.open()
        for channel, remote in ((7, 0), (3, 1), (9, 2)):
            client.send(begin_frame(channel))
            begun = client.expect("begin", "empty")
            # The lowest free channel, and whose begin it answers.
            assert (begun.channel, begun.field(0)) == (remote, channel)
        client.send(end_frame(3))
        assert client.expect("end", "empty").channel == 1
        # Both channels are free again, the others are untouched.
        client.send(begin_frame(3))
        begun = client.expect("begin", "empty")
        assert (begun.channel, begun.field(0)) == (1, 3)
        client.send(flow_frame(channel=7, echo=b"\x41"))
        assert client.expect("flow", "empty").channel == 0
        client.close()


@pytest.mark.spec("2.5.4")
@pytest.mark.parametrize(
    "behind",
    [transfer_frame(b"x", 3), flow_frame(uint(99)), transfer_frame(b"x", 0, uint(3), binary(b"t"))],
    ids=["transfer", "flow", "whole"],
)
def test_what_comes_behind_a_session_error_vanishes(broker: Broker, behind: bytes) -> None:
    with Client(broker.port) as client:
        client.begin().send(flow_frame(uint(99)), behind)
        ended = client.expect("end", "empty")
        error = ended.error()
        assert error is not None and error[0] == "amqp:session:unattached-handle" and error[1]
        client.send(behind, end_frame(), begin_frame())
        # The channel is free with the peer's end, and the connection as it was.
        client.expect("begin", "empty")
        client.close()


@pytest.mark.spec("2.5.3")
def test_two_ends_that_cross_answer_each_other(broker: Broker) -> None:
    with Client(broker.port) as client:
        client.begin().send(flow_frame(uint(99)), end_frame(), begin_frame())
        client.expect("end", "empty")
        # Not a second end: the channel is free, and a session begins on it.
        client.expect("begin", "empty")
        client.close()
