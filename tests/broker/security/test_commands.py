"""`ferrymq send`, `receive` and `trace` at a broker that wants to know who they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.commands import Commands
from tests.broker.test_process import serve
from tests.broker.tls.pki import Pki
from tests.broker.tokens.makers import AUDIENCE, ISSUER, ec_key, jwks, make_jwt

PASSWORD = "pass:word/with @ signs"
CONFIG = f"""
[[listener]]
url = "amqps://127.0.0.1:0"

[[listener]]
url = "wss://127.0.0.1:0"

[[listener]]
url = "amqp://127.0.0.1:0"

[tls]
certificate = "server.pem"
key = "server-key.pem"
client-ca = "ca.pem"
client-certificates = "optional"

[security.users]
shop = "{PASSWORD}"

[[security.certificate-rule]]

[[security.jwt]]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "keys.json"

[[rule]]
who = "user:shop"
may = ["send", "create"]
where = "*"

[[rule]]
who = "user:alice"
may = ["send", "receive", "create"]
where = "*"
"""


class Running(NamedTuple):
    pki: Pki
    amqps: str
    wss: str
    amqp: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("broker")
    pki = Pki(folder)
    pki.write("server", pki.authority.server(["localhost"], 30))
    (folder / "keys.json").write_text(jwks(ec_key()))
    (folder / "broker.toml").write_text(CONFIG)
    with serve("--config", str(folder / "broker.toml")) as (_, lines):
        amqps, wss, amqp = [line.split()[1] for line in lines[:3]]
        yield Running(
            pki,
            amqps.replace("127.0.0.1", "localhost"),
            wss.replace("127.0.0.1", "localhost"),
            amqp,
        )


@pytest.fixture
def ferrymq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(monkeypatch, capsys)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    path.write_text(PASSWORD + "\n")
    return path


def certificate(broker: Running) -> list[str]:
    pki = broker.pki
    return ["--cert", str(pki.path("alice")), "--key", str(pki.path("alice-key"))]


def good_token() -> str:
    return make_jwt(iat=int(time.time()), exp=int(time.time()) + 3600, sub="alice")


def expect_line(text: str, *parts: str) -> None:
    """One line, without secrets."""
    assert text.startswith("ferrymq: ") and text.count("\n") == 1, text
    for part in parts:
        assert part in text
    assert PASSWORD not in text and "Traceback" not in text


@pytest.mark.parametrize("scheme", ["amqps", "wss"])
def test_a_message_goes_from_a_user_to_a_certificate(
    broker: Running, ferrymq: Commands, secret: Path, scheme: str
) -> None:
    where = ["--url", getattr(broker, scheme), "--ca", str(broker.pki.path("ca"))]
    user = ["--user", "shop", "--password-file", str(secret)]
    done = ferrymq("send", *where, *user, scheme, "hello")
    assert done == (0, f"1 message sent to {scheme}\n", "")
    done = ferrymq("receive", *where, *certificate(broker), "-n", "1", scheme)
    assert done == (0, "hello\n", "")


def test_the_password_may_be_in_the_environment(broker: Running, ferrymq: Commands) -> None:
    send = ["send", "--user", "shop", "environment", "hello"]
    assert ferrymq(*send, FERRYMQ_PASSWORD=PASSWORD, FERRYMQ_URL=broker.amqp).returncode == 0


def test_a_password_on_the_command_line_is_worth_a_warning(
    broker: Running, ferrymq: Commands
) -> None:
    url = broker.amqp.replace("//", "//shop:pass%3Aword%2Fwith%20%40%20signs@")
    done = ferrymq("send", "--url", url, "typed", "hello")
    assert done.returncode == 0 and "WARNING" in done.stderr and "%40" not in done.stderr


def test_tokens_from_a_file_and_from_the_environment(
    broker: Running, ferrymq: Commands, secret: Path
) -> None:
    secret.write_text(good_token() + "\n")
    here = ["--url", broker.amqps, "--ca", str(broker.pki.path("ca"))]
    assert ferrymq("send", *here, "--token-file", str(secret), "tokens", "hello").returncode == 0
    # Whom to act as may be said as well.
    done = ferrymq(
        "receive", *here, "--user", "alice", "-n", "1", "tokens", FERRYMQ_TOKEN=good_token()
    )
    assert done == (0, "hello\n", "")
    done = ferrymq("admin", *here[2:], "list", "queues", *here[:2], FERRYMQ_TOKEN=good_token())
    assert done.returncode == 0 and "tokens" in done.stdout


def test_a_token_counts_more_than_a_certificate(broker: Running, ferrymq: Commands) -> None:
    here = ["--url", broker.amqps, "--ca", str(broker.pki.path("ca")), *certificate(broker)]
    done = ferrymq("send", *here, "q", "x", FERRYMQ_TOKEN="not.a.token")
    expect_line(done.stderr, "OAUTHBEARER")
    assert done.returncode == 1 and "not.a.token" not in done.stderr


def test_what_is_typed_counts_more_than_the_environment(
    broker: Running, ferrymq: Commands, secret: Path
) -> None:
    user = ["--user", "shop", "--password-file", str(secret)]
    send = ["send", "--url", broker.amqp, *user, "typed", "hello"]
    assert ferrymq(*send, FERRYMQ_TOKEN="not.a.token").returncode == 0
    url = broker.amqp.replace("//", "//shop:pass%3Aword%2Fwith%20%40%20signs@")
    assert ferrymq("send", "typed", "hello", "--url", url, FERRYMQ_PASSWORD="x").returncode == 0


def test_what_contradicts_itself(broker: Running, ferrymq: Commands, secret: Path) -> None:
    send = ["send", "--url", broker.amqp, "q", "x"]
    both = ["--user", "shop", "--password-file", str(secret), "--token-file", str(secret)]
    expect_line(ferrymq(*send, *both).stderr, "--token-file", "use only one")
    done = ferrymq(*send, FERRYMQ_TOKEN="a", FERRYMQ_PASSWORD="b")
    expect_line(done.stderr, "FERRYMQ_TOKEN and FERRYMQ_PASSWORD")
    secret.write_text("x" * 9000)
    done = ferrymq(*send, "--token-file", str(secret))
    expect_line(done.stderr, "the token must have 1 to 8000 characters")
    secret.write_text("\n")
    expect_line(ferrymq(*send, "--token-file", str(secret)).stderr, "1 to 8000")


def test_a_token_is_not_sent_where_it_could_be_read(ferrymq: Commands) -> None:
    done = ferrymq("send", "--url", "amqp://192.0.2.1", "q", "x", FERRYMQ_TOKEN="abc.def.ghi")
    expect_line(done.stderr, "amqps://")
    assert done.returncode == 1 and "abc.def" not in done.stderr


def test_a_refused_login(broker: Running, ferrymq: Commands) -> None:
    send = ["send", "--url", broker.amqp, "q", "x"]
    done = ferrymq(*send, "--user", "shop", FERRYMQ_PASSWORD="sesame 1234")
    assert done.returncode == 1 and "sesame" not in done.stderr
    expect_line(done.stderr, "refused SASL SCRAM-SHA-512", "the credentials are wrong")
    done = ferrymq(*send)
    assert done.returncode == 1
    expect_line(done.stderr, "not ANONYMOUS", "--user")


def test_an_unauthorised_link(broker: Running, ferrymq: Commands) -> None:
    receive = ["receive", "--url", broker.amqp, "--user", "shop", "-n", "1", "q"]
    done = ferrymq(*receive, FERRYMQ_PASSWORD=PASSWORD)
    assert done.returncode == 1
    expect_line(done.stderr, "amqp:unauthorized-access: receive at 'q' is not allowed to you")


@pytest.mark.parametrize("scheme", ["amqps", "wss"])
def test_a_certificate_that_nobody_vouches_for(
    broker: Running, ferrymq: Commands, scheme: str
) -> None:
    url = getattr(broker, scheme)
    done = ferrymq("send", "--url", url, "q", "x")
    assert done.returncode == 1
    expect_line(done.stderr, "the certificate of the broker is not good", "--ca FILE")
    done = ferrymq("send", "--url", url, "--ca", str(broker.pki.path("stranger")), "q", "x")
    assert done.returncode == 1
    expect_line(done.stderr, "the certificate of the broker is not good")


def test_a_certificate_for_somebody_else(broker: Running, ferrymq: Commands) -> None:
    url = broker.amqps.replace("localhost", "127.0.0.1")
    done = ferrymq("send", "--url", url, "--ca", str(broker.pki.path("ca")), "q", "x")
    assert done.returncode == 1
    expect_line(done.stderr, "not good: IP address mismatch")
    assert "--ca" not in done.stderr


@pytest.mark.parametrize("scheme", ["amqps", "wss"])
def test_a_port_that_does_not_speak_tls(broker: Running, ferrymq: Commands, scheme: str) -> None:
    url = broker.amqp.replace("amqp://", f"{scheme}://")
    done = ferrymq("send", "--url", url, "--ca", str(broker.pki.path("ca")), "q", "x")
    assert done.returncode == 1
    expect_line(done.stderr, f"cannot connect to {scheme}://127.0.0.1")
    assert "object at" not in done.stderr


def test_the_other_url_is_used_when_one_does_not_work(broker: Running, ferrymq: Commands) -> None:
    urls = f"amqps://127.0.0.1:9,{broker.amqps}"
    here = ["--url", urls, "--ca", str(broker.pki.path("ca")), "--user", "shop"]
    assert ferrymq("send", *here, "several", "hello", FERRYMQ_PASSWORD=PASSWORD).returncode == 0
    done = ferrymq(
        "receive", *here[:4], *certificate(broker), "-n", "1", "several", FERRYMQ_URL="amqp://x"
    )
    assert done == (0, "hello\n", "")
    mixed = f"{broker.amqps},{broker.amqp}"
    done = ferrymq("send", "--url", mixed, *here[2:4], "several", "x")
    expect_line(done.stderr, f"not for {broker.amqp}")
    named = broker.amqps.replace("//", "//alice@")
    done = ferrymq("send", "--url", f"{broker.amqps},{named}", *here[4:], "several", "x")
    expect_line(done.stderr, "different users")
