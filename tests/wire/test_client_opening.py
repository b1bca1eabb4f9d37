"""How the running client opens and ends connections and sessions, and reads the types of others, as
its peer sees it (AMQP 1.0 §1.3, §1.4, §2.4, §2.5, §2.7.1)."""

from __future__ import annotations

import pytest

import ferrymq
from tests.raw.frames import (
    AMQP_HEADER,
    OPEN,
    SASL_HEADER,
    SASL_MECHANISMS,
    attach_frame,
    begin_frame,
    close_frame,
    detach_frame,
    end_frame,
    frame,
    open_frame,
    sasl_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.server import Server
from tests.raw.values import (
    NULL,
    array,
    binary,
    composite,
    data_section,
    described,
    mapping,
    sequence,
    string,
    symbol,
    uint,
    ulong,
    ushort,
)

PATIENCE = 20


@pytest.mark.spec("2.4.2")
async def test_a_server_that_speaks_first_is_served_as_one_that_waits() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            # All at once, and before anything was said.
            peer.send(AMQP_HEADER, open_frame(string("server")))
            assert peer.take(8) == AMQP_HEADER
            opened = peer.expect("open")
            # Texts are in en-US, which is what no word of it means.
            assert opened.field(5) in (None, "en-US", ["en-US"])
            assert opened.field(6) in (None, "en-US", ["en-US"])
            asked = peer.expect("begin")
            peer.send(begin_frame(0, ushort(asked.channel)))
            peer.attached()
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url, sasl=None) as connection:
            await connection.receiver("q")


@pytest.mark.spec("1.3.4", "1.4")
async def test_mandatory_fields_have_values_and_several_values_are_an_array() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            assert peer.take(8) == AMQP_HEADER
            size = peer.take(4)
            body = peer.take(int.from_bytes(size, "big") - 4)
            # Three symbols in one array.
            assert b"\x03\xa3\x01a\x01b\x0fANONYMOUS-RELAY" in body
            assert b"\xa1\x02me" in body
            peer.send(AMQP_HEADER, open_frame(string("server")))
            begun = peer.expect("begin")
            assert all(isinstance(begun.field(at), int) for at in (1, 2, 3))
            peer.send(begin_frame(0, ushort(begun.channel)))
            asked = peer.attached()
            assert isinstance(asked.field(0), str) and isinstance(asked.field(1), int)
            assert asked.field(2) is True
            flow = peer.expect("flow")
            assert all(isinstance(flow.field(at), int) for at in (1, 2, 3))
            peer.send(transfer_frame(data_section(), 0, uint(0), binary(b"t")))
            said = peer.expect("disposition", "flow")
            assert said.field(0) is True and said.field(1) == 0
            assert isinstance(peer.expect("detach", "flow").field(0), int)
            peer.send(close_frame())
            peer.expect("close", "end")

    with Server(script) as server:
        connecting = ferrymq.connect(
            server.url, sasl=None, container_id="me", desired_capabilities=["a", "b"]
        )
        async with connecting as connection:
            receiver = await connection.receiver("q")
            await (await receiver.receive(timeout=PATIENCE)).accept()
            with pytest.raises(ferrymq.AmqpError):
                await receiver.close()
                await connection.receiver("q", timeout=PATIENCE)


def opening(capabilities: bytes, *behind: bytes) -> bytes:
    """Encode an open with offered capabilities and with items behind its last field."""
    fields = [string("server"), NULL, uint(0xFFFFFFFF), ushort(65535), NULL, NULL, NULL]
    return frame(described(OPEN, sequence(*fields, capabilities, NULL, NULL, *behind)))


@pytest.mark.spec("1.4")
@pytest.mark.parametrize(
    ("capabilities", "meant"),
    [
        (NULL, []),
        (array(b"\xa3", 0), []),
        (symbol("x"), ["x"]),
        (array(b"\xa3", 2, b"\x01x\x01y"), ["x", "y"]),
    ],
    ids=["null", "empty", "single", "several"],
)
async def test_fields_of_several_values_are_read_in_every_form(
    capabilities: bytes, meant: list[str]
) -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            # Nulls behind the last field are as good as nothing.
            peer.open(opening(capabilities, NULL, NULL)).finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            assert connection.remote_offered_capabilities == meant


WRONG = {
    "a-value-behind-the-last-field": opening(NULL, uint(1)),
    "a-key-that-is-a-number": open_frame(string("s"), properties=mapping(uint(1), string("x"))),
    "a-key-that-is-null": open_frame(string("s"), properties=mapping(NULL, string("x"))),
    "no-container-id": frame(composite(OPEN, [NULL, string("host")])),
}


