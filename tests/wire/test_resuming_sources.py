"""Links on which the broker sends, resumed by a peer with a map (AMQP 1.0 §2.6.13, §3.4.6)."""

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
    flow_frame,
    open_frame,
    source,
    target,
)
from tests.raw.process import Broker
from tests.raw.values import (
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    mapping,
    string,
    symbol,
    ubyte,
    uint,
    ulong,
)
from tests.wire.control import ACCEPTED, RELEASED, exchange, named, waiting

LARGE = data_section(bytes(range(256)) * 4)
BODIES = [data_section(b"%d" % number) for number in range(4)]


CONFIG = '[store]\npath = "store"\n'


def received(section: int, offset: int) -> bytes:
    """Encode the state received (AMQP 1.0 §3.4.1)."""
    return composite(0x23, [uint(section), ulong(offset)])


class Link:
    """A link of the name `l` from a source that outlives it, on one connection after the other.

    No frame is larger than 512 bytes.
    """

    def __init__(self, broker: Broker, address: str) -> None:
        self.broker = broker
        self.address = address
        self.peer = self._connect()

    def _connect(self) -> Client:
        peer = Client(self.broker.port).open(open_frame(max_frame_size=512))
        peer.send(begin_frame()).expect("begin")
        return peer

    def attach(
        self, unsettled: dict[bytes, bytes] | None = None, incomplete: bool = False
    ) -> Answer:
        """Attach with this map; the broker's attach."""
        entries = [
            item for tag, state in (unsettled or {}).items() for item in (binary(tag), state)
        ]
        where = source(string(self.address), durable=uint(2), expiry=symbol("never"))
        self.peer.send(
            attach_frame(
                "l", 1, True, where, target(), rcv_settle_mode=ubyte(1),
                unsettled=NULL if unsettled is None else mapping(*entries),
                incomplete=TRUE if incomplete else NULL,
            )
        )  # fmt: skip
        return self.peer.expect("attach", "flow")

    def credit(self, count: int) -> list[Answer]:
        """Give this much credit; the transfers that come, and what else does."""
        return exchange(self.peer, flow_frame(uint(1), uint(count), uint(0)))

    def publish(self, *bodies: bytes) -> None:
        """Send messages to the source's address on a connection of their own."""
        with Client(self.broker.port) as other:
            other.begin().sender(self.address).publish(list(bodies))

    def lose(self) -> None:
        """Lose the connection, and begin another."""
        self.peer.socket.close()
        self.peer = self._connect()

    def take(self, *bodies: bytes) -> list[bytes]:
        """Publish these and have them sent, unsettled; their tags."""
        self.publish(*bodies)
        self.attach()
        self.peer.send(flow_frame(uint(1), uint(len(bodies)), uint(0)))
        tags: list[bytes] = []
        while len(tags) < len(bodies):
            (answer,) = self.peer.arrivals(1)
            if isinstance(tag := answer.field(2), bytes):
                tags.append(tag)
            while answer.field(5) is True:
                (answer,) = self.peer.arrivals(1)
        return tags


@pytest.fixture
def link(broker: Broker, address: str) -> Iterator[Link]:
    one = Link(broker, address)
    yield one
    one.peer.socket.close()
    broker.check()


def deliveries(answers: list[Answer]) -> list[list[Answer]]:
    """The transfers, those of each delivery together."""
    found: list[list[Answer]] = []
    for transfer in named(answers, "transfer"):
        if transfer.field(2) is not None:
            found.append([])
        found[-1].append(transfer)
    return found


def keys(attach: Answer) -> list[object]:
    """The tags in the map of an attach."""
    unsettled = attach.field(7)
    assert isinstance(unsettled, dict)
    return list(unsettled)


@pytest.mark.spec("2.6.13", "3.4.6")
def test_each_delivery_goes_on_as_the_maps_of_both_ends_say(link: Link, broker: Broker) -> None:
    tags = link.take(*BODIES, LARGE)
    link.lose()
    attach = link.attach(
        {
            tags[0]: NULL,
            # The second never came.
            tags[2]: ACCEPTED,
            tags[3]: RELEASED,
            tags[4]: received(0, 100),
            b"of nobody": ACCEPTED,
        }
    )
    # What the receiver has never heard of is new, and what only it has is nothing.
    assert keys(attach) == [tags[0], *tags[2:]]
    unknown, accepted, released, large, *new = deliveries(link.credit(10))

    assert [one.field(2) for one in unknown] == [tags[0]]
    # Known without a byte: whole, and as resumed.
    assert unknown[0].field(8) is True and unknown[0].field(7) is None
    assert unknown[0].payload.endswith(BODIES[0])
    for frames, tag, state in ((accepted, tags[2], "accepted"), (released, tags[3], "released")):
        # Its outcome is what the receiver said, on a transfer that has nothing else.
        (only,) = frames
        outcome = only.field(7)
        assert (only.field(2), only.field(8), only.field(4)) == (tag, True, True)
        assert isinstance(outcome, Composite) and outcome.name == state and not only.payload
    # What came in part is continued: the first frame says from where, and no other does.
    first, *rest = large
    position = first.field(7)
    assert (first.field(2), first.field(8)) == (tags[4], True) and rest
    assert isinstance(position, Composite) and position.fields == [0, 100]
    assert all(frame.field(7) is None and frame.field(8) is not True for frame in rest)
    whole = b"".join(frame.payload for frame in large)
    assert LARGE.endswith(whole) and len(whole) < len(LARGE)
    # What never arrived, and what was released, are new deliveries.
    assert [
        frames[0].payload.endswith(body)
        for frames, body in zip(new, (BODIES[1], BODIES[3]), strict=True)
    ] == [True] * 2
    for (frame,) in new:
        assert frame.field(8) is not True and frame.field(7) is None
        assert frame.field(2) not in tags[2:]
    ids = [frames[0].field(1) for frames in (unknown, accepted, released, large, *new)]
    assert ids == [0, 1, 2, 3, 4, 5]
    exchange(link.peer, disposition_frame(0, uint(5), settled=TRUE, state=ACCEPTED))
    assert waiting(broker.port, link.address) == []


