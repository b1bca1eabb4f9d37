"""Clients of AMQP 0-9-1, whose virtual host another worker serves."""

from __future__ import annotations

import time

import pika
import pytest
from pika.exceptions import (
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

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
from tests.broker.tokens.makers import AUDIENCE, ISSUER, ec_key, jwks, make_jwt
from tests.broker.workers.several import TENANT, WorkerBroker
from tests.hostile.client_0_9_1 import Client091
from tests.rabbitmq.engine_0_9_1.client import CAPABLE, frame, publication

PASSWORD = "correct horse"
VHOSTS = ("/", "tenant")
CONFIG = """
[personality]
name = "rabbitmq"
[security.users]
shop = "{password}"
[security.jwt]
issuer = "{issuer}"
audience = "{audience}"
keys = "{keys}"
as-password = true
leeway = 0
[[rule]]
who = ["user:shop", "user:alice"]
may = "*"
where = ["*", "amq.*", "dynamic.*"]
{tenant}
[[virtual-host.rule]]
who = ["user:shop", "user:alice"]
may = "*"
where = ["*", "amq.*", "dynamic.*"]
"""

ways = pytest.mark.parametrize(
    ("acceptor", "server"), [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["00", "01", "10", "11"]
)

# For what takes its time.
passed = pytest.mark.parametrize(("acceptor", "server"), [(0, 1), (1, 0)], ids=["01", "10"])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The configuration of the broker, with the key of an issuer of tokens."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(jwks(ec_key()))
    return CONFIG.format(
        password=PASSWORD, issuer=ISSUER, audience=AUDIENCE, keys=keys, tenant=TENANT
    )


def token(life: float = 600, **changes: object) -> str:
    """A token of alice that is valid now."""
    now = int(time.time())
    return make_jwt(iat=now, nbf=now, exp=now + life, **changes)


def connect(
    broker: WorkerBroker, acceptor: int, server: int, login: str = PASSWORD, user: str = "shop"
) -> pika.BlockingConnection:
    """Connect with pika."""
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        broker.port,
        VHOSTS[server],
        pika.PlainCredentials(user, login),
        heartbeat=1,
    )
    with broker.accepting(acceptor):
        return pika.BlockingConnection(parameters)


def raw(broker: WorkerBroker, acceptor: int) -> Client091:
    """A client on a connection that this worker has accepted."""
    with broker.accepting(acceptor):
        client = Client091(broker.port, opened=False)
        client.send(PROTOCOL_HEADER)
        client.until("connection.start")
    return client


def handshake(server: int, login: str) -> bytes:
    """What a client says after the protocol header."""
    start = ConnectionStartOk(
        client_properties=CAPABLE,
        mechanism="PLAIN",
        response=f"\0alice\0{login}".encode(),
        locale="en_US",
    )
    return (
        frame(0, start)
        + frame(0, ConnectionTuneOk(channel_max=5, frame_max=8192, heartbeat=0))
        + frame(0, ConnectionOpen(virtual_host=VHOSTS[server]))
        + frame(1, ChannelOpen())
    )


@ways
def test_messages(broker: WorkerBroker, address: str, acceptor: int, server: int) -> None:
    connection = connect(broker, acceptor, server)
    channel = connection.channel()
    channel.queue_declare(address)
    for number in range(20):
        channel.basic_publish("", address, b"%d" % number)
    got = []
    for _, _, body in channel.consume(address, auto_ack=True, inactivity_timeout=20):
        got.append(body)
        if len(got) == 20:
            break
    assert got == [b"%d" % number for number in range(20)]
    connection.close()


@ways
def test_a_wrong_password(broker: WorkerBroker, acceptor: int, server: int) -> None:
    with pytest.raises(ProbableAuthenticationError):
        connect(broker, acceptor, server, "wrong")


@pytest.mark.parametrize("acceptor", [0, 1])
def test_a_virtual_host_that_does_not_exist(broker: WorkerBroker, acceptor: int) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.port, "nobody", pika.PlainCredentials("shop", PASSWORD)
    )
    with broker.accepting(acceptor), pytest.raises(ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(parameters)


@ways
def test_a_client_that_waits_for_nothing(
    broker: WorkerBroker, address: str, acceptor: int, server: int
) -> None:
    with raw(broker, acceptor) as client:
        client.send(
            handshake(server, token()),
            frame(1, QueueDeclare(queue=address)),
            *(publication(1, b"%d" % number, address) for number in range(50)),
            frame(1, BasicConsume(queue=address, no_ack=True)),
        )
        assert client.until("queue.declare-ok").queue == address
        client.until("basic.consume-ok")
        for number in range(50):
            assert client.until("basic.deliver").delivery_tag == number + 1


@passed
def test_heartbeats_go_on(broker: WorkerBroker, acceptor: int, server: int) -> None:
    connection = connect(broker, acceptor, server)
    connection.process_data_events(time_limit=2.5)
    assert connection.is_open
    connection.close()


@ways
def test_a_new_secret_is_checked(broker: WorkerBroker, acceptor: int, server: int) -> None:
    """The login that was passed counts once; each new one is decided on."""
    connection = connect(broker, acceptor, server, token(), "alice")
    connection.update_secret(token(), "a new one")
    with pytest.raises(ConnectionClosedByBroker, match="530"):
        connection.update_secret("no token", "a mistake")


@ways
def test_a_secret_of_somebody_else(broker: WorkerBroker, acceptor: int, server: int) -> None:
    with raw(broker, acceptor) as client:
        client.send(handshake(server, token()))
        client.until("channel.open-ok")
        secret = token(sub="bob").encode()
        client.send(frame(0, ConnectionUpdateSecret(new_secret=secret, reason="a mistake")))
        assert client.until("connection.close").reply_code == 530


@passed
def test_a_token_that_expires(broker: WorkerBroker, acceptor: int, server: int) -> None:
    """The worker that serves knows for how long the login is valid."""
    with raw(broker, acceptor) as client:
        client.send(handshake(server, token(life=1)))
        client.until("channel.open-ok")
        assert client.until("connection.close").reply_code == 403
