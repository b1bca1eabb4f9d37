"""Links on which the broker receives, resumed by a peer with a map (AMQP 1.0 §2.6.13, §3.4.6)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.raw.answers import Answer, Composite
from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import Broker
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    data_section,
    mapping,
    string,
    symbol,
    ubyte,
    uint,
)
from tests.wire.control import ACCEPTED, RELEASED, exchange, named, outcomes_by_id, waiting

CONFIG = '[store]\npath = "store"\n'


class Link:
    """A link of the name `l` to a target that outlives it, on one connection after the other.

    No frame of the broker is larger than 512 bytes.
    """

    def __init__(self, broker: Broker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.peer = self._connect()

    def _connect(self) -> Client:
        peer = Client(self.broker.port).open(open_frame(max_frame_size=512))
        peer.send(begin_frame()).expect("begin")
        return peer

    def attach(self, *tags: bytes, resumed: bool = True, incomplete: bool = False) -> Answer:
        """Attach with a map of these tags, or with none; the broker's attach."""
        entries = [item for tag in tags for item in (binary(tag), NULL)]
        where = target(string(self.address), durable=uint(2), expiry=symbol("never"))
        self.peer.send(
            attach_frame(
                "l", 0, source=source(), target=where, rcv_settle_mode=ubyte(1),
                unsettled=mapping(*entries) if resumed else NULL,
                incomplete=TRUE if incomplete else NULL,
            )
        )  # fmt: skip
        return self.peer.expect("attach", "flow")

    def lose(self) -> None:
        """Lose the connection, and begin another."""
        self.peer.socket.close()
        self.peer = self._connect()


@pytest.fixture
def link(broker: Broker, address: str) -> Iterator[Link]:
    one = Link(broker, address)
    yield one
    one.peer.socket.close()
    broker.check()


def states(attach: Answer) -> dict[object, str]:
    """The names of the states in the map of an attach, by tag."""
    unsettled = attach.field(7)
    assert isinstance(unsettled, dict)
    return {
        tag: state.name if isinstance(state, Composite) else "" for tag, state in unsettled.items()
    }


@pytest.mark.spec("2.6.13", "2.7.3", "3.4.6")
def test_what_was_taken_in_is_not_taken_in_again(link: Link, broker: Broker) -> None:
    bodies = {tag: data_section(tag * 10) for tag in (b"a", b"b", b"c", b"e", b"f")}
    assert link.attach(resumed=False).field(7) is None
    exchange(
        link.peer,
        *(
            transfer_frame(bodies[tag], 0, uint(number), binary(tag))
            for number, tag in enumerate((b"a", b"b", b"c", b"e"))
        ),
    )
    link.lose()
    # e is settled for its sender, and f never arrived.
    kept = (b"a", b"b", b"c")
    assert states(link.attach(*kept, b"f")) == dict.fromkeys(kept, "accepted")
    answers = exchange(
        link.peer,
        transfer_frame(b"", 0, uint(0), binary(b"a"), resume=TRUE, state=ACCEPTED, settled=TRUE),
        # The receiver is to say how it stands.
        transfer_frame(b"", 0, uint(1), binary(b"b"), resume=TRUE, state=ACCEPTED),
        # What it has already it skips.
        transfer_frame(bodies[b"c"], 0, uint(2), binary(b"c"), resume=TRUE),
        # Nothing that could be resumed: it is ignored, and so is its second frame.
        transfer_frame(bodies[b"f"][:4], 0, uint(3), binary(b"f"), resume=TRUE, more=TRUE),
        transfer_frame(bodies[b"f"][4:], 0),
        transfer_frame(bodies[b"f"], 0, uint(4), binary(b"f")),
        # The tag of e is free.
        transfer_frame(data_section(b"new"), 0, uint(5), binary(b"e")),
    )
    assert not named(answers, "detach")
    told = {number: state.name for number, state in outcomes_by_id(answers).items()}
    assert told == dict.fromkeys((1, 2, 4, 5), "accepted")
    wanted = [*bodies.values(), data_section(b"new")]
    assert waiting(broker.port, link.address) == wanted


