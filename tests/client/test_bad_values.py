"""Values that cannot be encoded: the call that gives one raises, and the connection goes on.

Nothing of the frame stays in the output, whatever the error is: the frames behind it are read by
the peer as if the call had not been made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine import events
from ferrymq_types.messaging import Accepted, Data
from ferrymq_types.transport import Error
from tests.client.peer import Peer

# The compiled build refuses some of them before they are encoded.
WRONG = (ferrymq.EncodeError, TypeError, AttributeError, ValueError)
BAD: Any = {5: 1}
UNKNOWN: Any = {"x": object()}
# Not the Error of the engine, but what a user may hand in by mistake.
INFO = Error(condition="app:wrong", info=BAD)


class Raises(dict[str, object]):
    """A map that fails half-way with an error of its own."""

    def items(self) -> Any:
        """Fail behind the first pair."""
        yield "a", 1
        raise LookupError("broken")


SETTLING: dict[str, Callable[[ferrymq.Delivery], Awaitable[None]]] = {
    "key": lambda delivery: delivery.modify(message_annotations=BAD),
    "value": lambda delivery: delivery.modify(message_annotations=UNKNOWN),
    "info": lambda delivery: delivery.reject(INFO),
    "condition": lambda delivery: delivery.reject("not ASCII: é"),
}


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize("settle", SETTLING.values(), ids=SETTLING)
async def test_an_outcome_that_cannot_be_encoded_leaves_nothing_in_the_output(
    peer: Peer,
    connection: ferrymq.Connection,
    settle: Callable[[ferrymq.Delivery], Awaitable[None]],
) -> None:
    peer.put("orders", "a", "b")
    receiver = await connection.receiver("orders")
    for _ in range(2):
        delivery = await receiver.receive()
        with pytest.raises(WRONG):
            await settle(delivery)
        assert not delivery.settled
        await delivery.accept()
    await peer.seen(events.OutcomeReceived, 2)
    assert all(
        event.delivery.remote_state == Accepted()
        for event in peer.events
        if isinstance(event, events.OutcomeReceived)
    )
    assert not peer.count(events.Terminated)


@pytest.mark.spec("2.3.1")
async def test_an_attach_that_cannot_be_encoded_leaves_nothing_in_the_output(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    for wrong in (BAD, UNKNOWN):
        with pytest.raises(WRONG):
            await connection.receiver("orders", properties=wrong)
    async with connection.sender("orders") as sender:
        await sender.send(Message("whole"))
    assert [message.body for message in peer.received["orders"]] == ["whole"]


@pytest.mark.spec("2.3.1")
@pytest.mark.parametrize(
    "wrong", [{"tag": "text"}, {"tag": 5}, {"message_format": "x"}], ids=["str", "int", "format"]
)
async def test_a_transfer_that_cannot_be_encoded_takes_nothing(
    peer: Peer, connection: ferrymq.Connection, wrong: dict[str, Any]
) -> None:
    async with connection.sender("orders") as sender:
        link = next(iter(sender.session._engine.links.values()))
        credit, count, ours = link.credit, link.delivery_count, link.session.outgoing
        before = (ours.next_id, ours.remote_window, len(ours.unsettled))
        with pytest.raises(WRONG):
            link.send(Message("half").encode(), **wrong)  # type: ignore[attr-defined]
        assert (link.credit, link.delivery_count) == (credit, count)
        assert (ours.next_id, ours.remote_window, len(ours.unsettled)) == before
        for body in ("one", "two"):
            await sender.send(Message(body))
    assert [message.body for message in peer.received["orders"]] == ["one", "two"]


@pytest.mark.spec("2.3.1")
async def test_a_payload_that_is_no_bytes_takes_nothing(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    async with connection.sender("orders") as sender:
        link = next(iter(sender.session._engine.links.values()))
        credit = link.credit
        for wrong in ("text", [1, 2]):
            with pytest.raises(WRONG):
                link.send(wrong)  # type: ignore[attr-defined]
        assert link.credit == credit
        await sender.send(Message([Data(b"whole")]))
    assert [message.body for message in peer.received["orders"]] == [b"whole"]


@pytest.mark.spec("2.3.1")
async def test_any_exception_leaves_nothing_in_the_output(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    peer.put("orders", "a")
    receiver = await connection.receiver("orders")
    delivery = await receiver.receive()
    with pytest.raises((LookupError, ferrymq.EncodeError)):
        await delivery.modify(message_annotations={"x": 1, "y": Raises(a=1)})
    await delivery.accept()
    await peer.seen(events.OutcomeReceived)
    assert not peer.count(events.Terminated)


@pytest.mark.spec("2.4.3")
async def test_a_close_that_cannot_be_encoded_can_be_repeated(
    peer: Peer, connection: ferrymq.Connection
) -> None:
    with pytest.raises(WRONG):
        await connection.close(error=INFO)
    await connection.close(error=Error(condition="app:whole", info={"why": "x"}))
    closed = await peer.seen(events.CloseReceived)
    assert closed.error is not None and closed.error.info == {"why": "x"}
