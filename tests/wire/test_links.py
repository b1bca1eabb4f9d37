"""Links, credit, windows and settlement as a peer of the running broker sees them (AMQP 1.0 §2.5.6
to §2.7)."""

from __future__ import annotations

import pytest

from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import FALSE, NULL, TRUE, binary, data_section, string, uint
from tests.wire.control import ACCEPTED, RELEASED, exchange, named, waiting

BODIES = [data_section(b"%d" % number) for number in range(5)]
HIGH = 0xFFFFFFFE


@pytest.mark.spec("2.6.2")
def test_each_end_has_its_own_handles_and_a_detach_frees_both(peer: Client, address: str) -> None:
    where = target(string(address))
    for name, theirs, ours in (("a", 5, 0), ("b", 9, 1)):
        peer.send(attach_frame(name, theirs, source=source(), target=where))
        answer = peer.expect("attach", "flow")
        assert (answer.field(0), answer.field(1)) == (name, ours)
    for closed in (True, False):
        peer.send(detach_frame(5, closed))
        detached = peer.expect("detach", "flow")
        assert (detached.field(0), detached.field(1) is True) == (0, closed)
        # The handle is for another link, or for the same one again.
        peer.send(attach_frame("a" if closed else "c", 5, source=source(), target=where))
        answer = peer.expect("attach", "flow")
        assert answer.field(1) == 0


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize(
    ("refused", "terminus"),
    [
        (attach_frame("r", 3, True, source(string("$nothing")), target()), 5),
        (attach_frame("s", 3, False, source(), target(string("$nothing"))), 6),
        (attach_frame("r", 3, True, NULL, target()), 5),
        (attach_frame("s", 3, False, source(), NULL), 6),
    ],
    ids=["no-such-source", "no-such-target", "without-a-source", "without-a-target"],
)
def test_a_refused_link_is_attached_without_terminus_and_detached(
    peer: Client, refused: bytes, terminus: int
) -> None:
    peer.send(refused)
    assert peer.expect("attach").field(terminus) is None
    detached = peer.expect("detach")
    error = detached.error()
    assert detached.field(1) is True and error is not None and all(error)


@pytest.mark.spec("2.7.4")
def test_an_echo_is_answered_without_one(peer: Client, address: str) -> None:
    peer.sender(address)
    peer.send(flow_frame(echo=TRUE))
    flow = peer.expect("flow", "empty")
    assert flow.field(0) == 0
    # Of the session: no handle, and nothing of a link.
    assert [flow.field(at) for at in range(4, 8)] == [None] * 4
    assert flow.field(8) in (None, False) and flow.field(9) in (None, False)
    assert flow.field(10) is None
    peer.send(flow_frame(uint(0), delivery_count=uint(0), echo=TRUE))
    flow = peer.expect("flow", "empty")
    # Of the link: the count of its sender, and the credit.
    assert (flow.field(4), flow.field(5)) == (0, 0)
    assert flow.field(6) and flow.field(9) in (None, False)


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("counted", [True, False])
def test_a_link_begins_without_credit_and_sends_as_much_as_it_is_given(
    peer: Client, address: str, counted: bool
) -> None:
    peer.sender(address).publish(BODIES)
    peer.send(attach_frame("r", 1, True, source(string(address)), target()))
    attached = peer.expect("attach", "flow")
    count = attached.field(9)
    assert isinstance(count, int)
    assert named(exchange(peer), "transfer") == []
    # Without a count, credit is reckoned from the first one.
    known = uint(count) if counted else NULL
    answers = exchange(peer, flow_frame(uint(1), uint(2), known))
    sent = named(answers, "transfer")
    assert [one.payload for one in sent] == BODIES[:2]
    tags = [one.field(2) for one in sent]
    assert len(set(tags)) == 2 and all(isinstance(tag, bytes) and len(tag) <= 32 for tag in tags)
    # The same flow again gives nothing: the limit is where it was.
    assert named(exchange(peer, flow_frame(uint(1), uint(2), known)), "transfer") == []
    peer.send(flow_frame(uint(1), uint(1), uint(count + 1), echo=TRUE))
    flow = peer.expect("flow", "empty")
    assert (flow.field(5), flow.field(6)) == (count + 2, 0)


@pytest.mark.spec("2.5.6")
@pytest.mark.parametrize("known", [True, False])
def test_no_more_frames_are_sent_than_the_window_has_room_for(
    broker: Broker, address: str, known: bool
) -> None:
    with Client(broker.port) as client:
        client.begin(begin_frame(incoming_window=2)).sender(address)
        client.publish(BODIES).send(attach_frame("r", 1, True, source(string(address)), target()))
        client.expect("attach", "flow")
        flow = flow_frame(uint(1), uint(5), uint(0), incoming_window=2)
        client.send(flow)
        first = client.arrivals(2)
        numbers = [one.field(1) for one in first]
        # A window that is counted from the first transfer-id is used up; from now on it is not.
        unknown = flow_frame(next_incoming_id=NULL, incoming_window=2, echo=TRUE)
        assert client.send(unknown).expect("flow", "empty").field(4) is None
        window = {"next_incoming_id": uint(2), "incoming_window": 2}
        if not known:
            window = {"next_incoming_id": NULL, "incoming_window": 4}
        client.send(flow_frame(**window))  # type: ignore[arg-type]
        numbers += [one.field(1) for one in client.arrivals(2)]
        client.send(flow_frame(next_incoming_id=uint(4)))
        numbers += [one.field(1) for one in client.arrivals(1)]
        assert numbers == [0, 1, 2, 3, 4]
        client.close()