@pytest.mark.spec("1.4", "2.8.13")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_open_that_is_malformed_is_refused(wrong: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            error = peer.open(wrong).expect("close", "empty").error()
            assert error is not None and error[0] == "amqp:decode-error" and error[1]
            peer.send(close_frame())

    with Server(script) as server, pytest.raises(ferrymq.AmqpError):
        async with ferrymq.connect(server.url):
            raise AssertionError("there was no good open")


@pytest.mark.spec("1.4", "5.3.3.1")
@pytest.mark.parametrize("mechanisms", [NULL, array(b"\xa3", 0)], ids=["null", "empty"])
async def test_mechanisms_are_one_at_least(mechanisms: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            assert peer.take(8) == SASL_HEADER
            peer.send(SASL_HEADER, sasl_frame(SASL_MECHANISMS, mechanisms))
            assert peer.take(1) == b""

    with Server(script) as server, pytest.raises(ferrymq.AmqpError):
        async with ferrymq.connect(server.url):
            raise AssertionError("there was no mechanism")


@pytest.mark.spec("2.4.3")
async def test_a_close_before_the_servers_open_is_on_channel_0() -> None:
    def script(server: Server) -> None:
        with server.accept() as peer:
            assert peer.take(8) == AMQP_HEADER
            peer.send(AMQP_HEADER)
            peer.expect("open")
            # No empty frame before the server has said how often.
            assert peer.expect("close").channel == 0

    with Server(script) as server, pytest.raises(TimeoutError):
        async with ferrymq.connect(server.url, sasl=None, timeout=0.2):
            raise AssertionError("there was no open")


@pytest.mark.spec("2.4.3", "2.4.5")
async def test_nothing_follows_the_close_and_its_answer_is_not_waited_for_for_ever() -> None:
    def script(server: Server) -> None:
        with server.accept().begin(open_frame(string("s"), idle_time_out=uint(100))) as peer:
            peer.attached()
            peer.expect("close", "flow", "empty", "detach", "end")
            # Empty frames would have been due, were this not the end.
            assert peer.take(1) == b""

    with Server(script) as server:
        async with ferrymq.connect(server.url, close_timeout=0.5) as connection:
            await connection.receiver("q")


@pytest.mark.spec("2.4.4")
async def test_two_closes_that_cross_end_the_connection() -> None:
    error = composite(0x1D, [symbol("com.example:tired")])

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            peer.expect("close", "flow", "empty", "detach", "end")
            # No answer: it has an error of its own.
            peer.send(frame(composite(0x18, [error])))
            assert peer.take(1) == b""

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.receiver("q")
        assert connection.closed


@pytest.mark.spec("2.4.5")
async def test_a_silent_server_is_closed_with_a_reason() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            peer.attached()
            error = peer.expect("close", "flow", "empty").error()
            assert error is not None and error[0] == "amqp:resource-limit-exceeded"
            assert "idle" in error[1]
            # Nor does it answer that.
            assert peer.take(1) == b""

    with Server(script) as server:
        async with ferrymq.connect(server.url, idle_time_out=0.2, close_timeout=0.05) as connection:
            receiver = await connection.receiver("q")
            with pytest.raises(ferrymq.ConnectionClosed, match="idle"):
                await receiver.receive(timeout=PATIENCE)


@pytest.mark.spec("2.5.1", "2.7.2")
async def test_a_session_that_the_server_begins_is_answered_and_ended() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.expect("attach")
            peer.send(begin_frame(7))
            begun = peer.expect("begin", "empty")
            assert begun.field(0) == 7
            ended = peer.expect("end", "empty")
            assert ended.channel == begun.channel != asked.channel
            assert ended.error() is not None
            peer.send(end_frame(7))
            peer.attached(asked)
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.receiver("q")


@pytest.mark.spec("2.5.3")
async def test_two_ends_that_cross_answer_each_other() -> None:
    error = composite(0x1D, [symbol("com.example:tired")])

    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            assert peer.expect("end", "empty").channel == 0
            # No answer: it has an error of its own, and what comes behind it is not answered.
            peer.send(frame(composite(0x17, [error])))
            # The channel is free again.
            asked = peer.expect("begin", "empty")
            assert asked.channel == 0
            peer.send(begin_frame(0, ushort(0)))
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            session = await connection.session()
            await session.close()
            await connection.session()


@pytest.mark.spec("2.7.1")
async def test_no_channel_above_the_highest_of_the_server_is_used() -> None:
    def script(server: Server) -> None:
        with server.accept().begin(open_frame(string("s"), channel_max=0)) as peer:
            peer.expect("close", "empty", "end")
            peer.send(close_frame())

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.session()
            with pytest.raises(ferrymq.LocalProtocolError):
                await connection.session()


@pytest.mark.spec("2.7.2")
async def test_no_handle_above_the_highest_of_the_server_is_used() -> None:
    def script(server: Server) -> None:
        with server.accept().open() as peer:
            asked = peer.expect("begin")
            peer.send(begin_frame(0, ushort(asked.channel), handle_max=0))
            assert peer.attached().field(1) == 0
            peer.expect("close", "empty", "flow", "detach", "end")
            peer.send(close_frame())

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            await connection.receiver("q")
            with pytest.raises(ferrymq.LocalProtocolError):
                await connection.receiver("q")


@pytest.mark.spec("3.5.8")
async def test_names_of_filters_are_symbols() -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.expect("attach")
            name = asked.field(0)
            assert isinstance(name, str)
            applied = source(string("q"), filters=mapping(uint(1), NULL))
            peer.send(attach_frame(name, 0, source=applied, target=target()))
            assert peer.expect("close", "empty", "flow").condition == "amqp:decode-error"
            peer.send(close_frame())

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            with pytest.raises(ferrymq.AmqpError):
                await connection.receiver("q")


@pytest.mark.spec("3.5.3")
@pytest.mark.parametrize(
    "state",
    [composite(0x33, [binary(b"txn")]), composite(0x23, [uint(0), ulong(0)])],
    ids=["declared", "received"],
)
async def test_a_default_outcome_is_an_outcome(state: bytes) -> None:
    def script(server: Server) -> None:
        with server.accept().begin() as peer:
            asked = peer.expect("attach")
            name = asked.field(0)
            assert isinstance(name, str)
            answer = composite(0x28, [string("q"), *[NULL] * 7, state])
            peer.send(attach_frame(name, 0, source=answer, target=target()))
            error = peer.expect("detach", "empty", "flow").error()
            assert error is not None and "default-outcome" in error[1]
            peer.send(detach_frame())
            # The connection goes on.
            peer.finish()

    with Server(script) as server:
        async with ferrymq.connect(server.url) as connection:
            with pytest.raises(ferrymq.LinkDetached):
                await connection.receiver("q")
