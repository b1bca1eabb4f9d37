"""Links, credit, windows and settlement as a peer of the running client sees them (AMQP 1.0 §2.5.6
to §2.7)."""

from __future__ import annotations

import pytest

import ferrymq
from ferrymq import Message
from tests.raw.answers import Composite
from tests.raw.frames import (
    COORDINATOR,
    OPEN,
    attach_frame,
    begin_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.server import Server
from tests.raw.values import (
    FALSE,
    NULL,
    TRUE,
    binary,
    composite,
    data_section,
    mapping,
    string,
    symbol,
    uint,
    ushort,
)
from tests.wire.control import ACCEPTED

PATIENCE = 20
BODIES = [data_section(b"%d" % number) for number in range(5)]
HIGH = 0xFFFFFFFE


@pytest.mark.spec("2.6.2")
async def test_handles_are_the_lowest_that_are_free_and_a_detach_frees_them() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            for name, handle, ours in (("a", 0, 7), ("b", 1, 9), ("c", 0, 7)):
                asked = peer.expect("attach", "flow", "empty")
                # Name, handle and role.
                assert [asked.field(at) for at in range(3)] == [name, handle, False]
                assert isinstance(asked.field(9), int)
                # The server's handles are its own.
                answer = attach_frame(name, ours, True, source(), target(string("q")))
                peer.send(answer, flow_frame(uint(ours), uint(10), uint(0)))
                if name == "b":
                    gone = peer.expect("detach", "flow", "empty")
                    assert (gone.field(0), gone.field(1)) == (0, True)
                    peer.send(detach_frame(7))
            # A closing detach of the server is answered by one.
            peer.send(detach_frame(9))
            gone = peer.expect("detach", "transfer", "flow", "empty")
            assert (gone.field(0), gone.field(1)) == (1, True)
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            first = await connection.sender("q", name="a")
            second = await connection.sender("q", name="b")
            await first.close()
            await connection.sender("q", name="c")
            with pytest.raises(ferrymq.AmqpError):
                await second.send(Message(b"x"), timeout=PATIENCE)
                await second.send(Message(b"x"), timeout=PATIENCE)


@pytest.mark.spec("2.6.3")
@pytest.mark.parametrize("coordinates", [False, True], ids=["node", "coordinator"])
async def test_a_link_that_the_server_begins_is_refused(coordinates: bool) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.expect("attach")
            where = composite(COORDINATOR, []) if coordinates else target(string("yours"))
            peer.send(attach_frame("uninvited", 3, False, source(string("mine")), where))
            answer = peer.expect("attach", "flow", "empty")
            assert (answer.field(0), answer.field(2)) == ("uninvited", True)
            # No terminus is there, and why not is said at once.
            assert answer.field(6) is None
            error = peer.expect("detach", "flow").error()
            assert error is not None and all(error)
            peer.attached(asked)
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.receiver("q")


@pytest.mark.spec("2.6.1")
async def test_a_link_that_is_attached_again_elsewhere_is_told_that_it_was_stolen() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            name = peer.attached().field(0)
            assert isinstance(name, str)
            peer.expect("flow", "empty")
            where = target(string("mine"))
            peer.send(attach_frame(name, 1, False, source(string("q")), where))
            stolen = peer.expect("detach", "flow", "empty")
            assert stolen.field(0) == 0
            assert stolen.condition == "amqp:link:stolen"
            peer.send(detach_frame(0))
            # Which does not mean that the newcomer is wanted.
            assert peer.expect("attach", "flow", "empty").field(0) == name
            assert peer.expect("detach", "flow", "empty").error() is not None
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            with pytest.raises(ferrymq.AmqpError):
                await receiver.receive(timeout=PATIENCE)


@pytest.mark.spec("pairing-2.2.2")
async def test_the_second_half_of_a_pair_waits_for_the_first() -> None:
    capability = symbol("LINK_PAIR_V1_0")
    opening = frame(composite(OPEN, [string("server"), *[NULL] * 6, capability]))

    def script(server: Server) -> None:
        with server.accept().begin(opening) as peer:
            for _ in range(2):
                asked = peer.expect("attach", "flow", "empty")
                # Nothing of the other half is on its way.
                peer.send(flow_frame(echo=TRUE))
                flow = peer.expect("flow", "empty")
                while flow.field(4) is not None:
                    flow = peer.expect("flow", "empty")
                assert asked.field(13) == {"paired": True}
                name, handle, receives = (asked.field(at) for at in range(3))
                assert isinstance(name, str) and isinstance(handle, int)
                here, there = source(string("$me")), target(string("service"))
                if receives:
                    here, there = source(string("service")), target(string("$me"))
                paired = mapping(symbol("paired"), TRUE)
                peer.send(attach_frame(name, handle, not receives, here, there, properties=paired))
            peer.finish()

    with Server(script) as server:
        wanted = ["LINK_PAIR_V1_0"]
        async with ferrymq.connect(server.url, desired_capabilities=wanted) as connection:
            await connection.pair("service")


@pytest.mark.spec("2.7.6")
async def test_an_outcome_counts_after_the_link_was_detached() -> None:
    kept = target(string("q"), durable=uint(2), expiry=symbol("never"))

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached(target_sent=kept)
            peer.expect("transfer", "flow", "empty")
            assert peer.expect("detach", "flow", "empty").field(1) in (None, False)
            peer.send(disposition_frame(0, state=ACCEPTED), detach_frame(0, closed=False))
            # Settled, as the sender does in mode second, and forgotten.
            said = peer.expect("disposition", "flow", "empty")
            assert (said.field(0), said.field(1), said.field(3)) == (False, 0, True)
            asked = peer.expect("attach", "flow", "empty")
            assert asked.field(7) == {}
            peer.attached(asked, target_sent=kept, unsettled=mapping())
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url, container_id="me") as connection:
            sender = await connection.sender("q", name="s", exactly_once=True)
            await sender.ready(timeout=PATIENCE)
            sender.send_nowait(Message(b"x"), delivery_tag=b"t")
            await sender.detach(timeout=PATIENCE)
            left = sender.unsettled_deliveries()
            assert left == []
            await connection.sender("q", name="s", exactly_once=True, unsettled=left)


