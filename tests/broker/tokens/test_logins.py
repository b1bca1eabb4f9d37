"""Logging in with tokens to a broker that listens: OAUTHBEARER, and PLAIN with one as password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ferrymq
from ferrymq.engine import OAuthBearer, Plain
from ferrymq.errors import AuthenticationError, ConnectionClosed, LinkDetached
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.model import Config
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.security.authenticator_factory import make_authenticators
from ferrymq_broker.security.token_setup import take_tokens
from ferrymq_broker.server import BrokerServer
from tests.broker.tokens.makers import (
    AUDIENCE,
    ISSUER,
    NOW,
    TestClock,
    ec_key,
    jwks,
    make_jwt,
    make_sas,
)

KEY = "the-secret-of-the-shop"
HERE = ClientTransport("here", "127.0.0.1", True, False)
ENCRYPTED = ClientTransport("there", "192.0.2.1", False, True)
CLEAR = ClientTransport("there", "192.0.2.1", False, False)


class RunningClock(TestClock):
    """Goes on like any other, from `NOW`."""

    def now(self) -> float:
        return super().now() + asyncio.get_running_loop().time()

    def epoch(self) -> float:
        return NOW - self.began

    began = 0.0


def config(tmp_path: Path, **security: Any) -> Config:
    path = tmp_path / "keys.json"
    path.write_text(jwks(ec_key()))
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(path), "leeway": 0}
    return Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "q1"}, {"name": "q2"}],
            "security": {
                "users": {"carol": "password of carol"},
                **security,
                "jwt": {**issuer, **security.get("jwt", {})},
            },
            "rule": [
                {"who": "user:alice", "may": "send", "where": "q1"},
                {"who": "user:carol", "may": "send", "where": "q1"},
            ],
        }
    )


async def running(config: Config) -> AsyncIterator[BrokerServer]:
    clock = RunningClock()
    clock.began = asyncio.get_running_loop().time()
    async with BrokerServer(config, clock) as server:
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    async for started in running(config(tmp_path)):
        yield started


@pytest.fixture
async def lenient(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    async for started in running(config(tmp_path, jwt={"as-password": True})):
        yield started


async def test_a_client_with_a_token(server: BrokerServer) -> None:
    async with ferrymq.connect(server.url, token=make_jwt()) as connection:
        await (await connection.sender("q1")).send(ferrymq.Message(b"x"))
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            await connection.sender("q2")
    async with ferrymq.connect(server.url, sasl=OAuthBearer(make_jwt(), "alice")):
        pass


@pytest.mark.parametrize(
    "sasl",
    [
        OAuthBearer(make_jwt(exp=NOW - 1)),
        OAuthBearer(make_jwt(aud="other")),
        OAuthBearer(make_jwt(), "bob"),
        OAuthBearer("no-token"),
        OAuthBearer("eyJ.eyJ."),
    ],
)
async def test_refused(server: BrokerServer, sasl: OAuthBearer) -> None:
    with pytest.raises(AuthenticationError, match="invalid_token"):
        await ferrymq.connect(server.url, sasl=sasl)
    assert server.broker.counters.logins_refused == 1


async def test_a_token_has_room_before_the_login(server: BrokerServer) -> None:
    token = make_jwt(pad="x" * 4500)
    assert 6000 < len(token) < 8000
    async with ferrymq.connect(server.url, token=token):
        pass


async def test_passwords_go_on(server: BrokerServer) -> None:
    url = server.url.replace("//", "//carol:password%20of%20carol@")
    async with ferrymq.connect(url) as connection:
        await connection.sender("q1")
    # Unless it was allowed a token is no password.
    with pytest.raises(AuthenticationError):
        await ferrymq.connect(server.url, sasl=Plain("alice", make_jwt()))


@pytest.mark.parametrize("username", ["alice", "whoever"])
async def test_a_token_as_password(lenient: BrokerServer, username: str) -> None:
    async with ferrymq.connect(lenient.url, sasl=Plain(username, make_jwt())) as connection:
        await connection.sender("q1")
        (handler,) = lenient.broker.handlers
        assert handler.client.user == "alice"
    with pytest.raises(AuthenticationError):
        await ferrymq.connect(lenient.url, sasl=Plain("alice", make_jwt(exp=NOW - 1)))
    url = lenient.url.replace("//", "//carol:password%20of%20carol@")
    async with ferrymq.connect(url) as connection:
        await connection.sender("q1")
    async with ferrymq.connect(lenient.url, sasl=Plain("carol", "password of carol")):
        pass
    with pytest.raises(AuthenticationError):
        await ferrymq.connect(lenient.url, sasl=Plain("carol", "wrong"))


async def test_a_connection_is_closed_when_its_token_expires(server: BrokerServer) -> None:
    async with asyncio.timeout(30):
        connection = await ferrymq.connect(server.url, token=make_jwt(exp=NOW + 1))
        receiver_gone = connection.sender("q1")
        sender = await receiver_gone
        with pytest.raises((ConnectionClosed, LinkDetached)) as raised:
            while True:
                await sender.send(ferrymq.Message(b"x"))
                await asyncio.sleep(0.05)
        assert "the token has expired" in str(raised.value)
        await connection.close()


async def test_clients_that_reconnect_bring_a_new_token(server: BrokerServer) -> None:
    given = 0

    async def token() -> str:
        nonlocal given
        given += 1
        return make_jwt(exp=NOW + (1 if given == 1 else 3600))

    policy = ferrymq.ReconnectPolicy(initial=0.01, maximum=0.1)
    async with asyncio.timeout(30):
        async with ferrymq.connect(server.url, token=token, reconnect=policy) as connection:
            sender = await connection.sender("q1")
            while given < 2:
                try:
                    await sender.send(ferrymq.Message(b"x"))
                except ConnectionClosed:
                    continue
                await asyncio.sleep(0.05)
            await sender.send(ferrymq.Message(b"y"))


async def test_the_audit_log_and_the_log_have_no_token(
    server: BrokerServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    good, bad = make_jwt(), make_jwt(aud="other")
    async with ferrymq.connect(server.url, token=good):
        pass
    with pytest.raises(AuthenticationError):
        await ferrymq.connect(server.url, token=bad)
    out, err = capfd.readouterr()
    said = out + err + caplog.text
    assert "aud" in said
    for token in (good, bad):
        assert token.rpartition(".")[2] not in said


# -- what is offered ---------------------------------------------------------------------------


def offered(config: Config, transport: ClientTransport) -> list[str]:
    from ferrymq_broker.broker import Broker

    broker = Broker(lambda call: None, lambda due: None, 0.0)
    verifier = take_tokens(config.security, broker, TestClock())
    authenticators = make_authenticators(config.security, lambda names: None, verifier=verifier)
    assert broker.takes_tokens and broker.guarded
    return authenticators.mechanisms(transport)


def test_tokens_are_not_asked_for_in_the_clear(tmp_path: Path) -> None:
    plain = config(tmp_path)
    assert "OAUTHBEARER" in offered(plain, HERE)
    assert "OAUTHBEARER" in offered(plain, ENCRYPTED)
    assert "OAUTHBEARER" not in offered(plain, CLEAR)
    assert "OAUTHBEARER" in offered(config(tmp_path, **{"plain-without-tls": True}), CLEAR)
    only = config(tmp_path, users={}, jwt={"as-password": True})
    assert offered(only, ENCRYPTED) == ["OAUTHBEARER", "PLAIN"]
    assert offered(only, CLEAR) == []
    # Tokens name who may come: nobody else may.
    assert "ANONYMOUS" not in offered(only, HERE)


async def test_shared_access_keys_alone(tmp_path: Path) -> None:
    """Clients come anonymously, and show their token at $cbs."""
    made = Config.model_validate(
        {
            "listener": [{"url": "amqp://127.0.0.1:0"}],
            "queue": [{"name": "q1"}],
            "security": {"shared-access-key": {"name": "shop", "primary": KEY, "may": "send"}},
        }
    )
    async for server in running(made):
        async with ferrymq.connect(server.url) as connection:
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                await connection.sender("q1")
            answers = await connection.receiver("$cbs")
            requests = await connection.sender("$cbs")
            await requests.send(
                ferrymq.Message(
                    make_sas("sb://localhost/q1", KEY),
                    message_id="one",
                    application_properties={
                        "operation": "put-token",
                        "type": "jwt",
                        "name": "sb://localhost/q1",
                    },
                )
            )
            answer = await answers.receive()
            assert answer.message.correlation_id == "one"
            assert answer.message.application_properties["status-code"] == 202
            await (await connection.sender("q1")).send(ferrymq.Message(b"x"))


async def test_a_broker_without_keys_does_not_start(tmp_path: Path) -> None:
    made = config(tmp_path)
    (tmp_path / "keys.json").write_text("nothing")
    with pytest.raises(ConfigError, match=r"keys\.json"):
        async with BrokerServer(made):
            pass
