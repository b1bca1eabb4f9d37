"""New tokens for a connection, over the management: ``PUT /auth/tokens``."""

from __future__ import annotations

from pathlib import Path

import pytest

import ferrymq
from ferrymq import rabbitmq
from ferrymq.engine.sasl import Plain
from ferrymq_broker.config import Config
from tests.broker.tokens.makers import AUDIENCE, ISSUER, NOW, ec_key, jwks, make_jwt
from tests.broker.tokens.test_logins import running


async def test_a_connection_gets_the_rights_of_its_new_token(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(jwks(ec_key()))
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(keys), "as-password": True}
    config = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "personality": {"name": "rabbitmq"},
            "queue": [{"name": "q1"}],
            "security": {"jwt": {**issuer, "leeway": 0}},
            "rule": [
                {"who": "claim:role=writer", "may": "send", "where": "q1"},
                {"who": "user:alice", "may": "browse", "where": "q1"},
            ],
        }
    )
    async for server in running(config):
        login = Plain("alice", make_jwt())
        async with (
            ferrymq.connect(server.url, sasl=login) as connection,
            rabbitmq.management(connection) as management,
        ):
            with pytest.raises(ferrymq.LinkDetached, match="unauthorized-access"):
                await connection.sender(rabbitmq.queue_address("q1"))
            with pytest.raises(rabbitmq.RabbitMQError, match="not valid"):
                await management.request("PUT", "/auth/tokens", make_jwt(exp=NOW - 1).encode())
            token = make_jwt(role="writer").encode()
            assert await management.request("PUT", "/auth/tokens", token) is None
            await connection.sender(rabbitmq.queue_address("q1"))


async def test_a_broker_without_issuers_takes_none() -> None:
    config = Config.model_validate(
        {"listener": [{"url": "amqp://127.0.0.1:0"}], "personality": {"name": "rabbitmq"}}
    )
    async for server in running(config):
        async with (
            ferrymq.connect(server.url) as connection,
            rabbitmq.management(connection) as management,
        ):
            with pytest.raises(rabbitmq.BadRequest, match="names no issuer"):
                await management.request("PUT", "/auth/tokens", b"x")
