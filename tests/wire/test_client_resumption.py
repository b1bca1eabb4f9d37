"""Links that the running client resumes, as their peer sees them (AMQP 1.0 §2.6.13, §3.4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.unsettled import Unsettled
from ferrymq_types.messaging import Accepted
from tests.raw.answers import Answer, Composite
from tests.raw.frames import (
    attach_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.server import HANDLE, RECEIVES, UNSETTLED, ServedPeer, Server
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
from tests.wire.control import ACCEPTED, RELEASED

PATIENCE = 20
POLICY = ReconnectPolicy(initial=0.01)
TAG = b"t"
BODY = bytes(range(256)) * 8
KEPT = target(string("q"), durable=uint(2), expiry=symbol("never"))
KEPT_SOURCE = source(string("q"), durable=uint(2), expiry=symbol("never"))
SMALL = open_frame(string("server"), max_frame_size=512)
# Fields of a transfer (AMQP 1.0 §2.7.5).
ID, TAG_OF, SETTLED, MORE, STATE, RESUME, ABORTED = 1, 2, 4, 5, 7, 8, 9


def received(section: int, offset: int) -> bytes:
    """Encode the state received (AMQP 1.0 §3.4.1)."""
    return composite(0x23, [uint(section), ulong(offset)])


def attached(peer: ServedPeer, *known: bytes) -> dict[object, object]:
    """Answer the attach of a sender with a map; return the client's map."""
    asked = peer.expect("attach", "flow", "empty")
    told = asked.field(UNSETTLED)
    assert isinstance(told, dict)
    # No tag is null, and what has no outcome claims none.
    assert all(isinstance(tag, bytes) for tag in told)
    peer.attached(asked, target_sent=KEPT, unsettled=mapping(*known))
    return told


def answer(peer: ServedPeer, asked: Answer, unsettled: bytes, incomplete: bytes) -> None:
    """Answer an attach with a map that may be incomplete."""
    name, handle, receives = asked.field(0), asked.field(HANDLE), asked.field(RECEIVES)
    assert isinstance(name, str) and isinstance(handle, int)
    peer.send(
        attach_frame(
            name, handle, receives is False, KEPT_SOURCE, KEPT, snd_settle_mode=ubyte(0),
            rcv_settle_mode=ubyte(1), unsettled=unsettled, incomplete=incomplete,
        )
    )  # fmt: skip
    if receives is False:
        peer.send(flow_frame(uint(handle), uint(100), uint(0)))


def arrives(peer: ServedPeer) -> list[Answer]:
    """Read the frames of one delivery."""
    frames = [peer.expect("transfer", "flow", "empty")]
    while frames[-1].field(MORE) is True:
        frames.append(peer.expect("transfer", "flow", "empty"))
    assert isinstance(frames[0].field(ID), int)
    return frames


async def resumed(
    script: Callable[[ServedPeer], None], *notes: Unsettled, opening: bytes = b""
) -> dict[bytes, ferrymq.AmqpError | None]:
    """Resume a sender with what an earlier process had unsettled; what became of it."""

    def serve(server: Server) -> None:
        with server.accept().begin(opening) as peer:
            script(peer)
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url, container_id="me") as connection:
            sender = await connection.sender("q", name="out", exactly_once=True, unsettled=notes)
            ends = await sender.resumed(timeout=PATIENCE)
            # What is resumed takes credit.
            await sender.ready(timeout=PATIENCE)
            for tag in ends:
                sender.settle(tag)
            return ends


def sent(state: Accepted | None = None) -> Unsettled:
    """What the sender knows of a delivery that it has sent."""
    return Unsettled(TAG, Message(BODY).encode(), state)


