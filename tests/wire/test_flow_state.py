"""The state of links in flows: what waits, echoes, and what an attach answers (§2.6.7, §2.7.4)."""

from __future__ import annotations

import pytest

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    flow_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import NULL, TRUE, binary, data_section, string, ubyte, uint
from tests.wire.control import exchange, named
from tests.wire.test_drains import publish

COUNT, CREDIT, AVAILABLE = 5, 6, 7


CONFIG = """
[[topic]]
pattern = "*-topic"

[[stream]]
pattern = "*-stream"
"""


def receiver(address: str, handle: int = 0, where: bytes = b"", mode: bytes = NULL) -> bytes:
    """Encode the attach of a receiver."""
    asked = source(string(address), mode=mode)
    return attach_frame(
        f"state-{handle}", handle, receiver=True, source=asked, target=where or target()
    )


def flows(answers: list[Answer]) -> list[Answer]:
    """Those of the answers that are flows of a link."""
    return [flow for flow in named(answers, "flow") if flow.field(4) is not None]


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("kind", ["queue", "browser", "topic", "stream"])
def test_available_says_how_many_messages_wait_for_credit(
    broker: Broker, peer: Client, address: str, kind: str
) -> None:
    address = f"{address}-{kind}"
    mode = b"\xa3\x04copy" if kind == "browser" else NULL
    peer.send(receiver(address, mode=mode)).expect("attach", "flow")
    publish(broker.port, address, [data_section()] * 7)
    (state,) = flows(exchange(peer, flow_frame(uint(0), uint(0), uint(0), echo=TRUE)))
    assert (state.field(CREDIT), state.field(AVAILABLE)) == (0, 7)
    answers = exchange(peer, flow_frame(uint(0), uint(3), uint(0), echo=TRUE))
    assert len(named(answers, "transfer")) == 3
    (state,) = flows(
        exchange(peer, flow_frame(uint(0), uint(0), uint(3), next_incoming_id=uint(3), echo=TRUE))
    )
    # Those that a browser has seen are there still.
    assert state.field(AVAILABLE) == (7 if kind == "browser" else 4)
    drained = flows(
        exchange(peer, flow_frame(uint(0), uint(9), uint(3), next_incoming_id=uint(3), drain=TRUE))
    )
    assert [flow.field(AVAILABLE) for flow in drained] == [0]


@pytest.mark.spec("2.6.7")
def test_the_receivers_flow_repeats_what_the_sender_said(peer: Client, address: str) -> None:
    peer.sender(address)
    said = flow_frame(uint(0), NULL, uint(0), next_outgoing_id=0, echo=TRUE)
    assert flows(exchange(peer, said))[0].field(AVAILABLE) == 0
    said = flow_frame(uint(0), NULL, uint(0), available=uint(5), echo=TRUE)
    assert flows(exchange(peer, said))[0].field(AVAILABLE) == 5


@pytest.mark.spec("2.7.4")
def test_an_echo_in_the_flight_of_the_attach_is_answered(peer: Client, address: str) -> None:
    answers = exchange(peer, receiver(address), flow_frame(uint(0), uint(5), uint(0), echo=TRUE))
    (state,) = flows(answers)
    assert (state.field(COUNT), state.field(CREDIT)) == (0, 5)
    # Its attach comes first.
    assert answers.index(named(answers, "attach")[0]) < answers.index(state)


@pytest.mark.spec("2.6.10")
def test_credit_of_zero_with_an_echo_tells_that_nothing_more_comes(
    broker: Broker, peer: Client, address: str
) -> None:
    publish(broker.port, address, [data_section()] * 4)
    peer.send(receiver(address)).expect("attach", "flow")
    answers = exchange(
        peer,
        flow_frame(uint(0), uint(3), uint(0)),
        flow_frame(uint(0), uint(0), uint(0), echo=TRUE),
    )
    came = len(named(answers, "transfer"))
    assert answers[-1] is flows(answers)[-1]
    assert (answers[-1].field(COUNT), answers[-1].field(CREDIT)) == (came, 0)


@pytest.mark.spec("2.7.5")
def test_no_frame_of_an_unsettled_link_is_settled(peer: Client, address: str) -> None:
    attach = attach_frame(
        "s", 0, source=source(), target=target(string(address)), snd_settle_mode=ubyte(0)
    )
    answers = exchange(
        peer,
        attach,
        transfer_frame(data_section()[:4], 0, uint(0), binary(b"t"), more=TRUE),
        transfer_frame(data_section()[4:], 0, settled=TRUE),
    )
    (detach,) = named(answers, "detach")
    assert detach.condition == "amqp:not-allowed"


@pytest.mark.spec("2.6.3")
def test_a_receiver_without_a_target_gets_none(peer: Client, address: str) -> None:
    answers = exchange(peer, receiver(address, where=NULL))
    (attach,) = named(answers, "attach")
    assert attach.field(6) is None and attach.field(5) is not None
    assert not named(answers, "detach")


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize("mode", [0, 1], ids=["unsettled", "settled"])
def test_frames_that_the_broker_sends_keep_the_settle_mode(
    broker: Broker, address: str, mode: int
) -> None:
    publish(broker.port, address, [data_section(b"x" * 2_000)] * 2)
    with Client(broker.port) as peer:
        peer.open(open_frame(max_frame_size=512)).send(begin_frame()).expect("begin")
        attach = attach_frame(
            "mine", 0, True, source(string(address)), target(), snd_settle_mode=ubyte(mode)
        )
        assert peer.send(attach).expect("attach").field(3) == mode
        transfers = named(exchange(peer, flow_frame(uint(0), uint(2), uint(0))), "transfer")
        assert len(transfers) > 8
        if mode == 0:
            assert not any(one.field(4) is True for one in transfers)
        else:
            last = [one for one in transfers if one.field(5) is not True]
            assert len(last) == 2 and all(one.field(4) is True for one in last)
        peer.socket.close()
