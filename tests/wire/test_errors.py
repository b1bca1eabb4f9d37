"""What follows an error: discarded frames, errant links, stolen links, the close (§2.4-§2.6)."""

from __future__ import annotations

import asyncio
import threading

import pytest

import ferrymq
from tests.raw.client import Client, Verdict
from tests.raw.frames import (
    AMQP_HEADER,
    ATTACH,
    FLOW,
    SASL_HEADER,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
    attach_frame,
    begin_frame,
    close_frame,
    detach_frame,
    disposition_frame,
    end_frame,
    flow_frame,
    frame,
    sasl_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.server import Server
from tests.raw.values import (
    TRUE,
    array,
    binary,
    composite,
    data_section,
    string,
    symbol,
    ubyte,
    uint,
)
from tests.raw.wire import PATIENCE
from tests.wire.control import delete, exchange, named, waiting
from tests.wire.test_drains import publish

ACCEPTED, REJECTED = composite(0x24, []), composite(0x25, [])


@pytest.mark.spec("2.5.4", "2.5.5")
@pytest.mark.parametrize("code", [ATTACH, FLOW, TRANSFER, 0x15, 0x16], ids=hex)
def test_whatever_comes_for_a_session_that_was_ended_is_discarded(peer: Client, code: int) -> None:
    # No link has the handle 77: the broker ends the session.
    peer.send(flow_frame(uint(77), uint(1), uint(0)))
    assert peer.verdict().condition == "amqp:session:unattached-handle"
    # These could not even be read.
    broken = frame(composite(code, [string("no"), string("frame")]))
    peer.send(broken, frame(composite(code, [])), end_frame(), begin_frame())
    assert peer.expect("begin", "empty").field(0) == 0
    peer.close()


@pytest.mark.spec("2.4.3")
def test_a_peer_that_ends_its_half_is_told_a_close(broker: Broker, address: str) -> None:
    with Client(broker.port) as peer:
        peer.begin().sender(address).half_close()
        assert peer.expect("close", "empty").condition == "amqp:connection:framing-error"
        assert peer.ended()


@pytest.mark.spec("2.4.3")
def test_what_came_before_the_end_of_the_peers_half_counts(broker: Broker, address: str) -> None:
    with Client(broker.port) as peer:
        peer.begin().sender(address)
        messages = [
            transfer_frame(data_section(), 0, uint(n), binary(b"%d" % n), settled=TRUE)
            for n in range(500)
        ]
        peer.send(*messages, close_frame()).half_close()
        answer = peer.expect("close", "flow", "empty")
        assert answer.error() is None and peer.ended()
    with Client(broker.port) as peer:
        peer.begin().receiver(address, 500)
        assert len(peer.arrivals(500)) == 500


def contradict(broker: Broker, address: str, later: bytes) -> Verdict:
    """State two outcomes of one delivery, which is an error; what becomes of a frame for its link
    right behind them."""
    # Where a busy broker reads them one by one, the delivery is settled in between.
    for _ in range(20):
        publish(broker.port, address, [data_section()] * 2)
        with Client(broker.port) as peer:
            peer.begin().receiver(address, 2, "r", 0)
            peer.arrivals(2)
            peer.send(
                disposition_frame(0, state=ACCEPTED),
                disposition_frame(0, state=REJECTED),
                later,
                flow_frame(echo=TRUE),
            )
            answer = peer.read()
            while answer is not None and answer.name in ("disposition", "empty"):
                answer = peer.read()
            assert answer is not None
            if answer.name == "detach":
                assert answer.condition == "amqp:illegal-state"
                return peer.verdict()
    raise AssertionError("the broker never reads two frames at once")


@pytest.mark.spec("2.6.5")
@pytest.mark.parametrize(
    "later",
    [
        disposition_frame(1, settled=TRUE, state=ACCEPTED),
        flow_frame(uint(0), uint(1), uint(2)),
    ],
    ids=["disposition", "flow"],
)
def test_what_comes_for_a_sender_that_failed_ends_the_session(
    broker: Broker, address: str, later: bytes
) -> None:
    assert contradict(broker, address, later)[:2] == ("session", "amqp:session:errant-link")


@pytest.mark.spec("2.6.5")
def test_an_attach_for_a_sender_that_failed_ends_the_session(broker: Broker, address: str) -> None:
    again = attach_frame("r", 1, receiver=True, source=source(string(address)), target=target())
    assert contradict(broker, address, again)[:2] == ("session", "amqp:session:errant-link")


@pytest.mark.spec("2.6.5", "2.8.17")
@pytest.mark.parametrize("what", ["transfer", "disposition", "flow", "attach"])
def test_what_comes_for_a_receiver_that_failed_ends_the_session(
    peer: Client, address: str, what: str
) -> None:
    where = target(string(address), expiry=symbol("never"))
    attach = attach_frame(
        "s", 0, source=source(), target=where, snd_settle_mode=ubyte(0), rcv_settle_mode=ubyte(1)
    )
    # The first delivery waits for this end to settle it.
    peer.sender(address, attach=attach).send(
        transfer_frame(data_section(), 0, uint(0), binary(b"0"))
    )
    assert peer.expect("disposition", "flow").field(3) is False
    later = {
        "transfer": transfer_frame(data_section(), 0, uint(2), binary(b"2")),
        "disposition": disposition_frame(0, receiver=False, settled=TRUE),
        "flow": flow_frame(uint(0), delivery_count=uint(2)),
        "attach": attach_frame("s", 1, source=source(), target=where),
    }
    wrong = transfer_frame(data_section(), 0, uint(1), binary(b"1"), settled=TRUE)
    peer.send(wrong, later[what])
    assert peer.verdict()[:2] == ("link", "amqp:not-allowed")
    assert peer.verdict()[:2] == ("session", "amqp:session:errant-link")


@pytest.mark.spec("2.6.5", "2.8.17")
@pytest.mark.parametrize("what", ["transfer", "disposition", "flow"])
def test_what_comes_behind_a_detach_of_the_brokers_own_is_ignored_until_it_is_answered(
    broker: Broker, address: str, what: str
) -> None:
    publish(broker.port, address, [data_section()])
    with Client(broker.port) as peer:
        peer.begin().sender(address, "s", 0).receiver(address, 1, "r", 1)
        peer.arrivals(1)
        peer.sender(f"{address}-other", "other", 2)
        # The queue goes, and the links with it.
        delete(broker.port, address)
        for _ in range(2):
            assert peer.expect("detach", "flow").condition == "amqp:resource-deleted"
        frames = {
            "transfer": transfer_frame(data_section(), 0, uint(0), binary(b"t")),
            "disposition": disposition_frame(0, settled=TRUE, state=ACCEPTED),
            "flow": flow_frame(uint(1), uint(1), uint(1), next_incoming_id=uint(1)),
        }
        # It was on its way, as far as the broker knows. Other links of the session go on.
        assert not named(exchange(peer, frames[what]), "disposition")
        number = 1 if what == "transfer" else 0
        answers = exchange(peer, transfer_frame(data_section(), 2, uint(number), binary(b"t")))
        assert named(answers, "disposition")
        exchange(peer, detach_frame(0), detach_frame(1))
        if what == "disposition":
            # Of a delivery that is not there.
            exchange(peer, frames[what])
            return
        # Now there is no link of this handle.
        again = transfer_frame(data_section(), 0, uint(2), binary(b"u"))
        peer.send(again if what == "transfer" else frames[what])
        assert peer.verdict()[:2] == ("session", "amqp:session:unattached-handle")


@pytest.mark.spec("2.6.1")
def test_a_link_that_is_attached_again_is_told_that_it_was_stolen(
    peer: Client, address: str
) -> None:
    attach = attach_frame("s", 0, source=source(), target=target(string(address)))
    again = attach_frame("s", 1, source=source(), target=target(string(address)))
    answers = exchange(peer, attach, again)
    (detach,) = named(answers, "detach")
    assert detach.condition == "amqp:link:stolen"
    # Suspended, and not closed: the newcomer is the same link, with what is unsettled on it.
    assert detach.field(1) is not True
    assert len(named(answers, "attach")) == 2


@pytest.mark.spec("2.4.3")
async def test_a_connect_that_is_given_up_ends_with_a_close() -> None:
    opened = threading.Event()

    def script(server: Server) -> None:
        peer = server.accept()
        assert peer.take(8) == SASL_HEADER
        mechanisms = sasl_frame(SASL_MECHANISMS, array(b"\xa3", 1, b"\x09ANONYMOUS"))
        peer.send(SASL_HEADER, mechanisms).expect("sasl-init")
        peer.send(sasl_frame(SASL_OUTCOME, ubyte(0)))
        assert peer.take(8) == AMQP_HEADER
        # The header, and no open behind it.
        peer.send(AMQP_HEADER).expect("open")
        opened.set()
        assert peer.expect("close", "empty").condition == "amqp:resource-limit-exceeded"

    async def connect(url: str) -> None:
        async with ferrymq.connect(url):
            raise AssertionError("there was no open")

    with Server(script) as server:
        connecting = asyncio.create_task(connect(server.url))
        assert await asyncio.to_thread(opened.wait, PATIENCE)
        # As its time-out does.
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting


@pytest.mark.spec("2.5", "2.6.1")
def test_a_link_that_is_attached_on_another_session_leaves_the_first(
    peer: Client, broker: Broker, address: str
) -> None:
    peer.sender(address)
    where = target(string(address))
    peer.send(begin_frame(1), attach_frame("s", 3, source=source(), target=where, channel=1))
    # The detach comes first, unless a busy broker reads the two frames one by one.
    first, second = peer.read(), peer.read()
    assert first is not None and second is not None
    detach, begun = (first, second) if first.name == "detach" else (second, first)
    assert detach.channel == 0 and detach.condition == "amqp:link:stolen"
    assert detach.field(1) is not True
    assert (begun.name, begun.channel) == ("begin", 1)
    assert peer.expect("attach").channel == 1
    # Nothing comes in on the link that it was.
    peer.send(
        transfer_frame(data_section(b"old"), 0, uint(0), binary(b"t")),
        transfer_frame(data_section(b"new"), 3, uint(0), binary(b"t"), channel=1),
    )
    assert peer.expect("disposition", "flow").channel == 1
    assert waiting(broker.port, address) == [data_section(b"new")]


@pytest.mark.spec("2.6.5", "2.6.6")
def test_a_detach_that_crosses_the_close_of_an_error_ends_the_link(
    peer: Client, broker: Broker, address: str
) -> None:
    peer.sender(address)
    wrong = transfer_frame(data_section(), 0, uint(0), binary(b"t"), state=REJECTED)
    # This end detaches without closing, and has not seen the error yet.
    (detach,) = named(exchange(peer, wrong, detach_frame(0, closed=False)), "detach")
    assert detach.field(1) is True and detach.error() is not None
    # Nothing is left of the link: its name and its handle begin anew.
    where = target(string(address))
    peer.send(attach_frame("s", 0, source=source(), target=where))
    attach = peer.expect("attach")
    assert (attach.field(1), attach.field(7)) == (0, None)
    assert peer.expect("flow").field(5) == 0
    exchange(peer, transfer_frame(data_section(), 0, uint(1), binary(b"t")))
    assert len(waiting(broker.port, address)) == 1