@pytest.mark.spec("3.4.6")
async def test_what_the_receiver_does_not_know_is_sent_as_new() -> None:
    def script(peer: ServedPeer) -> None:
        # What only the receiver has is nothing that could be resumed.
        told = attached(peer, binary(b"another"), NULL)
        assert told == {TAG: None}
        frames = arrives(peer)
        assert frames[0].field(TAG_OF) == TAG
        assert not any(one.field(RESUME) for one in frames)
        assert all(one.field(STATE) is None for one in frames)
        assert b"".join(one.payload for one in frames) == sent().payload
        peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))

    assert await resumed(script, sent(), opening=SMALL) == {TAG: None}


@pytest.mark.spec("2.6.13", "3.4.6")
async def test_what_the_receiver_knows_without_data_is_resumed_as_a_whole() -> None:
    def script(peer: ServedPeer) -> None:
        attached(peer, binary(TAG), NULL)
        frames = arrives(peer)
        assert frames[0].field(TAG_OF) == TAG
        assert frames[0].field(RESUME) is True
        assert b"".join(one.payload for one in frames) == sent().payload
        peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))

    assert await resumed(script, sent()) == {TAG: None}


@pytest.mark.spec("2.7.5", "3.4.1")
async def test_what_the_receiver_has_in_part_goes_on_where_it_ends() -> None:
    def script(peer: ServedPeer) -> None:
        attached(peer, binary(TAG), received(0, 700))
        first, *later = arrives(peer)
        assert first.field(TAG_OF) == TAG and first.field(RESUME) is True
        assert len(later) > 1
        state = first.field(STATE)
        assert isinstance(state, Composite) and state == Composite("received", [0, 700])
        # The position is told once; each later frame is one of a resumed delivery or says nothing.
        assert all(one.field(STATE) is None for one in later)
        assert all(one.field(RESUME) in (True, False, None) for one in later)
        assert b"".join(one.payload for one in (first, *later)) == sent().payload[700:]
        peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))

    assert await resumed(script, sent(), opening=SMALL) == {TAG: None}


@pytest.mark.spec("3.4.6")
async def test_an_outcome_of_the_receiver_is_confirmed_by_a_transfer_of_the_outcome_alone() -> None:
    def script(peer: ServedPeer) -> None:
        told = attached(peer, binary(TAG), ACCEPTED)
        # The sender claims no outcome that it has not heard.
        assert told == {TAG: None}
        # The old delivery-id means nothing here.
        peer.send(disposition_frame(5, settled=TRUE, state=RELEASED))
        (only,) = arrives(peer)
        assert (only.field(ID), only.field(TAG_OF)) == (0, TAG)
        assert only.field(RESUME) is True and only.field(SETTLED) is True
        state = only.field(STATE)
        assert isinstance(state, Composite) and state.name == "accepted"
        assert only.payload == b""

    assert await resumed(script, sent()) == {TAG: None}


@pytest.mark.spec("3.4.6")
async def test_the_same_outcome_at_both_ends_is_settled() -> None:
    def script(peer: ServedPeer) -> None:
        (state,) = attached(peer, binary(TAG), ACCEPTED).values()
        assert isinstance(state, Composite) and state.name == "accepted"
        (only,) = arrives(peer)
        assert only.field(RESUME) is True and only.field(SETTLED) is True
        assert only.payload == b""

    assert await resumed(script, sent(Accepted())) == {TAG: None}


@pytest.mark.spec("3.4.6")
async def test_of_two_outcomes_that_differ_the_senders_is_stated_again() -> None:
    def script(peer: ServedPeer) -> None:
        attached(peer, binary(TAG), RELEASED)
        (only,) = arrives(peer)
        assert only.field(RESUME) is True and only.field(SETTLED) in (None, False)
        state = only.field(STATE)
        assert isinstance(state, Composite) and state.name == "accepted"
        assert only.payload == b""
        peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))

    assert await resumed(script, sent(Accepted())) == {TAG: None}


