"""Typical mistakes, each with the message that it gets, over the wire against running brokers."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import datetime
import gc
import re
import socket
import ssl
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq import Message, blocking, message
from ferrymq.blocking.portal import Portal
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from tests.client.mistake_table import ASYNC, BLOCKING, MISTAKES, Mistake
from tests.client.peer import Peer

pytestmark = pytest.mark.usefixtures("few_objects")

IS_COMPILED = not str(message.__file__).endswith(".py")

# ── The brokers, and those that are none ───────────────────────────────────────────────────────


class Answering:
    """A server that answers the first bytes of each client with `answer`, and hangs up."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(8)
                    if self._answer is not None:
                        client.sendall(self._answer)
                        client.shutdown(socket.SHUT_WR)
                    while client.recv(4096):
                        pass

    def stop(self) -> None:
        """Stop answering."""
        # Closing alone does not end an accept that waits.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, str]]:
    """Where everything listens, by the word that stands for it in the table."""
    portal = Portal("brokers")
    listener = {"url": "amqp://127.0.0.1:0"}
    configs: dict[str, dict[str, Any]] = {
        "URL": {
            "listener": [listener, {"url": "ws://127.0.0.1:0"}],
            "limits": {"max-message-size": 1000},
            "stream": [{"name": "clicks"}],
            "topic": [{"name": "news"}],
        },
        "CLOSED": {"listener": [listener], "nodes": {"auto-create": False}},
        "SECURED": {
            "listener": [listener],
            "security": {"anonymous": False, "users": {"alice": "right"}},
            "rule": [{"who": "user:alice", "may": "send", "where": "orders"}],
        },
    }
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(Path(__file__).parent / "tls" / "localhost.pem"))
    rabbitmq, silent = Answering(b"AMQP\x00\x00\x09\x01"), Answering(None)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        free = nobody.getsockname()[1]

    async def start() -> tuple[dict[str, BrokerServer], Peer]:
        servers = {}
        for name, config in configs.items():
            servers[name] = BrokerServer(Config.model_validate(config))
            await servers[name].start()
        return servers, await Peer(tls=context).__aenter__()

    servers, peer = portal.run(start)

    async def stop() -> None:
        await peer.__aexit__()
        for server in servers.values():
            await server.close()

    yield {
        **{name: server.url for name, server in servers.items()},
        "TLS": str(peer.port),
        "WEB": str(servers["URL"].addresses[1].port),
        "RABBITMQ": str(rabbitmq.port),
        "SILENT": str(silent.port),
        "NOBODY": str(free),
    }
    portal.run(stop)
    portal.stop()
    rabbitmq.stop()
    silent.stop()


# ── Running what the user wrote ────────────────────────────────────────────────────────────────


def in_place(text: str, places: dict[str, str]) -> str:
    """Return a text with the places that its words stand for."""
    return re.sub(r"\$([A-Z]+)", lambda found: places[found[1]], text)


def run_async(code: str, url: str, queue: str) -> None:
    """Run code in an event loop, with a connection, a sender and a receiver."""

    async def main() -> None:
        async with ferrymq.connect(url) as connection:
            sender = await connection.sender(queue)
            receiver = await connection.receiver(queue)
            given = names_of(connection, sender, receiver)
            program = compile(code, "mistake", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
            result = eval(program, given)
            if isinstance(result, types.CoroutineType):
                await result

    asyncio.run(main())


def run_blocking(code: str, url: str, queue: str) -> None:
    """Run code without an event loop, with a connection, a sender and a receiver."""
    with blocking.connect(url) as connection:
        sender, receiver = connection.sender(queue), connection.receiver(queue)
        exec(compile(code, "mistake", "exec"), names_of(connection, sender, receiver))


def names_of(connection: object, sender: object, receiver: object) -> dict[str, Any]:
    """Return the names that the code of the table may use."""
    return {
        "asyncio": asyncio,
        "blocking": blocking,
        "connection": connection,
        "datetime": datetime,
        "ferrymq": ferrymq,
        "Message": Message,
        "receiver": receiver,
        "sender": sender,
        "ssl": ssl,
    }


@pytest.mark.timeout(60)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_is_explained(mistake: Mistake, places: dict[str, str]) -> None:
    queue = re.sub(r"[^a-z]+", "-", mistake.name.lower())
    places = {**places, "QUEUE": queue}
    run = run_async if mistake.client == ASYNC else run_blocking
    shown: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run(in_place(mistake.written, places), places["URL"], queue)
        except BaseException as error:
            shown.append(f"{type(error).__name__}: {error}")
        gc.collect()
    if not shown:
        shown = [f"{one.category.__name__}: {one.message}" for one in caught]
    promised = mistake.compiled if IS_COMPILED and mistake.compiled else mistake.shown
    expected = re.escape(in_place(promised, places)).replace("…", ".*")
    assert any(re.fullmatch(expected, line, re.S) for line in shown), "\n".join(shown)
    assert "guess" not in shown[0] and "pa/ss" not in shown[0]


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 55
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES)
    assert {mistake.client for mistake in MISTAKES} == {ASYNC, BLOCKING}