@pytest.mark.spec("2.6.7")
@pytest.mark.parametrize("counted", [True, False])
async def test_the_client_sends_as_much_as_it_has_credit_and_window_for(counted: bool) -> None:
    def script(server: Server) -> None:
        with server.accept().begin(incoming_window=2) as peer:
            asked = peer.attached(credit=0)
            count = asked.field(9)
            assert isinstance(count, int)
            # A new link has no credit, and an echo of the session nothing of a link.
            peer.send(flow_frame(echo=TRUE, incoming_window=2))
            flow = peer.expect("flow", "empty")
            assert flow.field(0) == 0
            assert [flow.field(at) for at in range(4, 8)] == [None] * 4
            assert flow.field(9) in (None, False) and flow.field(10) is None
            known = uint(count) if counted else NULL
            peer.send(flow_frame(uint(0), uint(4), known, incoming_window=2))
            sent = [peer.expect("transfer", "flow", "empty") for _ in range(2)]
            # The window is used up, however it is counted.
            peer.send(flow_frame(next_incoming_id=NULL, incoming_window=2, echo=TRUE))
            assert peer.expect("flow", "empty").field(4) is None
            window = {"next_incoming_id": uint(2), "incoming_window": 10}
            if not counted:
                window = {"next_incoming_id": NULL, "incoming_window": 12}
            peer.send(flow_frame(**window))  # type: ignore[arg-type]
            sent += [peer.expect("transfer", "flow", "empty") for _ in range(2)]
            # The credit is used up; the same limit again is no more.
            peer.send(flow_frame(uint(0), uint(4), known, next_incoming_id=uint(4), echo=TRUE))
            flow = peer.expect("flow", "empty")
            assert (flow.field(4), flow.field(5), flow.field(6)) == (0, count + 4, 0)
            peer.send(flow_frame(uint(0), uint(1), uint(count + 4), next_incoming_id=uint(4)))
            sent.append(peer.expect("transfer", "flow", "empty"))
            assert [one.field(1) for one in sent] == [0, 1, 2, 3, 4]
            assert [one.payload[-1:] for one in sent] == [b"0", b"1", b"2", b"3", b"4"]
            tags = {one.field(2) for one in sent}
            assert len(tags) == 5 and all(isinstance(tag, bytes) for tag in tags)
            # For one without a last, for a range with it; what is settled stays so.
            peer.send(disposition_frame(0, settled=TRUE, state=ACCEPTED))
            peer.send(disposition_frame(1, uint(4), settled=TRUE, state=ACCEPTED))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            sender = await connection.sender("q")
            await sender.send_many([Message(b"%d" % n) for n in range(5)], timeout=PATIENCE)


