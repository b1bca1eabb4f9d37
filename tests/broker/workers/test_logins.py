"""Logins at one worker, for a virtual host of another: each mechanism, and what the rules say."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ferrymq import blocking
from ferrymq.engine import Anonymous, External, OAuthBearer, Plain, Scram
from ferrymq.errors import AuthenticationError, LinkDetached
from tests.broker.tls.pki import Pki
from tests.broker.tokens.makers import AUDIENCE, ISSUER, ec_key, jwks, make_jwt
from tests.broker.workers.several import HOSTS, TENANT, WorkerBroker, opening
from tests.hostile.logins import AUTH, OK, begin, outcome, plain
from tests.hostile.logins import Scram as RawScram
from tests.raw.client import Client
from tests.raw.frames import AMQP_HEADER, begin_frame

PASSWORD = "correct horse"
CONFIG = """
[security]
anonymous = true
[security.users]
shop = "{password}"
alice = "another password"
[security.jwt]
issuer = "{issuer}"
audience = "{audience}"
keys = "{folder}/keys.json"
as-password = true
[[security.certificate-rule]]
name-from = "subject-cn"
[tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
client-certificates = "optional"
client-ca = "{folder}/ca.pem"
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "amqps://127.0.0.1:0"
[[rule]]
who = ["user:shop", "user:alice", "anonymous"]
may = "*"
where = ["*", "dynamic.*"]
{tenant}
[[virtual-host.rule]]
who = ["user:shop", "user:alice", "anonymous"]
may = ["send", "create"]
where = "*"
"""

ways = pytest.mark.parametrize(
    ("acceptor", "server"), [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["00", "01", "10", "11"]
)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates, and the keys of an issuer of tokens."""
    folder = tmp_path_factory.mktemp("pki")
    (folder / "keys.json").write_text(jwks(ec_key()))
    return Pki(folder)


@pytest.fixture(scope="module")
def config(pki: Pki) -> str:
    """The configuration of the broker, with the files of `pki`."""
    return CONFIG.format(
        password=PASSWORD, issuer=ISSUER, audience=AUDIENCE, folder=pki.folder, tenant=TENANT
    )


def token(**changes: object) -> str:
    """A token of alice that is valid now."""
    now = int(time.time())
    return make_jwt(iat=now, nbf=now, exp=now + 600, **changes)


def connect(
    broker: WorkerBroker, acceptor: int, server: int, pki: Pki | None = None, **more: Any
) -> blocking.Connection:
    """Connect to the virtual host of a worker, with TLS if there is a `pki`."""
    if pki is not None:
        more["ssl"] = pki.trusting(more.pop("certificate", None))
    listener = 0 if pki is None else 1
    url = broker.hostname_url(server, "amqp" if pki is None else "amqps", listener)
    with broker.accepting(acceptor, listener):
        return blocking.connect(url, **more)


def mechanisms() -> dict[str, Any]:
    """The mechanisms of a user, each with the name that it gives."""
    return {
        "anonymous": Anonymous(),
        "PLAIN": Plain("shop", PASSWORD),
        "SCRAM-SHA-256": Scram("SCRAM-SHA-256", "shop", PASSWORD),
        "OAUTHBEARER": OAuthBearer(token()),
        "token as password": Plain("alice", token()),
        "no SASL": None,
    }


@ways
@pytest.mark.parametrize("how", list(mechanisms()))
@pytest.mark.parametrize("tls", [False, True], ids=["clear", "tls"])
def test_each_mechanism(
    broker: WorkerBroker, pki: Pki, address: str, acceptor: int, server: int, how: str, tls: bool
) -> None:
    sasl = mechanisms()[how]
    with connect(broker, acceptor, server, pki if tls else None, sasl=sasl) as connection:
        connection.sender(address).send("here")


@ways
def test_a_certificate(
    broker: WorkerBroker, pki: Pki, address: str, acceptor: int, server: int
) -> None:
    with connect(broker, acceptor, server, pki, certificate="alice", sasl=External()) as connection:
        connection.sender(address).send("here")


@ways
@pytest.mark.parametrize("how", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_login_that_is_wrong(broker: WorkerBroker, acceptor: int, server: int, how: str) -> None:
    sasl = {
        "PLAIN": Plain("shop", "wrong"),
        "SCRAM-SHA-256": Scram("SCRAM-SHA-256", "shop", "wrong"),
        "OAUTHBEARER": OAuthBearer(token(aud="somebody else")),
    }[how]
    with pytest.raises(AuthenticationError):
        connect(broker, acceptor, server, sasl=sasl)


@pytest.mark.parametrize("acceptor", [0, 1])
def test_the_rules_of_the_virtual_host_count(
    broker: WorkerBroker, address: str, acceptor: int
) -> None:
    sasl = Scram("SCRAM-SHA-256", "shop", PASSWORD)
    with connect(broker, acceptor, 0, sasl=sasl) as connection:
        connection.receiver(address)
    with connect(broker, acceptor, 1, sasl=sasl) as connection:
        connection.sender(address)
        with pytest.raises(LinkDetached, match="unauthorized-access"):
            connection.receiver(address)


@ways
def test_who_the_client_is(broker: WorkerBroker, acceptor: int, server: int) -> None:
    """The log of the worker that serves has the name, and there is one login in it."""
    before = len(broker.log)
    name = f"who-{acceptor}{server}"
    with connect(broker, acceptor, server, sasl=Plain("shop", PASSWORD), container_id=name):
        pass
    lines = broker.log[before:].splitlines()
    (opened,) = [line for line in lines if "connection opened" in line and name in line]
    assert "user=shop" in opened and f"worker={server}" in opened
    (login,) = [line for line in lines if "] login " in line]
    assert f"worker={acceptor}" in login


def _after_plain(client: Client) -> None:
    begin(client, "PLAIN", plain("shop", PASSWORD))
    assert outcome(client) == OK


def _after_scram(client: Client) -> None:
    scram = RawScram(client, "shop")
    assert scram.start() is not None
    assert scram.finish(scram.proof(PASSWORD)) == OK


@ways
@pytest.mark.parametrize("login", [_after_plain, _after_scram])
def test_what_comes_right_behind_the_open(
    broker: WorkerBroker, address: str, acceptor: int, server: int, login: Any
) -> None:
    """Header, open and begin come in one write after the outcome."""
    with broker.connect(acceptor) as client:
        login(client)
        client.send(AMQP_HEADER, opening(HOSTS[server]), begin_frame())
        assert client.take(8) == AMQP_HEADER
        client.expect("open")
        client.expect("begin")
        client.sender(address)
        client.close()


@ways
def test_nobody_logs_in_with_the_login_of_before(
    broker: WorkerBroker, acceptor: int, server: int
) -> None:
    """The connection that was passed has used it up: a client of the same port is a new one."""
    with broker.connect(acceptor) as client:
        begin(client, "PLAIN", plain("shop", PASSWORD))
        assert outcome(client) == OK
        client.open(opening(HOSTS[server])).close()
    with broker.connect(server) as client:
        begin(client, "PLAIN", plain("shop", "wrong"))
        assert outcome(client) == AUTH
