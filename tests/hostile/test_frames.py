"""What is no frame, or not the frame that belongs there (AMQP 1.0 §2.3, §2.4, §5.3)."""

from __future__ import annotations

import struct

import pytest

from tests.hostile.site import Site
from tests.raw.client import Client, Verdict
from tests.raw.frames import (
    AMQP_HEADER,
    MAX32,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    attach_frame,
    begin_frame,
    close_frame,
    flow_frame,
    frame,
    open_frame,
    sasl_init,
    sasl_response,
    target,
)
from tests.raw.process import MIB
from tests.raw.values import binary, composite, described, string, symbol

FRAMING = "amqp:connection:framing-error"
# Code of a SASL outcome: the client's mistake is not one that goes away (AMQP 1.0 §5.3.3.6).
SYS_PERM = "3"


def header(size: int, doff: int = 2, kind: int = 0, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", size, doff, kind, channel)


MALFORMED = {
    **{f"size-{size}": header(size) for size in range(8)},
    "size-2^31": header(1 << 31),
    "size-2^32-1": header(MAX32),
    "doff-0": header(8, doff=0),
    "doff-1": header(8, doff=1),
    "doff-past-the-end": header(8, doff=3),
    "doff-255": header(1019, doff=255) + bytes(1011),
    "type-2": header(8, kind=2),
    "type-255": header(8, kind=255),
    "sasl-in-amqp": sasl_init(),
}


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("stage", ["open", "begun"])
def test_what_is_no_frame_costs_the_connection(site: Site, stage: str, malformed: bytes) -> None:
    with site.client() as client:
        if stage == "open":
            client.open()
        else:
            client.begin()
        verdict = client.send(malformed).verdict()
        assert (verdict.scope, verdict.condition) == ("connection", FRAMING)
        assert "are expected here" in verdict.description
        client.close()


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_frame_in_place_of_the_open(site: Site, malformed: bytes) -> None:
    """A close must follow an open (AMQP 1.0 §2.4.3)."""
    with site.client() as client:
        client.send(AMQP_HEADER, malformed)
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        assert client.verdict()[:2] == ("connection", FRAMING)
        client.close()


SASL_MALFORMED = {
    **{f"size-{size}": header(size, kind=1) for size in range(8)},
    "size-8193": header(8193, kind=1),
    "size-2^32-1": header(MAX32, kind=1),
    "doff-1": header(8, doff=1, kind=1),
    "doff-past-the-end": header(8, doff=3, kind=1),
    "amqp-frame": open_frame(),
    "empty": header(8, kind=1),
    "amqp-performative": frame(composite(OPEN, [string("c")]), kind=1),
    "unknown-performative": frame(composite(0x4F, []), kind=1),
    "no-performative": frame(string("init"), kind=1),
    "bytes-behind": frame(composite(SASL_INIT, [symbol("ANONYMOUS")]) + b"\x40", kind=1),
    "not-a-list": frame(described(SASL_INIT, string("ANONYMOUS")), kind=1),
    "a-response-first": sasl_response(b""),
    "the-servers-frame": frame(composite(0x44, [b"\x50\x00"]), kind=1),
}


@pytest.mark.spec("5.3.1")
@pytest.mark.parametrize("malformed", SASL_MALFORMED.values(), ids=SASL_MALFORMED)
def test_what_does_not_belong_into_the_sasl_layer(site: Site, malformed: bytes) -> None:
    with site.client() as client:
        client.send(SASL_HEADER, malformed)
        assert client.take(8) == SASL_HEADER
        assert client.verdict() == Verdict("sasl", SYS_PERM)
        assert client.ended()


@pytest.mark.spec("5.3.1")
def test_a_sasl_performative_in_an_amqp_frame(site: Site) -> None:
    with site.client() as client:
        client.open().send(frame(composite(SASL_INIT, [symbol("ANONYMOUS"), binary(b"")])))
        assert client.verdict()[:2] == ("connection", "amqp:decode-error")
        client.close()


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("layer", [SASL_HEADER, AMQP_HEADER], ids=["sasl", "amqp"])
def test_a_frame_above_8_kib_is_refused_by_its_header(site: Site, layer: bytes) -> None:
    """Nobody is known yet: what a frame says is its size is not believed, let alone allocated."""
    kind = 1 if layer == SASL_HEADER else 0
    with site.client() as client:
        client.send(layer, header(8193, kind=kind))
        assert client.take(8) == layer
        if kind == 0:
            client.expect("open")
        assert client.verdict()[0] in ("sasl", "connection")


def test_headers_that_announce_much_take_no_memory(site: Site) -> None:
    """A hundred connections at a time that say they will send 4 GiB."""
    site.broker.forget_peak()
    before = site.broker.memory()

    def announce() -> None:
        clients = [site.client() for _ in range(50)]
        try:
            for number, client in enumerate(clients):
                sasl = number % 2 == 0
                layer = SASL_HEADER if sasl else AMQP_HEADER
                client.send(layer, header(MAX32, kind=1 if sasl else 0))
            for client in clients:
                client.take(8)
                assert client.verdict().scope in ("sasl", "connection")
        finally:
            for client in clients:
                client.socket.close()

    site.endures(announce)
    assert site.broker.peak() < before + 16 * MIB


@pytest.mark.spec("2.4.1")
def test_an_open_pipelined_behind_the_login_is_read_when_that_is_good(site: Site) -> None:
    with site.client() as client:
        client.send(SASL_HEADER, sasl_init(), AMQP_HEADER, open_frame(), begin_frame())
        assert client.take(8) == SASL_HEADER
        client.expect("sasl-mechanisms")
        assert client.expect("sasl-outcome").field(0) == 0
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        client.expect("begin")
        client.close()


@pytest.mark.spec("5.3.2")
def test_an_open_in_place_of_the_login_is_refused(site: Site) -> None:
    """The AMQP layer has not begun: its header is no SASL frame."""
    with site.client() as client:
        client.send(SASL_HEADER, AMQP_HEADER, open_frame())
        assert client.take(8) == SASL_HEADER
        assert client.verdict() == Verdict("sasl", SYS_PERM)
        assert client.ended()


OUT_OF_PLACE = {
    "begin-before-the-open": (begin_frame(), "amqp:illegal-state"),
    "close-before-the-open": (close_frame(), "amqp:illegal-state"),
    "empty-frame-before-the-open": (frame(b""), "amqp:illegal-state"),
    "open-on-channel-1": (open_frame(channel=1), FRAMING),
    "open-with-frames-of-511": (open_frame(max_frame_size=511), "amqp:invalid-field"),
}


@pytest.mark.spec("2.4.1")
@pytest.mark.parametrize(("said", "condition"), OUT_OF_PLACE.values(), ids=OUT_OF_PLACE)
def test_what_cannot_be_said_instead_of_an_open(site: Site, said: bytes, condition: str) -> None:
    with site.client() as client:
        client.send(AMQP_HEADER, said)
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        assert client.verdict()[:2] == ("connection", condition)
        client.close()


AFTER_THE_OPEN = {
    "second-open": (open_frame(), "amqp:illegal-state"),
    "second-begin": (begin_frame(0), "amqp:illegal-state"),
    "begin-beyond-channel-max": (begin_frame(2048), FRAMING),
    "empty-frame-beyond-channel-max": (frame(b"", 2048), FRAMING),
    "attach-beyond-channel-max": (
        attach_frame("s", target=target(string("q")), channel=65535),
        FRAMING,
    ),
    "flow-on-an-unknown-channel": (flow_frame(channel=7), FRAMING),
    "begin-in-answer-to-nothing": (begin_frame(1, b"\x60\x00\x07"), "amqp:not-found"),
    "bytes-behind-the-performative": (
        frame(composite(0x17, []) + b"\x40"),
        FRAMING,
    ),
}


@pytest.mark.spec("2.7.1")
@pytest.mark.parametrize(("said", "condition"), AFTER_THE_OPEN.values(), ids=AFTER_THE_OPEN)
def test_what_cannot_be_said_in_a_session(site: Site, said: bytes, condition: str) -> None:
    with site.client() as client:
        client.begin().send(said)
        assert client.verdict()[:2] == ("connection", condition)
        client.close()


def test_malformed_frames_leave_nothing_behind(site: Site) -> None:
    def attack() -> None:
        for malformed in MALFORMED.values():
            with site.client() as client:
                client.begin().send(malformed).verdict()
        for malformed in SASL_MALFORMED.values():
            with site.client() as client:
                client.send(SASL_HEADER, malformed)
                client.take(8)
                client.verdict()

    site.endures(attack)


def test_a_header_byte_by_byte(site: Site) -> None:
    """Whole frames in single bytes: nothing is refused, nothing is read twice."""
    with site.client() as client:
        for byte in AMQP_HEADER + open_frame() + begin_frame():
            client.send(bytes((byte,)))
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        client.expect("begin")
        client.close()


def test_a_client_that_goes_in_the_middle_of_a_frame(site: Site) -> None:
    def attack() -> None:
        with Client(site.port) as client:
            client.begin().send(attach_frame("s", target=target(string("q")))[:-5])
            client.half_close()
            while client.read() is not None:
                pass

    site.endures(attack)
