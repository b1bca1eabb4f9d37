"""What a trace tells of frames, whole and broken."""

from __future__ import annotations

import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ferrymq.tracing.scanner import MOST_HELD
from ferrymq.tracing.trace import Trace
from ferrymq_codec.scalars import Symbol
from ferrymq_types.messaging import (
    AmqpValue,
    Data,
    Header,
    MessageAnnotations,
    Properties,
    Source,
    Target,
)
from ferrymq_types.transport import Attach, Begin, Close, Error, Open, Role, Transfer
from tests.broker.harness import encode
from tests.support.script import AMQP_HEADER, TLS_HEADER, frame, on
from tests.trace.streams import stream, told

MESSAGE = encode(
    Header(durable=True),
    MessageAnnotations(value={"x-opt-a": 1, "x-opt-b": 2}),
    Properties(message_id="one", subject="s"),
    Data(value=b"hello"),
)
SENDER = Attach(
    name="in",
    handle=0,
    role=Role.SENDER,
    source=Source(),
    target=Target(address="queue", capabilities=["queue"]),
    initial_delivery_count=0,
)


def transfer(**fields: object) -> Transfer:
    return Transfer(handle=0, delivery_id=0, delivery_tag=b"t", **fields)  # type: ignore[arg-type]


def test_frames_are_told_with_their_fields_by_name() -> None:
    data = stream(
        AMQP_HEADER,
        Open(container_id="me", max_frame_size=512, properties={"product": Symbol("x")}),
        on(3, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=2)),
        on(3, SENDER),
        on(3, transfer(), MESSAGE),
        b"\0\0\0\x08\2\0\0\0",
        Close(error=Error(condition="amqp:not-allowed", description="no")),
    )
    assert told(data) == [
        "-> header AMQP 1.0.0",
        "-> [0] open(container-id='me', max-frame-size=512, properties={'product': :x})",
        "-> [3] begin(next-outgoing-id=0, incoming-window=1, outgoing-window=2)",
        "-> [3] attach(name='in', handle=0, role=sender, source=source(), "
        "target=target(address='queue', capabilities=['queue']), initial-delivery-count=0)",
        f"-> [3] transfer(handle=0, delivery-id=0, delivery-tag=b't') + {len(MESSAGE)} bytes\n"
        "      header(durable=true, delivery-count=0)\n"
        "      message-annotations(entries=2)\n"
        "      properties(message-id='one', subject='s')\n"
        "      data(bytes=5)",
        "-> [0] empty",
        "-> [0] close(error=error(condition='amqp:not-allowed', description='no'))",
    ]


def test_messages_are_shown_when_asked_for_and_put_together_from_their_frames() -> None:
    half = len(MESSAGE) // 2
    first = stream(on(1, transfer(more=True), MESSAGE[:half]))
    rest = stream(on(1, Transfer(handle=0), MESSAGE[half:]))
    lines = told(first, rest, full=True)
    assert lines[0].endswith(f"+ {half} bytes")
    assert "data(value=b'hello')" in lines[1]
    assert "message-annotations(value={'x-opt-a': 1, 'x-opt-b': 2})" in lines[1]


def test_lines_of_json() -> None:
    data = stream(AMQP_HEADER, on(3, SENDER), on(3, transfer(), MESSAGE))
    header, attach, sent = map(json.loads, told(data, as_json=True))
    assert header == {"direction": "->", "offset": 0, "header": "AMQP", "version": "1.0.0"}
    assert (attach["frame"], attach["channel"], attach["offset"]) == ("attach", 3, 8)
    assert attach["fields"]["target"]["address"] == "queue"
    assert (sent["payload"], sent["message-size"]) == (len(MESSAGE), len(MESSAGE))
    assert sent["message"][-1] == {"type": "data", "bytes": 5}


def test_what_is_no_frame_is_named_and_the_next_frame_found() -> None:
    good = stream(Open(container_id="me"))
    for junk, reason in (
        (b"\xff" * 50, "no frame has 4294967295 bytes, at byte 0, 50 bytes skipped"),
        (b"\0\0\0\x07\2\0\0\0", "no frame has 7 bytes, at byte 0, 8 bytes skipped"),
        (frame(b"", doff=1), "data offset 1 in a frame of 8 bytes"),
        (frame(b"", type=7), "frame type 7 is unknown"),
    ):
        broken, found, *more = told(junk + good)
        assert reason in broken
        assert "open(container-id='me')" in found
        assert more == []


def test_a_body_that_is_no_performative_costs_only_its_frame() -> None:
    lines = told(stream(frame(b"\0\x53\x10\xc0\x03\x01\x50\x05"), Close()))
    assert "[0] ! not a performative: open.container-id: expected string" in lines[0]
    assert "at byte 14" in lines[0]
    assert lines[1:] == ["-> [0] close()"]


def test_a_message_that_cannot_be_read_is_told_as_far_as_it_can() -> None:
    (line,) = told(stream(on(1, transfer(), encode(Header()) + b"\0\x53\x75\xff")))
    assert "header(delivery-count=0)" in line and "! data" in line


def test_a_stream_that_is_cut_off_says_so() -> None:
    assert told(stream(Close())[:-1])[-1].startswith("-> ! the stream ends in the middle")


def test_what_follows_a_tls_header_is_not_guessed_at() -> None:
    lines = told(TLS_HEADER + b"\x16\x03\x01" + b"\xff" * 100, b"\xff" * 100)
    assert lines == [
        "-> header TLS 1.0.0",
        "-> ! TLS begins here; what is inside cannot be read, at byte 8",
    ]


def test_nothing_that_a_terminal_obeys_is_printed() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\r\n"
    body = encode(AmqpValue(value={evil: evil, Symbol("\x1b"): b"\x1b"}))
    data = stream(Open(container_id=evil, hostname=evil), on(1, transfer(), body))
    for as_json in (False, True):
        for line in told(data, full=True, as_json=as_json):
            assert all(part.isprintable() for part in line.split("\n"))


@given(st.lists(st.integers(1, 60), max_size=30))
def test_where_the_bytes_were_cut_makes_no_difference(cuts: list[int]) -> None:
    data = stream(AMQP_HEADER, Open(container_id="me"), b"rubbish", on(1, transfer(), MESSAGE))
    pieces = []
    at = 0
    for cut in cuts:
        pieces.append(data[at : at + cut])
        at += cut
    assert told(*pieces, data[at:]) == told(data)


def test_memory_is_bounded_whatever_a_frame_says_its_size_is() -> None:
    size = 16 << 20
    start = stream(on(1, transfer(), b""))
    trace = Trace()
    tracemalloc.start()
    lines = list(trace.feed("->", size.to_bytes(4, "big") + start[4:]))
    piece = bytes(1 << 16)
    left = size - len(start)
    while left:
        lines += trace.feed("->", piece[:left])
        left -= min(left, len(piece))
    lines += trace.feed("->", stream(Close()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MOST_HELD
    assert f"+ {size - len(start)} bytes" in lines[0]
    assert lines[1:] == ["-> [0] close()"]


def test_thousands_of_millions_of_elements_without_bytes_are_counted_and_not_listed() -> None:
    body = b"\0\x53\x77\xf0\0\0\0\x05\xff\xff\xff\xff\x41"
    (line,) = told(stream(on(1, transfer(), body)), full=True)
    assert "amqp-value(value=array-of-boolean(count=4294967295, each=[true]))" in line