@pytest.mark.spec("2.7.5", "3.4.6")
async def test_what_has_an_outcome_and_came_in_part_is_aborted() -> None:
    def script(peer: ServedPeer) -> None:
        attached(peer, binary(TAG), received(0, 7))
        only = peer.expect("transfer", "flow", "empty")
        assert only.field(TAG_OF) == TAG
        assert only.field(ABORTED) is True and only.field(MORE) in (None, False)
        assert only.payload == b""

    await resumed(script, sent(Accepted()))


@pytest.mark.spec("2.7.3")
async def test_a_map_with_a_null_key_is_refused() -> None:
    def script(peer: ServedPeer) -> None:
        peer.attached(target_sent=KEPT, unsettled=mapping(NULL, NULL))
        error = peer.expect("end", "flow", "empty").error()
        assert error is not None and error[0] == "amqp:invalid-field" and error[1]

    with pytest.raises(ferrymq.AmqpError):
        await resumed(script, sent())


@pytest.mark.spec("2.6.13", "2.7.3")
async def test_nothing_new_is_sent_while_the_map_of_the_receiver_is_incomplete() -> None:
    def serve(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached(target_sent=KEPT)
            arrives(peer)
            arrives(peer)
        with server.accept().begin() as peer:
            answer(peer, peer.expect("attach"), mapping(), TRUE)
            # It may be what the map had no room for: the link is attached again before all else.
            detached = peer.expect("detach", "flow", "empty")
            assert detached.field(1) in (None, False)
            peer.send(detach_frame(0, closed=False))
            answer(peer, peer.expect("attach", "flow", "empty"), mapping(), NULL)
            for number, tag in enumerate((TAG, b"new")):
                (only,) = arrives(peer)
                assert only.field(TAG_OF) == tag and not only.field(RESUME)
                peer.send(disposition_frame(number, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url, container_id="me", reconnect=POLICY) as connection:
            sender = await connection.sender("q", name="out", exactly_once=True)
            await asyncio.gather(
                sender.send(Message(b"x"), delivery_tag=TAG, timeout=PATIENCE),
                sender.send(Message(b"new"), delivery_tag=b"new", timeout=PATIENCE),
            )


@pytest.mark.spec("2.7.3")
async def test_a_link_that_is_not_resumed_has_no_map() -> None:
    def serve(server: Server) -> None:
        for _ in range(2):
            with server.accept().begin() as peer:
                asked = peer.attached()
                assert asked.field(UNSETTLED) is None
                arrives(peer)
                # Lost with a delivery that is unsettled.
        with server.accept().begin() as peer:
            assert peer.attached().field(UNSETTLED) is None
            peer.finish()

    with Server(serve) as server:
        policy = ReconnectPolicy(initial=0.01, resend=False)
        async with ferrymq.connect(server.url, reconnect=policy) as connection:
            sender = await connection.sender("q", name="out")
            for _ in range(2):
                with pytest.raises(ferrymq.AmqpError):
                    await sender.send(Message(b"x"), timeout=PATIENCE)
            await sender.ready(timeout=PATIENCE)


@pytest.mark.spec("2.6.5")
async def test_after_an_error_of_the_link_it_is_resumed() -> None:
    error = composite(0x1D, [symbol("com.example:broken")])

    def serve(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached(target_sent=KEPT)
            arrives(peer)
            peer.send(frame(composite(0x16, [uint(0), NULL, error])))
            peer.expect("detach", "flow", "empty")
            assert attached(peer, binary(TAG), ACCEPTED) == {TAG: None}
            (again,) = arrives(peer)
            assert again.field(RESUME) is True and again.field(SETTLED) is True
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url, container_id="me") as connection:
            sender = await connection.sender("q", name="out", exactly_once=True)
            with pytest.raises(ferrymq.AmqpError, match="broken"):
                await sender.send(Message(b"x"), delivery_tag=TAG, timeout=PATIENCE)
            left = sender.unsettled_deliveries()
            again = await connection.sender("q", name="out", exactly_once=True, unsettled=left)
            assert await again.resumed(timeout=PATIENCE) == {TAG: None}
            await again.ready(timeout=PATIENCE)
            again.settle(TAG)


# -- receivers -----------------------------------------------------------------------------


def attached_source(peer: ServedPeer, *known: bytes) -> Answer:
    """Answer the attach of a receiver and wait for its credit; `known` is the source's map."""
    asked = peer.expect("attach", "flow", "empty")
    peer.attached(
        asked, source_sent=KEPT_SOURCE, target_sent=target(),
        unsettled=mapping(*known) if known else NULL,
    )  # fmt: skip
    peer.expect("flow", "empty")
    return asked


@pytest.mark.spec("2.6.13", "2.7.5")
async def test_a_resumed_delivery_that_the_receiver_does_not_know_is_ignored() -> None:
    def serve(server: Server) -> None:
        with server.accept().begin() as peer:
            attached_source(peer)
            peer.send(
                transfer_frame(data_section(b"old"), 0, uint(0), binary(TAG), resume=TRUE),
                transfer_frame(data_section(b"new"), 0, uint(1), binary(b"u"), settled=TRUE),
            )
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url, container_id="me") as connection:
            receiver = await connection.receiver("q", name="in", durable=True)
            assert (await receiver.receive(timeout=PATIENCE)).message.body == b"new"
            assert receiver.queued == 0


@pytest.mark.spec("3.4.1", "3.4.6")
@pytest.mark.parametrize("begins", [0, 50, 106])
async def test_of_a_resumed_delivery_the_receiver_skips_what_it_has(begins: int) -> None:
    whole = data_section(bytes(range(200)))

    def serve(server: Server) -> None:
        with server.accept().begin() as peer:
            attached_source(peer)
            peer.send(transfer_frame(whole[:106], 0, uint(0), binary(TAG), more=TRUE))
        with server.accept().begin() as peer:
            asked = attached_source(peer, binary(TAG), NULL)
            # The first octet that it lacks.
            assert asked.field(UNSETTLED) == {TAG: Composite("received", [0, 106])}
            state = received(0, begins)
            rest = whole[begins:]
            peer.send(
                transfer_frame(
                    rest[:70], 0, uint(0), binary(TAG), state=state, resume=TRUE, more=TRUE
                ),
                transfer_frame(rest[70:], 0),
            )
            said = peer.expect("disposition", "flow", "empty")
            assert said.field(1) == 0
            peer.send(disposition_frame(0, receiver=False, settled=TRUE))
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url, container_id="me", reconnect=POLICY) as connection:
            receiver = await connection.receiver("q", name="in", durable=True)
            delivery = await receiver.receive(timeout=PATIENCE)
            assert delivery.message.body == bytes(range(200))
            await delivery.accept(timeout=PATIENCE)


@pytest.mark.spec("2.7.3")
async def test_a_receiver_whose_map_was_incomplete_refuses_new_deliveries() -> None:
    notes = [Unsettled(b"%032d" % number, state=Accepted()) for number in range(40)]

    def serve(server: Server) -> None:
        with server.accept().begin(SMALL) as peer:
            asked = peer.expect("attach", "flow", "empty")
            told = asked.field(UNSETTLED)
            assert isinstance(told, dict) and 0 < len(told) < 40
            assert asked.field(8) is True
            known = [part for tag in told for part in (binary(tag), NULL)]
            answer(peer, asked, mapping(*known), TRUE)
            while not peer.expect("flow", "empty").field(6):
                pass
            peer.send(transfer_frame(data_section(), 0, uint(0), binary(b"new"), settled=TRUE))
            error = peer.expect("detach", "flow", "empty").error()
            assert error is not None and error[0] and error[1]
            peer.send(detach_frame(0))
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url, container_id="me") as connection:
            with pytest.raises(ferrymq.AmqpError):
                receiver = await connection.receiver(
                    "q", name="in", exactly_once=True, unsettled=notes
                )
                await receiver.receive(timeout=PATIENCE)
