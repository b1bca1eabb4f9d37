"""What a source decides on the deliveries it resumes (AMQP 1.0 §3.4.6), against a raw server."""

from __future__ import annotations

import asyncio

import pytest

import ferrymq
from ferrymq import ReconnectPolicy
from ferrymq.errors import PeerError
from tests.raw.answers import Composite
from tests.raw.frames import source, target, transfer_frame
from tests.raw.server import UNSETTLED, ServedPeer, Server
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
)

POLICY = ReconnectPolicy(initial=0.01)
TAG = b"t"
ACCEPTED = composite(0x24, [])
RELEASED = composite(0x26, [])
WHERE = source(string("q"), durable=uint(2), expiry=symbol("never"))


def attach(peer: ServedPeer, state: bytes | None = None) -> dict[bytes, object]:
    """Answer the receiver's attach; what the client has unsettled. `state` is the source's."""
    peer.begin()
    asked = peer.expect("attach")
    unsettled = NULL if state is None else mapping(binary(TAG), state)
    mode = ubyte(1) if asked.field(4) == 1 else NULL
    peer.attached(
        asked, source_sent=WHERE, target_sent=target(), unsettled=unsettled, rcv_settle_mode=mode
    )
    told = asked.field(UNSETTLED)
    assert told is None or isinstance(told, dict)
    return told or {}


def resume(peer: ServedPeer, state: bytes, settled: bytes) -> None:
    """Resume the delivery with a state and without a payload."""
    peer.expect("flow")
    peer.send(
        transfer_frame(b"", 0, uint(0), binary(TAG), settled=settled, state=state, resume=TRUE)
    )


def settles_with(peer: ServedPeer, name: str) -> None:
    """Check that the client repeats the source's outcome and settles."""
    said = peer.expect("disposition", "flow", "empty")
    state = said.field(4)
    assert said.field(3) is True and isinstance(state, Composite) and state.name == name


@pytest.mark.spec("3.4.6")
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
@pytest.mark.parametrize(
    ("state", "name"),
    [(RELEASED, "released"), (ACCEPTED, "accepted")],
    ids=["released", "accepted"],
)
async def test_a_part_that_is_resumed_with_an_outcome_is_no_message(
    state: bytes, name: str, settled: bytes
) -> None:
    whole = data_section(b"x" * 200)

    def script(server: Server) -> None:
        with server.accept() as peer:
            attach(peer)
            peer.expect("flow")
            peer.send(transfer_frame(whole[:106], 0, uint(0), binary(TAG), more=TRUE))
        with server.accept() as peer:
            told = attach(peer, state)[TAG]
            assert isinstance(told, Composite) and told.name == "received"
            resume(peer, state, settled)
            if settled == NULL:
                settles_with(peer, name)
            peer.send(transfer_frame(data_section(b"next"), 0, uint(1), binary(b"u"), settled=TRUE))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url, container_id="me", reconnect=POLICY) as connection:
            receiver = await connection.receiver("q", name="in", durable=True)
            delivery = await receiver.receive(timeout=10)
            assert delivery.message.body == b"next"


@pytest.mark.spec("3.4.6")
@pytest.mark.parametrize("once", [False, True], ids=["first", "exactly-once"])
@pytest.mark.parametrize("settled", [NULL, TRUE], ids=["unsettled", "settled"])
@pytest.mark.parametrize("when", ["meanwhile", "afterwards"])
async def test_accept_fails_if_the_source_has_released_the_message(
    when: str, settled: bytes, once: bool
) -> None:
    taken, back, given = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(server: Server) -> None:
        with server.accept() as peer:
            attach(peer)
            peer.expect("flow")
            peer.send(transfer_frame(data_section(b"one"), 0, uint(0), binary(TAG)))
            asyncio.run_coroutine_threadsafe(taken.wait(), loop).result(10)
        with server.accept() as peer:
            loop.call_soon_threadsafe(back.set)
            asyncio.run_coroutine_threadsafe(given.wait(), loop).result(10)
            assert TAG in attach(peer, RELEASED)
            resume(peer, RELEASED, settled)
            if settled == NULL:
                settles_with(peer, "released")
            # What comes next has come behind that.
            peer.send(transfer_frame(data_section(b"two"), 0, uint(1), binary(b"u")))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url, container_id="me", reconnect=POLICY) as connection:
            receiver = await connection.receiver("q", name="in", durable=True, exactly_once=once)
            delivery = await receiver.receive(timeout=10)
            taken.set()
            await back.wait()
            if when == "meanwhile":
                # The outcome waits for the link.
                accepting = asyncio.create_task(delivery.accept(timeout=10))
                await asyncio.sleep(0)
            given.set()
            assert (await receiver.receive(timeout=10)).message.body == b"two"
            if when == "afterwards":
                accepting = asyncio.create_task(delivery.accept(timeout=10))
            with pytest.raises(PeerError):
                await accepting