@pytest.mark.spec("2.6.3")
def test_a_link_is_recovered_by_its_name_alone(link: Link) -> None:
    link.attach(resumed=False)
    exchange(link.peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    link.lose()
    unsettled = mapping(binary(b"t"), NULL)
    link.peer.send(attach_frame("l", 0, source=source(), target=NULL, unsettled=unsettled))
    attach = link.peer.expect("attach", "flow")
    granted = attach.field(6)
    assert isinstance(granted, Composite) and granted.field(0) == link.address
    assert states(attach) == {b"t": "accepted"}


@pytest.mark.spec("2.6.13")
def test_what_its_sender_settles_is_forgotten(link: Link) -> None:
    link.attach(resumed=False)
    frames = (transfer_frame(data_section(), 0, uint(n), binary(b"%d" % n)) for n in range(2))
    exchange(link.peer, *frames)
    exchange(link.peer, disposition_frame(0, receiver=False, settled=TRUE, state=ACCEPTED))
    link.lose()
    # The map of its sender still has both.
    assert states(link.attach(b"0", b"1")) == {b"1": "accepted"}


@pytest.mark.spec("2.6.13", "3.4.1")
@pytest.mark.parametrize("how", ["detached", "lost"])
def test_a_part_of_a_message_is_forgotten(link: Link, broker: Broker, how: str) -> None:
    whole = data_section(b"x" * 100)
    link.attach(resumed=False)
    exchange(link.peer, transfer_frame(whole[:50], 0, uint(0), binary(b"t"), more=TRUE))
    if how == "lost":
        link.lose()
    else:
        exchange(link.peer, detach_frame(0, closed=False))
    assert states(link.attach(b"t")) == {}
    number = 0 if how == "lost" else 1
    answers = exchange(link.peer, transfer_frame(whole, 0, uint(number), binary(b"t")))
    assert outcomes_by_id(answers)[number].name == "accepted"
    assert waiting(broker.port, link.address) == [whole]


@pytest.mark.spec("broker-2.3.5")
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
def test_a_sender_that_resumes_with_another_outcome_loses_its_link(
    link: Link, broker: Broker, settled: bytes
) -> None:
    link.attach(resumed=False)
    exchange(link.peer, transfer_frame(data_section(), 0, uint(0), binary(b"t")))
    link.lose()
    assert states(link.attach(b"t")) == {b"t": "accepted"}
    resumed = transfer_frame(
        b"", 0, uint(0), binary(b"t"), resume=TRUE, state=RELEASED, settled=settled
    )
    answers = exchange(link.peer, resumed)
    (detach,) = named(answers, "detach")
    assert detach.condition == "amqp:illegal-state"
    assert not named(answers, "disposition")
    # The message is in the queue, whatever its sender says.
    assert waiting(broker.port, link.address) == [data_section()]


@pytest.mark.spec("2.7.3")
def test_nothing_new_is_taken_while_the_map_is_incomplete(link: Link, broker: Broker) -> None:
    tags = [b"%030d" % number for number in range(40)]
    link.attach(resumed=False)
    frames = (
        transfer_frame(data_section(tag), 0, uint(number), binary(tag))
        for number, tag in enumerate(tags)
    )
    exchange(link.peer, *frames)
    link.lose()
    attach = link.attach(*tags[:10], incomplete=True)
    # The rest does not fit into a frame of this peer.
    assert attach.field(8) is True and 0 < len(states(attach)) < len(tags)
    resumed = transfer_frame(
        b"", 0, uint(0), binary(tags[0]), resume=TRUE, state=ACCEPTED, settled=TRUE
    )
    assert not named(exchange(link.peer, resumed), "detach")
    new = transfer_frame(data_section(), 0, uint(1), binary(b"new"))
    (detach,) = named(exchange(link.peer, new), "detach")
    assert detach.condition == "amqp:not-allowed"
    assert waiting(broker.port, link.address) == [data_section(tag) for tag in tags]


@pytest.mark.spec("2.7.3", "2.6.13")
def test_maps_too_large_for_a_frame_are_resumed_in_rounds(link: Link, broker: Broker) -> None:
    tags = [b"%030d" % number for number in range(40)]
    link.attach(resumed=False)
    frames = (
        transfer_frame(data_section(tag), 0, uint(number), binary(tag))
        for number, tag in enumerate(tags)
    )
    exchange(link.peer, *frames)
    link.lose()
    left, rounds, number = list(tags), 0, 0
    while left:
        rounds += 1
        attach = link.attach(*left[:10], incomplete=len(left) > 10)
        known = states(attach)
        if attach.field(8) is not True:
            assert list(known) == left
        settled = [tag for tag in left[:10] if tag in known]
        assert settled
        sent = []
        for tag in settled:
            sent.append(
                transfer_frame(
                    b"", 0, uint(number), binary(tag), resume=TRUE, state=ACCEPTED, settled=TRUE
                )
            )
            number += 1
        answers = exchange(link.peer, *sent, detach_frame(0, closed=False))
        (detach,) = named(answers, "detach")
        assert detach.error() is None
        left = [tag for tag in left if tag not in settled]
    assert rounds > 2
    assert waiting(broker.port, link.address) == [data_section(tag) for tag in tags]
