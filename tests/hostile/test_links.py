"""Handles, names and channels that are taken, unknown or too many (AMQP 1.0 §2.5, §2.6, §2.7.3)."""

from __future__ import annotations

import pytest

from tests.hostile.site import Site
from tests.raw.frames import (
    ATTACH,
    attach_frame,
    begin_frame,
    close_frame,
    detach_frame,
    end_frame,
    flow_frame,
    frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.values import (
    EMPTY_LIST,
    FALSE,
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    mapping,
    string,
    ubyte,
    uint,
)

WHERE = target(string("links"))
FROM = source(string("links"))

BROKEN = {
    "handle-in-use": (
        attach_frame("again", 0, target=WHERE),
        "session",
        "amqp:session:handle-in-use",
    ),
    "handle-above-handle-max": (
        attach_frame("high", 1024, target=WHERE),
        "connection",
        "amqp:connection:framing-error",
    ),
    "handle-2^32-1": (
        attach_frame("highest", 0xFFFFFFFF, target=WHERE),
        "connection",
        "amqp:connection:framing-error",
    ),
    "detach-of-no-handle": (detach_frame(5), "session", "amqp:session:unattached-handle"),
    "detach-twice": (
        detach_frame(0) + detach_frame(0),
        "session",
        "amqp:session:unattached-handle",
    ),
    "transfer-after-the-detach": (
        detach_frame(0) + transfer_frame(data_section(), 0, uint(0), binary(b"t")),
        "session",
        "amqp:session:unattached-handle",
    ),
    "sender-without-a-count": (
        attach_frame("s1", 1, target=WHERE, initial_delivery_count=NULL),
        "session",
        "amqp:invalid-field",
    ),
    "no-name": (
        frame(composite(ATTACH, [NULL, uint(1), TRUE])),
        "connection",
        "amqp:decode-error",
    ),
    "no-handle": (
        frame(composite(ATTACH, [string("n"), NULL, TRUE])),
        "connection",
        "amqp:decode-error",
    ),
    "no-role": (
        frame(composite(ATTACH, [string("n"), uint(1)])),
        "connection",
        "amqp:decode-error",
    ),
    "settle-mode-9": (
        attach_frame("s1", 1, target=WHERE, snd_settle_mode=ubyte(9)),
        "connection",
        "amqp:decode-error",
    ),
    "an-unsettled-map-of-other-keys": (
        attach_frame("s1", 1, target=WHERE, unsettled=mapping(string("t"), NULL)),
        "session",
        "amqp:invalid-field",
    ),
    "a-source-that-is-a-target": (
        attach_frame("r1", 1, receiver=True, source=WHERE, target=target()),
        "connection",
        "amqp:decode-error",
    ),
    "flow-of-a-session-that-was-ended": (
        end_frame() + flow_frame() + begin_frame() + begin_frame(),
        "connection",
        "amqp:connection:framing-error",
    ),
    "end-twice": (end_frame() * 2, "connection", "amqp:connection:framing-error"),
}


@pytest.mark.spec("2.6.2")
@pytest.mark.parametrize(("said", "scope", "condition"), BROKEN.values(), ids=BROKEN)
def test_a_mistake_about_links_and_sessions(
    site: Site, said: bytes, scope: str, condition: str
) -> None:
    """There is one link, with handle 0."""

    def attack() -> None:
        with site.client() as client:
            client.begin().sender("links")
            client.send(said)
            verdict = client.verdict()
            while verdict.condition == "":
                assert verdict.scope != "end"
                verdict = client.verdict()
            assert verdict[:2] == (scope, condition)
            client.close()

    site.endures(attack)


@pytest.mark.spec("2.6.1")
def test_a_name_that_is_attached_again_and_again(site: Site) -> None:
    """Every time it is stolen from the link before (AMQP 1.0 §2.6.1)."""
    count = 500

    def attack() -> None:
        with site.client() as client:
            client.begin().send(
                *(attach_frame("one", handle, target=WHERE) for handle in range(count))
            )
            stolen = 0
            while stolen < count - 1:
                answer = client.expect("detach", "attach", "flow", "empty")
                assert answer.condition == "amqp:link:stolen"
                stolen += 1
            client.close()

    site.endures(attack)


def test_sessions_and_links_that_come_and_go(site: Site) -> None:
    """Thousands in one breath, on the highest numbers there are."""
    one = begin_frame(2047) + attach_frame("n", 1023, target=WHERE, channel=2047)
    one += detach_frame(1023, channel=2047) + end_frame(2047)

    def attack() -> None:
        with site.client() as client:
            client.open().send(one * 300)
            for _ in range(300):
                client.expect("end", "begin", "attach", "flow", "detach", "empty")
            client.close()

    site.endures(attack)


def test_flows_that_ask_for_an_answer(site: Site) -> None:
    def attack() -> None:
        with site.client() as client:
            client.begin().sender("links")
            client.send(flow_frame(uint(0), echo=TRUE) * 2_000)
            # Those that come together have one answer.
            client.expect("flow", "empty")
            client.send(close_frame())
            client.expect("close", "flow", "empty")

    site.endures(attack)


def test_termini_of_strange_kinds(site: Site) -> None:
    """What is right by the letter and nobody has asked for: a link is refused, no more."""
    strange = [
        attach_frame("a", 1, receiver=True, source=source(dynamic=TRUE, address=string("x"))),
        attach_frame("b", 2, target=target(dynamic=TRUE, address=string("x"))),
        attach_frame("c", 3, receiver=True),
        attach_frame("d", 4),
        attach_frame("e", 5, receiver=True, source=source(string("")), target=target()),
        attach_frame("f", 6, target=target(string("")), source=source()),
        attach_frame("", 7, target=WHERE, source=source()),
        attach_frame("\0", 8, target=target(string("\0")), source=source()),
        attach_frame("i", 9, target=target(string("$nothing")), source=source()),
        attach_frame("j", 10, target=composite(0x30, []), source=source()),
        attach_frame(
            "k", 11, receiver=True, source=composite(0x28, []), target=EMPTY_LIST[:0] or NULL
        ),
        attach_frame(
            "l", 12, receiver=True, source=FROM, target=target(), rcv_settle_mode=ubyte(1)
        ),
        attach_frame(
            "m", 13, target=WHERE, source=FROM, incomplete=FALSE, max_message_size=b"\x44"
        ),
    ]

    def attack() -> None:
        with site.client() as client:
            client.begin()
            for said in strange:
                client.send(said)
                client.expect("attach", "flow", "detach")
            client.close()

    site.endures(attack)
