"""Bounds are what the pages say, and not a few more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
)
from tests.raw.process import Broker
from tests.raw.values import TRUE, data_section, string, symbol, uint
from tests.wire.control import ACCEPTED, RELEASED, refusal

LIMIT = 3
UNSETTLED = 6


CONFIG = f"""
[limits]
unsettled-per-connection = {UNSETTLED}

[nodes]
limit = {LIMIT}

[[queue]]
name = "q"

[[topic]]
name = "news"
"""


@pytest.mark.parametrize("what", ["node", "target", "source", "subscription"])
def test_there_are_no_more_than_nodes_may_be(broker: Broker, what: str) -> None:
    # Two of the nodes are there.
    lasting = {"durable": uint(2), "expiry": symbol("never")}
    with Client(broker.port) as peer:
        peer.begin()
        answers = []
        for number in range(LIMIT + 2):
            name = f"{what}-{number}"
            if what == "node":
                attach = attach_frame(name, number, source=source(), target=target(string(name)))
            elif what == "target":
                where = target(string("q"), **lasting)
                attach = attach_frame(name, number, source=source(), target=where)
            else:
                where = source(string("q" if what == "source" else "news"), **lasting)
                attach = attach_frame(name, number, True, where, target())
            answers.append(refusal(peer, attach))
        room = LIMIT - 2 if what == "node" else LIMIT
        assert answers == [""] * room + ["amqp:resource-limit-exceeded"] * (LIMIT + 2 - room)
        for number in range(LIMIT + 2):
            peer.send(detach_frame(number))
        for _ in range(room):
            peer.expect("detach", "flow")
    broker.check()


@pytest.fixture
def filled(broker: Broker) -> Iterator[Broker]:
    """A broker with twice as many messages in a queue as a connection may hold."""
    with Client(broker.port) as client:
        client.begin().sender("q").publish([data_section()] * 2 * UNSETTLED)
    yield broker
    with Client(broker.port) as client:
        client.begin().send(
            attach_frame(
                "r", 1, True, source(string("q")), target(), snd_settle_mode=b"\x50\x01"
            ),
            flow_frame(uint(1), uint(100), uint(0), drain=TRUE),
        )  # fmt: skip
        while (answer := client.read()) is not None:
            if answer.name == "flow" and answer.field(8) is True:
                break
    broker.check()


def deliveries(peer: Client, channels: int) -> list[Answer]:
    """The transfers that come, until each session has answered twice."""
    found = []
    for _ in range(2):
        waiting = channels
        peer.send(*(flow_frame(channel=number, echo=TRUE) for number in range(channels)))
        while waiting:
            answer = peer.read()
            assert answer is not None
            if answer.name == "transfer":
                found.append(answer)
            elif answer.name == "flow" and answer.field(4) is None:
                waiting -= 1
    return found


@pytest.mark.parametrize("sessions", [1, 2, 3, UNSETTLED + 2])
@pytest.mark.parametrize("late", [False, True], ids=["at once", "one after the other"])
def test_a_connection_holds_no_more_than_it_may(filled: Broker, sessions: int, late: bool) -> None:
    found: list[Answer] = []
    with Client(filled.port) as peer:
        peer.open()
        begun = 0
        for channel in range(sessions):
            peer.send(begin_frame(channel))
            peer.expect("begin", "flow", "transfer")
            begun += 1
            if not late and begun < sessions:
                continue
            for number in range(begun) if not late else [channel]:
                peer.send(
                    attach_frame(
                        f"r{number}", 1, True, source(string("q")), target(), channel=number
                    ),
                    flow_frame(uint(1), uint(100), uint(0), channel=number),
                )  # fmt: skip
            found += deliveries(peer, begun)
        assert len(found) == UNSETTLED
        # With every one that is settled, whosever it is, one more comes.
        for outcome in itertools.islice(itertools.cycle([ACCEPTED, ACCEPTED, RELEASED]), 6):
            one = found.pop(0)
            number = one.field(1)
            assert isinstance(number, int)
            peer.send(disposition_frame(number, settled=TRUE, state=outcome, channel=one.channel))
            more = deliveries(peer, begun)
            assert len(more) == 1
            found += more
