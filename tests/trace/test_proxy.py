"""`ferrymq trace --listen --to`: a real process between a client and a broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import ferrymq
from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.model import Config
from ferrymq_broker.server.server import BrokerServer
from tests.broker.tls.pki import Pki

PEM = Path(__file__).resolve().parents[1] / "client" / "tls" / "localhost.pem"
CONFIG = Config(listener=[Listener(url="amqp://127.0.0.1:0")])


@contextlib.asynccontextmanager
async def tracing(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and the URL that it listens at."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ferrymq_broker",
        "trace",
        "--listen",
        "amqp://127.0.0.1:0",
        *arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = (await process.stderr.readline()).decode()
        assert " is passed on to " in said, said
        yield process, said.split()[1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_both_directions_are_told_and_nothing_is_changed() -> None:
    async with (
        BrokerServer(CONFIG) as server,
        tracing("--to", server.url, "--json") as (process, url),
    ):
        with_password = url.replace("//", "//ann:swordfish@")
        async with (
            ferrymq.connect(with_password) as connection,
            connection.sender("queue") as sender,
        ):
            await sender.send(ferrymq.Message(b"hello"))
        process.send_signal(signal.SIGINT)
        output, said = await process.communicate()
    assert process.returncode == 0, said
    assert b"swordfish" not in output
    lines = [json.loads(line) for line in output.splitlines()]
    frames = {(line["direction"], line["frame"]) for line in lines if "frame" in line}
    for name in ("open", "begin", "attach", "close"):
        assert {("->", name), ("<-", name)} <= frames
    assert ("->", "transfer") in frames and ("<-", "flow") in frames
    assert all("time" in line for line in lines if "frame" in line)
    (sent,) = [line for line in lines if line.get("frame") == "transfer"]
    assert sent["message"][-1] == {"type": "data", "bytes": 5}


async def test_it_ends_after_so_many_lines() -> None:
    async with (
        BrokerServer(CONFIG) as server,
        tracing("--to", server.url, "--count", "3") as (process, url),
    ):
        with contextlib.suppress(ferrymq.AmqpError, OSError):
            async with ferrymq.connect(url, timeout=30):
                pass
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert len(output.splitlines()) == 3


async def test_a_broker_that_is_not_there_is_named() -> None:
    async with tracing("--to", "amqp://127.0.0.1:1") as (process, url):
        host, port = url.removeprefix("amqp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        assert process.stdout is not None
        assert b"! the broker cannot be reached" in await process.stdout.readline()


async def test_websocket_to_the_broker_with_a_certificate(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    listener = Listener(url="wss://127.0.0.1:0")
    tls = pki.asking("required")
    shown = ["--ca", pki.path("ca"), "--cert", pki.path("alice"), "--key", pki.path("alice-key")]
    async with (
        BrokerServer(Config(listener=[listener], tls=tls)) as server,
        tracing("--to", server.url, *map(str, shown)) as (process, url),
    ):
        async with (
            ferrymq.connect(url) as connection,
            connection.sender("queue") as sender,
        ):
            await sender.send(ferrymq.Message(b"x" * 300_000))
        process.send_signal(signal.SIGINT)
        output, said = await process.communicate()
    assert process.returncode == 0, said
    assert b"-> header AMQP" in output and b"<- [0] close" in output, output[-2000:]
    assert output.count(b"transfer") > 1


async def test_it_logs_in_nowhere() -> None:
    command = [sys.executable, "-m", "ferrymq_broker", "trace", "--listen", "amqp://127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        *command, "--to", "amqp://ann:swordfish@127.0.0.1:1", stderr=subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 1
    assert b"does not log in" in said and b"swordfish" not in said


async def test_tls_to_the_broker() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    header = b"AMQP\0\1\0\0"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(8))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        tracing("--to", f"amqps://localhost:{port}", "--ca", str(PEM)) as (
            process,
            url,
        ),
    ):
        host, own_port = url.removeprefix("amqp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(own_port))
        writer.write(header)
        assert await reader.readexactly(8) == header
        writer.close()
        assert process.stdout is not None
        assert b"-> header AMQP" in await process.stdout.readline()
        assert b"<- header AMQP" in await process.stdout.readline()
