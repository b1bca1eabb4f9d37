"""A new token for an open connection: connection.update-secret."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer
from ferrymq_codec_0_9_1.frames import PROTOCOL_HEADER
from ferrymq_types_0_9_1.basic import BasicConsume
from ferrymq_types_0_9_1.channel import ChannelOpen
from ferrymq_types_0_9_1.connection import (
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
)
from ferrymq_types_0_9_1.queue import QueueDeclare
from tests.broker.tokens.makers import AUDIENCE, ISSUER, NOW, ec_key, jwks, make_jwt
from tests.broker.tokens.test_logins import RunningClock
from tests.hostile.client_0_9_1 import Client091
from tests.rabbitmq.engine_0_9_1.client import CAPABLE, frame

LIFE = 60


def _config(tmp_path: Path) -> Config:
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(ec_key()))
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(keys), "as-password": True}
    return Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "queue": [{"name": "q1"}],
            "security": {"jwt": {**issuer, "leeway": 0}},
            "rule": [
                {"who": "claim:role=reader", "may": "receive", "where": "q1"},
                {"who": "user:alice", "may": "send", "where": "q1"},
            ],
        }
    )


def _logged_in(port: int, token: str) -> Client091:
    client = Client091(port, opened=False)
    login = ConnectionStartOk(
        client_properties={**CAPABLE, "capabilities": {"consumer_cancel_notify": True}},
        mechanism="PLAIN",
        response=b"\0alice\0" + token.encode(),
        locale="en_US",
    )
    client.send(PROTOCOL_HEADER, frame(0, login))
    client.send(frame(0, ConnectionTuneOk(channel_max=5, frame_max=8192, heartbeat=0)))
    client.send(frame(0, ConnectionOpen(virtual_host="/")), ChannelOpen())
    client.until("channel.open-ok")
    return client


def _update(token: str) -> bytes:
    return frame(0, ConnectionUpdateSecret(new_secret=token.encode(), reason="it expires"))


def _run(config: Config, work: Callable[[int, RunningClock], None]) -> None:
    async def main() -> None:
        clock = RunningClock()
        clock.began = asyncio.get_running_loop().time()
        async with BrokerServer(config, clock) as server:
            await asyncio.to_thread(work, server.port, clock)

    asyncio.run(main())


def test_the_connection_lives_as_long_as_its_last_token(tmp_path: Path) -> None:
    def work(port: int, clock: RunningClock) -> None:
        token = make_jwt(exp=NOW + LIFE)
        with _logged_in(port, token) as client, _logged_in(port, token) as other:
            client.send(_update(make_jwt(exp=NOW + 3 * LIFE)))
            client.until("connection.update-secret-ok")
            clock.time += 2 * LIFE
            other.until("connection.close")
            # A close for the first token would come between the two answers.
            for _ in range(2):
                client.send(QueueDeclare(queue="q1", passive=True))
                client.until("queue.declare-ok")
            clock.time += 2 * LIFE
            client.send(QueueDeclare(queue="q1", passive=True))
            assert client.until("connection.close").reply_code == 403

    _run(_config(tmp_path), work)


def test_a_client_renews_its_token(tmp_path: Path) -> None:
    def work(port: int, clock: RunningClock) -> None:
        login = pika.PlainCredentials("alice", make_jwt(exp=NOW + LIFE))
        parameters = pika.ConnectionParameters("127.0.0.1", port, credentials=login, heartbeat=0)
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        connection.update_secret(make_jwt(exp=NOW + 3 * LIFE), "it expires")
        clock.time += 2 * LIFE
        assert channel.queue_declare("q1", passive=True).method.queue == "q1"
        with pytest.raises(ConnectionClosedByBroker, match="530"):
            connection.update_secret("no token", "a mistake")

    _run(_config(tmp_path), work)


def test_each_of_several_tokens_is_checked_for_itself(tmp_path: Path) -> None:
    """They come in one read: the answer to the first must not be that of the last."""

    def work(port: int, clock: RunningClock) -> None:
        with _logged_in(port, make_jwt()) as client:
            client.send(_update(make_jwt()) * 2 + _update(make_jwt(sub="bob")))
            client.until("connection.update-secret-ok")
            client.until("connection.update-secret-ok")
            assert client.until("connection.close").reply_code == 530

    _run(_config(tmp_path), work)


def test_a_consumer_without_the_right_any_more_is_cancelled(tmp_path: Path) -> None:
    def work(port: int, clock: RunningClock) -> None:
        with _logged_in(port, make_jwt(role="reader")) as client:
            client.send(BasicConsume(queue="q1", consumer_tag="c"))
            client.until("basic.consume-ok")
            client.send(_update(make_jwt()))
            assert client.until("basic.cancel").consumer_tag == "c"

    _run(_config(tmp_path), work)


def test_a_token_of_another_user_ends_the_connection(tmp_path: Path) -> None:
    def work(port: int, clock: RunningClock) -> None:
        with _logged_in(port, make_jwt()) as client:
            client.send(_update(make_jwt(sub="bob")))
            assert client.until("connection.close").reply_code == 530

    _run(_config(tmp_path), work)
