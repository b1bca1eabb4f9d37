"""Deliveries, outcomes and credit as a peer of the running client sees them (AMQP 1.0 §2.6.7,
§2.6.12, §2.7.5, §2.7.6)."""

from __future__ import annotations

import asyncio

import pytest

import ferrymq
from ferrymq import Message
from ferrymq_types.transport import ReceiverSettleMode, SenderSettleMode
from tests.raw.answers import Composite
from tests.raw.frames import (
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    open_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.server import HANDLE, ServedPeer, Server
from tests.raw.values import (
    FALSE,
    TRUE,
    binary,
    composite,
    data_section,
    string,
    ubyte,
    uint,
    ulong,
    ushort,
)
from tests.wire.control import ACCEPTED, RELEASED

PATIENCE = 20
BODY = data_section()
SMALL = open_frame(string("server"), max_frame_size=512)
# Fields of a transfer (AMQP 1.0 §2.7.5).
ID, SETTLED, MORE = 1, 4, 5


def credited(peer: ServedPeer, handle: int = 0) -> None:
    """Wait until the client has given credit on a link."""
    while True:
        flow = peer.expect("flow", "empty")
        if flow.field(4) == handle and flow.field(6):
            return


@pytest.mark.spec("2.7.3")
async def test_the_initial_delivery_count_of_a_receiver_is_ignored() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.expect("attach")
            count = asked.field(9)
            assert isinstance(count, int)
            answer = attach_frame(
                "s", 0, True, source(), target(string("q")),
                initial_delivery_count=uint(count + 77),
            )  # fmt: skip
            # Three from the count of the sender on.
            peer.send(answer, flow_frame(uint(0), uint(3), uint(count), echo=TRUE))
            flow = peer.expect("flow", "empty")
            assert (flow.field(5), flow.field(6)) == (count, 3)
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q", name="s")
            await sender.ready(timeout=PATIENCE)


@pytest.mark.spec("2.7.5")
@pytest.mark.parametrize(("said", "settled"), [(TRUE, True), (FALSE, False), (b"\x40", False)])
async def test_settled_is_taken_over_from_the_frames_before(said: bytes, settled: bool) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            credited(peer)
            peer.send(
                transfer_frame(BODY[:2], 0, uint(0), binary(b"t"), settled=said, more=TRUE),
                transfer_frame(BODY[2:4], 0, more=TRUE),
                transfer_frame(BODY[4:], 0),
            )
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            delivery = await receiver.receive(timeout=PATIENCE)
            assert delivery.settled is settled


@pytest.mark.spec("2.7.5")
async def test_on_a_link_of_mode_first_no_transfer_asks_for_mode_second() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            credited(peer)
            peer.send(transfer_frame(BODY, 0, uint(0), binary(b"t"), rcv_settle_mode=ubyte(1)))
            said = peer.read()
            while said is not None and said.name in ("flow", "empty"):
                said = peer.read()
            assert said is not None and said.name in ("detach", "end"), said
            error = said.error()
            assert error is not None and error[0] == "amqp:invalid-field" and error[1]

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            with pytest.raises(ferrymq.AmqpError):
                await receiver.receive(timeout=PATIENCE)


@pytest.mark.spec("2.7.6")
async def test_a_disposition_is_for_its_range_and_its_direction_over_many_links() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            for _ in range(2):
                peer.attached(peer.expect("attach", "flow", "empty"))
            ids = {peer.expect("transfer", "flow", "empty").field(ID) for _ in range(2)}
            assert ids == {0, 1}
            peer.send(
                # Of deliveries in the other direction, and there are none.
                disposition_frame(0, uint(1), receiver=False, settled=TRUE, state=RELEASED),
                disposition_frame(0, uint(1), settled=TRUE, state=ACCEPTED),
                # They are settled and forgotten: what an id meant once does not come back.
                disposition_frame(0, uint(1), settled=TRUE, state=RELEASED),
            )
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            one = await connection.sender("q", name="one")
            two = await connection.sender("q", name="two")
            await asyncio.gather(*(s.send(Message(b"x"), timeout=PATIENCE) for s in (one, two)))


@pytest.mark.spec("2.8.2")
async def test_settled_and_unsettled_deliveries_share_a_link() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.attached()
            assert asked.field(3) in (None, 2)
            assert peer.expect("transfer", "flow", "empty").field(SETTLED) is True
            assert peer.expect("transfer", "flow", "empty").field(SETTLED) in (None, False)
            peer.send(disposition_frame(1, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.send(Message(b"x"), settled=True)
            await sender.send(Message(b"x"), timeout=PATIENCE)


@pytest.mark.spec("2.7.3")
async def test_a_sender_settles_as_the_receiver_wishes() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached(snd_settle_mode=ubyte(0), rcv_settle_mode=ubyte(0))
            assert peer.expect("transfer", "flow", "empty").field(SETTLED) in (None, False)
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.send(Message(b"x"), timeout=PATIENCE)


@pytest.mark.spec("2.7.5")
async def test_no_frame_of_a_link_that_sends_unsettled_is_settled() -> None:
    def script(server: Server) -> None:
        with server.accept().begin(SMALL) as peer:
            assert peer.attached().field(3) == 0
            frames = [peer.expect("transfer", "flow", "empty")]
            while frames[-1].field(MORE) is True:
                frames.append(peer.expect("transfer", "flow", "empty"))
            assert len(frames) > 3
            assert all(one.field(SETTLED) in (None, False) for one in frames)
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q", snd_settle_mode=SenderSettleMode.UNSETTLED)
            await sender.send(Message(bytes(2000)), timeout=PATIENCE)


@pytest.mark.spec("2.6.14")
async def test_frames_of_two_deliveries_never_alternate() -> None:
    def script(server: Server) -> None:
        with server.accept().open(SMALL) as peer:
            asked = peer.expect("begin")
            peer.send(begin_frame(0, ushort(asked.channel), incoming_window=1))
            peer.attached(credit=0)
            peer.send(flow_frame(uint(0), uint(2), uint(0), incoming_window=1))
            whole = 0
            for number in range(1, 200):
                sent = peer.expect("transfer", "flow", "empty")
                # Each frame is one of the first delivery until that is complete.
                assert sent.field(ID) in ((whole,) if number == 1 else (whole, None))
                if sent.field(MORE) is not True:
                    whole += 1
                if whole == 2:
                    break
                peer.send(flow_frame(next_incoming_id=uint(number), incoming_window=1))
            assert whole == 2
            peer.send(disposition_frame(0, uint(1), settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.send_many([Message(bytes(2000)) for _ in range(2)], timeout=PATIENCE)


@pytest.mark.spec("2.7.5", "3.4")
async def test_an_outcome_that_the_client_gave_is_not_altered_by_the_sender() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.attached()
            assert asked.field(4) == 1
            credited(peer)
            peer.send(transfer_frame(BODY, 0, uint(0), binary(b"t")))
            said = peer.expect("disposition", "flow", "empty")
            state = said.field(4)
            assert isinstance(state, Composite) and state.name == "accepted"
            assert said.field(3) in (None, False)
            peer.send(
                disposition_frame(0, receiver=False, state=composite(0x23, [uint(0), ulong(0)])),
                disposition_frame(0, receiver=False, settled=TRUE),
                # It is settled, and forgotten.
                disposition_frame(0, receiver=False, settled=FALSE, state=RELEASED),
            )
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q", rcv_settle_mode=ReceiverSettleMode.SECOND)
            delivery = await receiver.receive(timeout=PATIENCE)
            await delivery.accept(timeout=PATIENCE)
            assert delivery.settled


@pytest.mark.spec("2.6.12")
async def test_an_outcome_that_the_sender_has_come_to_is_confirmed() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            credited(peer)
            peer.send(transfer_frame(BODY, 0, uint(0), binary(b"0")))
            asked = peer.expect("attach", "flow", "empty")
            last = transfer_frame(data_section(b"last"), 0, uint(2), binary(b"2"))
            peer.send(
                transfer_frame(BODY, 0, uint(1), binary(b"1")),
                disposition_frame(0, uint(1), receiver=False, state=RELEASED),
                last,
            )
            peer.attached(asked)
            said = peer.expect("disposition", "flow", "empty")
            assert (said.field(0), said.field(1), said.field(2)) == (True, 0, 1)
            state = said.field(4)
            assert said.field(3) is True and isinstance(state, Composite)
            assert state.name == "released"
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            held = await receiver.receive(timeout=PATIENCE)
            await connection.receiver("other")
            with pytest.raises(ferrymq.AmqpError):
                await held.accept(timeout=PATIENCE)
            # What nobody has seen is nobody's any more.
            (await receiver.receive(timeout=PATIENCE)).payload.index(b"last")


@pytest.mark.spec("2.6.12", "3.4")
async def test_a_receiver_that_contradicts_its_outcome_loses_its_link() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.expect("transfer", "flow", "empty")
            peer.send(disposition_frame(0, state=ACCEPTED), disposition_frame(0, state=RELEASED))
            error = peer.expect("detach", "flow", "empty").error()
            assert error is not None and error[0] == "amqp:illegal-state" and error[1]
            peer.send(detach_frame(0))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q", rcv_settle_mode=ReceiverSettleMode.SECOND)
            await sender.send(Message(b"x"), timeout=PATIENCE)


@pytest.mark.spec("2.6.7")
async def test_what_is_available_never_falls_below_zero() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            credited(peer)
            peer.send(
                flow_frame(uint(0), delivery_count=uint(0), credit=uint(100), available=uint(1)),
                transfer_frame(BODY, 0, uint(0), binary(b"0"), settled=TRUE),
                transfer_frame(BODY, 0, uint(1), binary(b"1"), settled=TRUE),
                flow_frame(next_outgoing_id=2, echo=TRUE),
                flow_frame(uint(0), delivery_count=uint(2), next_outgoing_id=2, echo=TRUE),
            )
            flow = peer.expect("flow", "empty")
            while flow.field(5) != 2:
                flow = peer.expect("flow", "empty")
            assert flow.field(7) == 0
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            for _ in range(2):
                await receiver.receive(timeout=PATIENCE)


@pytest.mark.spec("2.6.7", "2.7.4")
async def test_messages_come_though_none_were_announced() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            barrier = peer.expect("attach", "flow", "empty")
            peer.send(flow_frame(uint(0), uint(100), uint(0), echo=TRUE) * 2)
            flow = peer.expect("flow", "empty")
            assert (flow.field(4), flow.field(6), flow.field(7)) == (0, 100, 0)
            peer.attached(barrier)
            peer.expect("transfer", "flow", "empty")
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await connection.receiver("q")
            await sender.send(Message(b"x"), timeout=PATIENCE)


@pytest.mark.spec("2.5.6")
async def test_a_transfer_beyond_the_window_ends_the_session() -> None:
    def script(server: Server) -> None:
        with server.accept().open() as peer:
            asked = peer.expect("begin")
            window = asked.field(2)
            assert window == 4
            peer.send(begin_frame(0, ushort(asked.channel)))
            peer.attached()
            credited(peer)
            peer.send(
                *(transfer_frame(BODY[:1], 0, uint(0), binary(b"t"), more=TRUE) for _ in range(5))
            )
            error = peer.expect("end", "flow", "empty").error()
            assert error is not None and error[0] == "amqp:session:window-violation" and error[1]

    with Server(script) as server:
        async with ferrymq.connect(server.url, incoming_window=4) as connection:
            receiver = await connection.receiver("q")
            with pytest.raises(ferrymq.AmqpError):
                await receiver.receive(timeout=PATIENCE)


@pytest.mark.spec("2.6.6")
async def test_a_detach_that_crosses_a_close_is_followed_by_attach_and_close() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            name = peer.attached().field(0)
            assert peer.expect("detach", "flow", "empty").field(1) in (None, False)
            peer.send(detach_frame(0))
            again = peer.expect("attach", "flow", "empty")
            assert again.field(0) == name
            handle = again.field(HANDLE)
            closed = peer.expect("detach", "flow", "empty")
            assert (closed.field(0), closed.field(1)) == (handle, True)
            peer.attached(again, credit=0)
            peer.send(detach_frame(0))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            await receiver.detach(timeout=PATIENCE)


@pytest.mark.spec("2.6.5")
@pytest.mark.parametrize("then", ["transfer", "flow", "attach"])
async def test_what_comes_for_a_link_that_failed_ends_the_session(then: str) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            name = peer.attached().field(0)
            assert isinstance(name, str)
            credited(peer)
            one, two, three = (
                transfer_frame(BODY, 0, uint(n), binary(b"%d" % n), settled=TRUE) for n in range(3)
            )
            later = {
                "transfer": three,
                "flow": flow_frame(uint(0), delivery_count=uint(2), next_outgoing_id=2),
                "attach": attach_frame(name, 1, False, source(string("q")), target()),
            }
            # The second one has no credit.
            peer.send(one, two, later[then])
            assert (
                peer.expect("detach", "flow", "empty").condition
                == "amqp:link:transfer-limit-exceeded"
            )
            error = peer.expect("end", "flow", "empty").error()
            assert error is not None and error[0] == "amqp:session:errant-link" and error[1]

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q", credit=1)
            with pytest.raises(ferrymq.AmqpError):
                for _ in range(3):
                    await receiver.receive(timeout=PATIENCE)


@pytest.mark.spec("2.6.5")
async def test_the_endpoint_that_failed_is_gone() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.attached()
            credited(peer)
            peer.send(
                *(
                    transfer_frame(BODY, 0, uint(n), binary(b"%d" % n), settled=TRUE)
                    for n in range(2)
                )
            )
            assert peer.expect("detach", "flow", "empty").error() is not None
            peer.send(detach_frame(0))
            # Its name and its handle are free, and nothing of it is left.
            again = peer.attached(peer.expect("attach", "flow", "empty"))
            assert (again.field(0), again.field(1)) == (asked.field(0), asked.field(1))
            assert again.field(7) is None
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q", name="r", credit=1)
            with pytest.raises(ferrymq.AmqpError):
                for _ in range(3):
                    await receiver.receive(timeout=PATIENCE)
            await connection.receiver("q", name="r", credit=1)
