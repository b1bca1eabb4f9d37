"""Transactions of the running client as a coordinator made of raw frames sees them (AMQP 1.0 part
4, broker book §3)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_types.transport import ReceiverSettleMode
from tests.raw.answers import Answer, Composite
from tests.raw.frames import (
    COORDINATOR,
    disposition_frame,
    open_frame,
    transfer_frame,
)
from tests.raw.server import HANDLE, TARGET_OF, ServedPeer, Server
from tests.raw.values import (
    TRUE,
    array,
    binary,
    composite,
    data_section,
    string,
    uint,
)
from tests.wire.control import ACCEPTED, in_transaction

PATIENCE = 20
TXN = b"one"
LOCAL = array(b"\xa3", 1, b"\x17amqp:local-transactions")
# Fields of a transfer and of a disposition (AMQP 1.0 §2.7.5, §2.7.6).
ID, SETTLED, MORE, STATE = 1, 4, 5, 7
FIRST, SAID_SETTLED, SAID_STATE = 1, 3, 4


class Coordinating:
    """A peer whose client has one control link; `link` answers the other attach."""

    def __init__(self, peer: ServedPeer) -> None:
        self.peer = peer
        self.control = -1

    def attach(self) -> Answer:
        """Answer the attach that comes next, whichever it is."""
        asked = self.peer.expect("attach", "flow", "empty")
        found = asked.field(TARGET_OF)
        if isinstance(found, Composite) and found.name == "coordinator":
            handle = asked.field(HANDLE)
            assert isinstance(handle, int)
            self.control = handle
            self.peer.attached(asked, target_sent=composite(COORDINATOR, [LOCAL]))
        else:
            self.peer.attached(asked)
        return asked

    def request(self) -> Answer:
        """Read the next frame on the control link, which is a whole message."""
        said = self.peer.expect("transfer", "flow", "empty")
        assert said.field(0) == self.control and not said.field(MORE)
        return said

    def declare(self) -> None:
        """Answer the declare that comes next."""
        self.answer(self.request(), composite(0x33, [binary(TXN)]))

    def answer(self, said: Answer, state: bytes) -> None:
        """Settle a message of the client."""
        number = said.field(ID)
        assert isinstance(number, int)
        self.peer.send(disposition_frame(number, settled=TRUE, state=state))


async def transact(
    script: Callable[[Coordinating], None],
    work: Callable[[ferrymq.Connection], Coroutine[None, None, None]],
) -> None:
    """Do work over a connection to a server that takes frames of 512 bytes."""

    def serve(server: Server) -> None:
        small = open_frame(string("server"), max_frame_size=512)
        with server.accept().begin(small) as peer:
            script(Coordinating(peer))
            peer.finish()

    with Server(serve) as server:
        async with ferrymq.connect(server.url) as connection:
            await work(connection)


def names_it(state: object) -> Composite:
    """Check that a state is one of the transaction."""
    assert isinstance(state, Composite) and state.name == "transactional-state"
    assert state.field(0) == TXN
    return state


@pytest.mark.spec("4.4.1", "broker-3")
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
async def test_each_frame_names_the_transaction_and_settling_waits_for_the_discharge(
    second: bool,
) -> None:
    def script(at: Coordinating) -> None:
        peer = at.peer
        at.attach()
        at.attach()
        at.declare()
        frames = [peer.expect("transfer", "flow", "empty")]
        while frames[-1].field(MORE) is True:
            frames.append(peer.expect("transfer", "flow", "empty"))
        assert len(frames) > 3
        for one in frames:
            names_it(one.field(STATE))
            assert one.field(SETTLED) in (None, False)
        number = frames[0].field(ID)
        assert isinstance(number, int)
        state = in_transaction(TXN, ACCEPTED)
        # It is left to the sender to settle, or settled here.
        peer.send(disposition_frame(number, settled=b"\x42" if second else TRUE, state=state))
        # No disposition comes before the discharge, nor before it is done.
        at.answer(at.request(), ACCEPTED)
        if second:
            said = peer.expect("disposition", "flow", "empty")
            assert (said.field(0), said.field(FIRST), said.field(SAID_SETTLED)) == (
                False, number, True,
            )  # fmt: skip

    async def work(connection: ferrymq.Connection) -> None:
        mode = ReceiverSettleMode.SECOND if second else ReceiverSettleMode.FIRST
        sender = await connection.sender("q", rcv_settle_mode=mode)
        async with connection.transaction() as transaction:
            await sender.send(Message(bytes(2000)), transaction=transaction, timeout=PATIENCE)

    await transact(script, work)


@pytest.mark.spec("4.4.2", "broker-3")
@pytest.mark.parametrize(("outcome", "name"), [("accept", "accepted"), ("release", "released")])
async def test_an_outcome_in_a_transaction_is_settled_after_the_discharge(
    outcome: str, name: str
) -> None:
    def script(at: Coordinating) -> None:
        peer = at.peer
        at.attach()
        while not peer.expect("flow", "empty").field(6):
            pass
        peer.send(transfer_frame(data_section(), 0, uint(0), binary(b"t")))
        at.attach()
        at.declare()
        said = peer.expect("disposition", "flow", "empty")
        assert (said.field(0), said.field(FIRST)) == (True, 0)
        # The state says what is to come of it, and the delivery is not settled yet.
        given = names_it(said.field(SAID_STATE)).field(1)
        assert isinstance(given, Composite) and given.name == name
        assert said.field(SAID_SETTLED) in (None, False)
        at.answer(at.request(), ACCEPTED)
        # Settled by the node, as part of the discharge.
        peer.send(disposition_frame(0, receiver=False, settled=TRUE))

    async def work(connection: ferrymq.Connection) -> None:
        receiver = await connection.receiver("q")
        delivery = await receiver.receive(timeout=PATIENCE)
        async with connection.transaction() as transaction:
            await getattr(delivery, outcome)(transaction=transaction)
            assert not delivery.settled
        assert delivery.settled

    await transact(script, work)