@pytest.mark.spec("2.8.10")
async def test_the_client_follows_numbers_behind_the_highest() -> None:
    def script(server: Server) -> None:
        with server.accept().open() as peer:
            asked = peer.expect("begin")
            peer.send(begin_frame(0, ushort(asked.channel), next_outgoing_id=HIGH))
            asked = peer.expect("attach")
            name = asked.field(0)
            assert isinstance(name, str)
            answer = attach_frame(
                name, 0, False, source(string("q")), target(), initial_delivery_count=uint(HIGH)
            )
            peer.send(answer)
            flow = peer.expect("flow", "empty")
            # The count is that of the sender's attach, or none yet.
            assert flow.field(5) in (HIGH, None) and flow.field(6)
            messages = [
                transfer_frame(
                    body, 0, uint((HIGH + at) & 0xFFFFFFFF), binary(b"%d" % at), settled=TRUE
                )
                for at, body in enumerate(BODIES)
            ]
            peer.send(*messages[:4])
            peer.send(flow_frame(uint(0), delivery_count=uint(2), next_outgoing_id=2, echo=TRUE))
            flow = peer.expect("flow", "empty")
            while flow.field(5) != 2:
                flow = peer.expect("flow", "empty")
            assert flow.field(0) == 2
            # The client closes when it has the last one.
            peer.send(messages[4])
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q")
            for number in range(5):
                delivery = await receiver.receive(timeout=PATIENCE)
                assert delivery.message.body == b"%d" % number


@pytest.mark.spec("2.6.14")
async def test_what_was_aborted_never_arrives_and_the_rest_is_settled_in_mode_first() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.attached(peer.expect("attach", "flow", "empty"))
            while peer.expect("flow", "empty").field(4) != 1:
                pass
            peer.send(
                transfer_frame(BODIES[0][:3], 0, uint(0), binary(b"t"), more=TRUE),
                # Frames of another link come in between.
                transfer_frame(BODIES[3][:3], 1, uint(1), binary(b"t"), more=TRUE, settled=FALSE),
                transfer_frame(BODIES[0][3:], 0, more=TRUE, aborted=TRUE),
                transfer_frame(BODIES[1], 0, uint(2), binary(b"u")),
                transfer_frame(BODIES[3][3:], 1, uint(1), binary(b"t"), message_format=uint(0)),
            )
            settled: set[object] = set()
            while len(settled) < 2:
                disposition = peer.expect("disposition", "flow", "empty")
                # As the receiver, settled without a word of the sender.
                assert disposition.field(0) is True and disposition.field(3) is True
                state = disposition.field(4)
                assert isinstance(state, Composite) and state.name == "accepted"
                settled.add(disposition.field(1))
            assert settled == {1, 2}
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            first = await connection.receiver("q")
            second = await connection.receiver("other")
            for receiver, body in ((first, b"1"), (second, b"3")):
                delivery = await receiver.receive(timeout=PATIENCE)
                assert delivery.message.body == body
                await delivery.accept()


@pytest.mark.spec("2.8.18")
async def test_more_messages_than_credit_detach_the_link_with_an_error() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            flow = peer.expect("flow", "empty")
            while not flow.field(6):
                flow = peer.expect("flow", "empty")
            assert flow.field(6) == 1
            peer.send(
                *(
                    transfer_frame(BODIES[0], 0, uint(at), binary(b"%d" % at), settled=TRUE)
                    for at in range(2)
                )
            )
            detached = peer.expect("detach", "flow", "empty")
            error = detached.error()
            assert (
                error is not None and error[0] == "amqp:link:transfer-limit-exceeded" and error[1]
            )
            peer.send(detach_frame(0))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            receiver = await connection.receiver("q", credit=1)
            with pytest.raises(ferrymq.AmqpError):
                for _ in range(3):
                    await receiver.receive(timeout=PATIENCE)