@pytest.mark.spec("2.8.10")
def test_numbers_go_on_behind_the_highest(broker: Broker, address: str) -> None:
    with Client(broker.port) as client:
        client.begin(begin_frame(next_outgoing_id=HIGH))
        where = target(string(address))
        attach = attach_frame(
            "s", 0, source=source(), target=where, initial_delivery_count=uint(HIGH)
        )
        client.send(attach)
        client.expect("attach")
        flow = client.expect("flow")
        # The first count is the sender's choice, and the receiver follows it.
        assert flow.field(5) == HIGH and flow.field(0) == HIGH
        ids = [(HIGH + at) & 0xFFFFFFFF for at in range(5)]
        client.send(
            *(
                transfer_frame(body, 0, uint(number), binary(b"%d" % number))
                for number, body in zip(ids, BODIES, strict=True)
            ),
            flow_frame(
                uint(0), delivery_count=uint(3), next_outgoing_id=3, next_incoming_id=uint(0),
                echo=TRUE,
            ),
        )  # fmt: skip
        settled: list[int] = []
        while len(settled) < 5:
            answer = client.expect("disposition", "flow", "empty")
            first, last = answer.field(1), answer.field(2)
            assert isinstance(first, int) and answer.field(3) is True
            end = last if isinstance(last, int) else first
            settled += [first + at & HIGH + 1 for at in range((end - first & HIGH + 1) + 1)]
        assert settled == ids
        client.send(flow_frame(uint(0), delivery_count=uint(3), next_outgoing_id=3, echo=TRUE))
        while (flow := client.expect("flow", "empty")).field(5) != 3:
            pass
        assert flow.field(0) == 3
        client.close()
    assert waiting(broker.port, address) == BODIES


@pytest.mark.spec("2.6.14")
def test_an_aborted_delivery_leaves_nothing_and_has_no_outcome(
    broker: Broker, peer: Client, address: str
) -> None:
    peer.sender(address)
    answers = exchange(
        peer,
        transfer_frame(BODIES[0][:3], 0, uint(0), binary(b"t"), more=TRUE),
        # What more says does not matter, nor what the frame carries.
        transfer_frame(BODIES[0][3:], 0, more=TRUE, aborted=TRUE),
        transfer_frame(BODIES[1], 0, uint(1), binary(b"u")),
    )
    (disposition,) = named(answers, "disposition")
    # In mode first it is settled without a word of the sender.
    assert (disposition.field(1), disposition.field(3)) == (1, True)
    assert waiting(broker.port, address) == BODIES[1:2]


@pytest.mark.spec("2.7.6")
def test_a_disposition_is_for_its_range_and_its_direction(
    broker: Broker, peer: Client, address: str
) -> None:
    peer.sender(address).publish(BODIES)
    peer.receiver(address, credit=2)
    ids = [one.field(1) for one in peer.arrivals(2)]
    peer.receiver(address, credit=3, name="other", handle=2)
    assert ids + [one.field(1) for one in peer.arrivals(3)] == [0, 1, 2, 3, 4]
    exchange(
        peer,
        # For deliveries that this end sends: there are none.
        disposition_frame(0, uint(4), receiver=False, settled=TRUE),
        # Without a last it is for one, with it for those of both links.
        disposition_frame(0, settled=TRUE, state=ACCEPTED),
        disposition_frame(1, uint(2), settled=TRUE, state=ACCEPTED),
        # What is settled stays so.
        disposition_frame(0, uint(2), settled=TRUE, state=RELEASED),
    )
    peer.send(detach_frame(1), detach_frame(2))
    peer.expect("detach", "flow")
    peer.expect("detach", "flow")
    assert waiting(broker.port, address) == BODIES[3:]


@pytest.mark.spec("2.7.5")
def test_later_frames_need_not_repeat_what_the_first_said(
    broker: Broker, peer: Client, address: str
) -> None:
    peer.sender(address).sender(address, "s2", 2)
    first, second = data_section(b"first"), data_section(b"second")
    answers = exchange(
        peer,
        transfer_frame(first[:4], 0, uint(0), binary(b"t"), more=TRUE, message_format=uint(0)),
        # Frames of deliveries on other links come in between.
        transfer_frame(second[:4], 2, uint(1), binary(b"t"), more=TRUE, settled=FALSE),
        transfer_frame(first[4:], 0, uint(0), binary(b"t")),
        transfer_frame(second[4:], 2),
    )
    assert {one.field(3) for one in named(answers, "disposition")} == {True}
    assert waiting(broker.port, address) == [first, second]