@pytest.mark.spec("3.4.6", "2.7.5")
def test_a_delivery_that_cannot_be_continued_is_aborted(link: Link, broker: Broker) -> None:
    tags = link.take(*BODIES[:2])
    link.lose()
    # No message is so long, and none has so many sections.
    link.attach({tags[0]: received(0, 5_000), tags[1]: received(9, 0)})
    transfers = named(link.credit(2), "transfer")
    aborted = transfers[:2]
    assert [one.field(2) for one in aborted] == tags
    assert all(one.field(9) is True and one.field(5) is not True for one in aborted)
    assert not any(one.payload for one in aborted)
    link.peer.socket.close()
    assert len(waiting(broker.port, link.address)) == 2


@pytest.mark.spec("2.6.13")
def test_a_delivery_has_no_id_before_it_is_resumed(link: Link) -> None:
    tags = link.take(BODIES[0])
    link.lose()
    link.attach({tags[0]: NULL})
    # 0 was its id on the link before.
    assert (
        named(exchange(link.peer, disposition_frame(0, settled=TRUE, state=ACCEPTED)), "transfer")
        == []
    )
    (frame,) = named(link.credit(1), "transfer")
    assert frame.field(2) == tags[0] and frame.payload.endswith(BODIES[0])


@pytest.mark.spec("2.7.3")
def test_a_link_that_is_attached_without_a_map_gets_none(link: Link) -> None:
    link.take(BODIES[0])
    link.lose()
    assert link.attach().field(7) is None
    (frame,) = named(link.credit(1), "transfer")
    assert frame.field(8) is not True and frame.payload.endswith(BODIES[0])


@pytest.mark.spec("2.6.3")
def test_a_link_is_recovered_by_its_name_alone(link: Link) -> None:
    tags = link.take(BODIES[0])
    link.lose()
    unsettled = mapping(binary(tags[0]), NULL)
    link.peer.send(attach_frame("l", 1, True, NULL, target(), unsettled=unsettled))
    attach = link.peer.expect("attach", "flow")
    granted = attach.field(5)
    assert isinstance(granted, Composite) and granted.field(0) == link.address
    assert keys(attach) == tags
    # One that there never was has nothing to be recovered.
    link.peer.send(attach_frame("unheard of", 2, True, NULL, target(), unsettled=unsettled))
    assert link.peer.expect("attach", "flow").field(5) is None
    assert link.peer.expect("detach", "flow").error() is not None


@pytest.mark.spec("2.7.3")
def test_a_null_key_in_a_map_is_refused(link: Link) -> None:
    where = source(string(link.address), durable=uint(2), expiry=symbol("never"))
    unsettled = mapping(NULL, NULL)
    link.peer.send(attach_frame("l", 1, True, where, target(), unsettled=unsettled))
    assert link.peer.verdict()[:2] == ("session", "amqp:invalid-field")


@pytest.mark.spec("2.7.3", "2.6.13")
def test_maps_too_large_for_a_frame_are_resumed_in_rounds(link: Link, broker: Broker) -> None:
    bodies = [data_section(b"%d" % number) for number in range(80)]
    left = link.take(*bodies)
    link.lose()
    link.publish(data_section(b"later"))
    rounds = 0
    while True:
        rounds += 1
        part = left[:20]
        attach = link.attach(dict.fromkeys(part, ACCEPTED), incomplete=len(part) < len(left))
        # The broker's map is a part, too, as long as a frame has no room for all.
        assert attach.field(8) is True or rounds > 1
        assert attach.field(8) is (len(keys(attach)) < len(left))
        answers = link.credit(100)
        sent = named(answers, "transfer")
        if part == left:
            break
        # Of what both know, and nothing that is new; then the link is to be attached again.
        assert [one.field(2) for one in sent] == part
        assert all(one.field(8) is True and one.field(4) is True for one in sent)
        (detach,) = named(answers, "detach")
        assert detach.field(1) is not True and detach.error() is None
        exchange(link.peer, detach_frame(1, closed=False))
        left = left[20:]
    assert rounds == 4
    assert [one.field(2) for one in sent[:-1]] == left
    # Both maps are complete: the message that came meanwhile is sent.
    assert sent[-1].payload.endswith(data_section(b"later")) and sent[-1].field(8) is not True
    number = sent[-1].field(1)
    assert isinstance(number, int)
    exchange(link.peer, disposition_frame(number, settled=TRUE, state=ACCEPTED))
    assert waiting(broker.port, link.address) == []


@pytest.mark.spec("2.6.4", "2.7.6")
@pytest.mark.parametrize(("closed", "left"), [(False, [BODIES[1]]), (True, BODIES[:2])])
def test_an_outcome_counts_behind_a_detach_and_not_behind_a_close(
    link: Link, broker: Broker, closed: bool, left: list[bytes]
) -> None:
    tags = link.take(*BODIES[:2])
    outcome = disposition_frame(0, settled=TRUE, state=ACCEPTED)
    exchange(link.peer, detach_frame(1, closed))
    assert not named(exchange(link.peer, outcome), "disposition")
    if not closed:
        # The source has what it has not heard of.
        assert keys(link.attach({tags[1]: NULL})) == tags[1:]
        exchange(link.peer, detach_frame(1))
    found = waiting(broker.port, link.address)
    assert len(found) == len(left)
    assert all(one.endswith(body) for one, body in zip(found, left, strict=True))
