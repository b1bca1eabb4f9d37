"""Transfers that break the rules, or bend them as far as they go (AMQP 1.0 §2.6, §2.7.5)."""

from __future__ import annotations

import pytest

from tests.hostile.site import Site
from tests.raw.client import Verdict
from tests.raw.frames import (
    attach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import MIB
from tests.raw.values import (
    FALSE,
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    string,
    ubyte,
    uint,
)

BODY = data_section(b"body")
TAG = binary(b"t")


CONFIG = """
[limits]
incoming-window = 20
credit = 30
max-message-size = "4MiB"

[[queue]]
name = "full"
max-length = 1
overflow = "block"
"""


# Frames beyond a window are many, for the broker opens it again after every turn.
BROKEN = {
    "no-delivery-id": (transfer_frame(BODY, 0, NULL, TAG), "session", "amqp:invalid-field"),
    "no-tag": (transfer_frame(BODY, 0, uint(0)), "session", "amqp:invalid-field"),
    "tag-of-33-bytes": (
        transfer_frame(BODY, 0, uint(0), binary(bytes(33))),
        "session",
        "amqp:invalid-field",
    ),
    "tag-of-60-kb": (
        transfer_frame(BODY, 0, uint(0), binary(bytes(60_000))),
        "session",
        "amqp:invalid-field",
    ),
    "unattached-handle": (
        transfer_frame(BODY, 7, uint(0), TAG),
        "session",
        "amqp:session:unattached-handle",
    ),
    "handle-of-a-receiver": (
        transfer_frame(BODY, 1, uint(0), TAG),
        "session",
        "amqp:not-allowed",
    ),
    "another-delivery-inside": (
        transfer_frame(BODY, 0, uint(0), TAG, more=TRUE) + transfer_frame(BODY, 0, uint(1)),
        "session",
        "amqp:invalid-field",
    ),
    "another-tag-inside": (
        transfer_frame(BODY, 0, uint(0), TAG, more=TRUE)
        + transfer_frame(BODY, 0, NULL, binary(b"u")),
        "session",
        "amqp:invalid-field",
    ),
    "another-format-inside": (
        transfer_frame(BODY, 0, uint(0), TAG, more=TRUE)
        + transfer_frame(BODY, 0, message_format=uint(1)),
        "session",
        "amqp:invalid-field",
    ),
    "id-of-an-unsettled-delivery": (
        transfer_frame(BODY, 0, uint(0), TAG, more=TRUE)
        + transfer_frame(BODY, 2, uint(0), binary(b"u")),
        "session",
        "amqp:invalid-field",
    ),
    "beyond-the-window": (
        transfer_frame(BODY, 0, uint(0), TAG, more=TRUE) + transfer_frame(BODY, 0, more=TRUE) * 400,
        "session",
        "amqp:session:window-violation",
    ),
    "without-credit": (
        b"".join(
            transfer_frame(BODY, 3, uint(number), binary(b"%d" % number)) for number in range(2)
        ),
        "link",
        "amqp:link:transfer-limit-exceeded",
    ),
    "second-on-a-link-of-first": (
        transfer_frame(BODY, 0, uint(0), TAG, rcv_settle_mode=ubyte(1)),
        "link",
        "amqp:invalid-field",
    ),
    "settled-where-never": (
        transfer_frame(BODY, 4, uint(0), TAG, settled=TRUE),
        "link",
        "amqp:not-allowed",
    ),
    "unsettled-where-always": (
        transfer_frame(BODY, 5, uint(0), TAG),
        "link",
        "amqp:not-allowed",
    ),
    "flow-for-no-handle": (
        flow_frame(uint(99), uint(1), uint(0)),
        "session",
        "amqp:session:unattached-handle",
    ),
}


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize(("said", "scope", "condition"), BROKEN.values(), ids=BROKEN)
def test_a_transfer_that_breaks_a_rule(
    site: Site, address: str, said: bytes, scope: str, condition: str
) -> None:
    """A window of 20 frames, 30 credits; links 0 and 2 to send, 1 to receive, 3 is to a queue that
    has room for one message, 4 never settles, 5 always does."""

    def attack() -> None:
        with site.client() as client:
            client.begin().sender(address).receiver(address, 0).sender(address, "s2", 2)
            where = target(string(address))
            full = target(string("full"))
            client.send(
                attach_frame("s3", 3, target=full, source=source()),
                attach_frame("s4", 4, target=where, source=source(), snd_settle_mode=ubyte(0)),
                attach_frame("s5", 5, target=where, source=source(), snd_settle_mode=ubyte(1)),
            )
            for _ in range(3):
                client.expect("attach", "flow")
            client.send(said)
            verdict = client.verdict()
            while verdict.scope == "delivery" and verdict.condition == "accepted":
                verdict = client.verdict()
            assert verdict[:2] == (scope, condition)
            client.close()

    site.endures(attack)


def test_settled_somewhere_is_settled(site: Site, address: str) -> None:
    """On the first frame, or the last: the delivery is whole, and arrives once (§2.7.5)."""
    section = data_section(b"whole")

    def attack() -> None:
        with site.client() as client:
            client.begin().sender(address).receiver(address)
            number = 0
            for first in (TRUE, FALSE, NULL):
                for last in (TRUE, FALSE, NULL):
                    tag = binary(b"%d" % number)
                    client.send(
                        transfer_frame(section[:5], 0, uint(number), tag, first, TRUE),
                        transfer_frame(section[5:], 0, settled=last),
                    )
                    number += 1
            arrived = 0
            while arrived < number:
                answer = client.read()
                assert answer is not None and answer.name in ("transfer", "disposition", "flow")
                if answer.name == "transfer":
                    assert answer.payload == section
                    arrived += 1
                    client.send(settle(answer.field(1)))
            client.close()

    site.endures(attack)


def settle(number: object) -> bytes:
    assert isinstance(number, int)
    return disposition_frame(number, settled=TRUE, state=composite(0x24, []))


@pytest.mark.spec("2.7.3")
def test_a_message_above_the_size_costs_the_link(site: Site, address: str) -> None:
    site.broker.forget_peak()
    before = site.broker.memory()

    def attack() -> None:
        with site.client() as client:
            client.begin().sender(address)
            chunk = transfer_frame(bytes(60_000), 0, more=TRUE)
            client.send(transfer_frame(b"", 0, uint(0), TAG, more=TRUE), chunk * 15)
            verdict = Verdict("")
            for _ in range(10):
                client.send(flow_frame(echo=TRUE))
                answer = client.read()
                assert answer is not None
                if answer.name == "detach":
                    verdict = Verdict("link", *(answer.error() or ()))
                    break
                assert answer.name == "flow"
                client.send(chunk * 8)
            assert verdict[:2] == ("link", "amqp:link:message-size-exceeded")
            client.close()

    site.endures(attack)
    assert site.broker.peak() < before + 32 * MIB
