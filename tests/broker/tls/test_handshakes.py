"""Handshakes wait in line, so that nobody else waits for them; and leave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import weakref

import pytest

from ferrymq_broker.server import tls_stream
from ferrymq_broker.server.handshakes import SHARE, Handshakes
from tests.broker.tls.pki import Pki, serving


class Clock:
    """Time that goes on when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_round_has_its_share_and_others_are_served_in_between() -> None:
    clock = Clock()
    line = Handshakes(clock)
    done: list[str] = []

    def shake() -> None:
        clock.now += SHARE * 0.6
        done.append("handshake")

    def round_trip() -> None:
        done.append("message")
        if done.count("handshake") < 9:
            asyncio.get_running_loop().call_soon(round_trip)

    for _ in range(9):
        line.ask(shake)
    assert not done
    round_trip()
    while done.count("handshake") < 9:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert "".join(each[0] for each in done) == "mhhmhhmhhmhhmhm"


async def test_one_that_fails_does_not_stop_the_others() -> None:
    line = Handshakes()
    loop = asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    done = asyncio.Event()

    def fail() -> None:
        raise ArithmeticError

    line.ask(fail)
    line.ask(done.set)
    await asyncio.wait_for(done.wait(), 10)
    assert [type(each) for each in told] == [ArithmeticError]


async def test_all_of_one_loop_wait_in_one_line() -> None:
    assert Handshakes.of_this_loop() is Handshakes.of_this_loop()


async def test_nothing_of_tls_outlives_its_connection(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even until the collector comes by: a flood would be faster."""
    engines: list[weakref.ref[ssl.SSLObject]] = []

    wrap_bio = ssl.SSLContext.wrap_bio

    def wrapped(context: ssl.SSLContext, *args: object, **options: object) -> ssl.SSLObject:
        made = wrap_bio(context, *args, **options)  # type: ignore[arg-type]
        engines.append(weakref.ref(made))
        return made

    monkeypatch.setattr(ssl.SSLContext, "wrap_bio", wrapped)
    async with serving(pki.tls()) as server:
        gc.disable()
        try:
            for said in (b"", b"\x16\x03\x01\x02\x00\x01", b"rubbish, and no handshake"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(said)
                await writer.drain()
                writer.write_eof()
                await asyncio.wait_for(reader.read(), 20)
                writer.close()
            while any(engine() is not None for engine in engines):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert len(engines) == 3
        finally:
            gc.enable()


async def test_a_handshake_that_never_ends_has_no_room(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "_MOST_EARLY", 1000)
    # The line does not move, so nothing is taken out of what comes.
    monkeypatch.setattr(Handshakes, "ask", lambda *_: None)
    async with serving(pki.tls()) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"\x16\x03\x01\x40\x00" + bytes(2000))
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
