"""No secret is in anything that a broker says: its logs, its answers, its mistakes.

A broker process with users, tokens and keys is logged in to well and badly, asked for everything it
knows, and made to fail; then all it has said is searched.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import signal
import socket
import subprocess
import traceback
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

import ferrymq
from ferrymq import Message
from ferrymq.engine.events import AuthenticationRequested
from ferrymq.engine.oauth import OAuthBearer
from ferrymq.engine.sasl import Plain
from ferrymq.engine.scram import ScramKeys, password_mechanisms
from ferrymq.engine.settings import ConnectionSettings
from ferrymq.errors import AmqpError
from ferrymq.options import ConnectionOptions
from ferrymq.url import parse_url
from ferrymq_broker.cli.app import make_app, run
from ferrymq_broker.cli.credentials import Credentials
from ferrymq_broker.config import Config
from ferrymq_broker.config.log import Log
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.event_log import log
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.security.shared_access import SharedAccessKeys
from ferrymq_broker.server.logs import configure_logging
from ferrymq_types.security import SaslInit, SaslResponse
from tests.broker.harness import Client, Network
from tests.broker.test_process import port_in, serve
from tests.broker.tokens.makers import make_sas
from tests.support.known_users import KnownUsers

GOOD = "xyzzy-alice-Passw0rd"
BAD = "plugh-not-her-Passw0rd"
KEY = "frobozz-signing-key-of-the-gatehouse"
FOREIGN_KEY = "frotz-signing-key-of-somebody-else"
BAD_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJncnVlIn0.blorb-signature-of-nobody"
# Good for a long time.
TOKEN = make_sas("amqp://h/q", KEY, "root", 4_000_000_000)
SIGNATURE = unquote(TOKEN.partition("sig=")[2].partition("&")[0])

CONFIG = """
[[listener]]
url = "amqp://127.0.0.1:0"

[http]
url = "http://127.0.0.1:0"

[log]
level = "debug"
format = "{format}"
audit = "audit.jsonl"

[security.users]
alice = "{password}"

[[security.shared-access-key]]
name = "root"
primary = "{key}"
secondary = "secondary-{key}"
may = "*"

[[rule]]
who = "user:alice"
may = "*"
where = ["*", "$management", "$metrics", "dynamic.*"]
"""


def spellings(secret: str) -> list[str]:
    """The secret as it may turn up."""
    data = secret.encode()
    plain = base64.b64encode(b"\0alice\0" + data).decode()
    return [
        secret,
        quote(secret, safe=""),
        base64.b64encode(data).decode().rstrip("="),
        base64.b64encode(b"alice:" + data).decode().rstrip("="),
        plain.rstrip("="),
        data.hex(),
        repr(data)[2:-1],
    ]


def expect_no_secret(text: str) -> None:
    for secret in (GOOD, BAD, KEY, FOREIGN_KEY, SIGNATURE, BAD_TOKEN.rpartition(".")[2]):
        for spelling in spellings(secret):
            assert spelling not in text, f"{spelling!r} ({secret!r})"


class Running:
    """A broker process, and all that was heard of it."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str], folder: Path) -> None:
        self.process = process
        self.lines = lines
        self.folder = folder
        self.port = port_in(lines[0])
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.http = lines[1].split()[1]
        self.heard: list[str] = []

    def end(self) -> str:
        """Everything it has said."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        self.heard += [*self.lines, out, err, (self.folder / "audit.jsonl").read_text()]
        return "\n".join(self.heard)


@pytest.fixture(params=["text", "json"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    path = tmp_path / "broker.toml"
    path.write_text(CONFIG.format(format=request.param, password=GOOD, key=KEY))
    with serve("--config", str(path)) as (process, lines):
        yield Running(process, lines, tmp_path)


async def _log_in(running: Running) -> None:
    """Well and badly, in every way there is."""
    ways = [
        [Plain("alice", GOOD)],
        password_mechanisms("alice", GOOD),
        [Plain("alice", BAD)],
        password_mechanisms("alice", BAD),
        [OAuthBearer(BAD_TOKEN)],
    ]
    for sasl in ways:
        try:
            async with ferrymq.connect(running.url, sasl=sasl) as connection:
                await connection.sender("q")
        except AmqpError as error:
            running.heard.append(f"{error} {error!r} {error.__cause__!r}")


async def _bring_tokens(running: Running) -> None:
    async with ferrymq.connect(running.url, sasl=[Plain("alice", GOOD)]) as connection:
        answers = await connection.receiver(None, dynamic=True)
        sender = await connection.sender("$cbs")
        for token in (
            TOKEN,
            make_sas("amqp://h/q", FOREIGN_KEY, "root", 4_000_000_000),
            BAD_TOKEN,
            f"SharedAccessSignature sr={KEY}",
        ):
            message = Message(
                body=token,
                message_id="1",
                reply_to=answers.address,
                application_properties={
                    "operation": "put-token",
                    "type": "jwt",
                    "name": "amqp://h/q",
                },
            )
            await sender.send(message)
            delivery = await answers.receive()
            running.heard.append(repr(delivery.message.application_properties))


async def _read_everything(running: Running) -> int:
    """All that management tells."""
    found = 0
    async with (
        ferrymq.connect(running.url, sasl=[Plain("alice", GOOD)]) as connection,
        connection.management() as management,
    ):
        async for entity in management.query():
            found += 1
            running.heard.append(repr(entity))
            with contextlib.suppress(ManagementError):
                read = await management.read(str(entity["type"]), str(entity["identity"]))
                running.heard.append(repr(read))
    return found


def _scrape(running: Running) -> None:
    for password in (GOOD, BAD):
        for path in ("/metrics", "/metrics/nodes", "/readyz", "/nosuch"):
            request = urllib.request.Request(running.http + path)
            credentials = base64.b64encode(f"alice:{password}".encode()).decode()
            request.add_header("Authorization", f"Basic {credentials}")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    running.heard.append(answer.read().decode() + str(answer.headers))
            except urllib.error.HTTPError as error:
                running.heard.append(error.read().decode() + str(error.headers))
                error.close()


def _break_off(running: Running) -> None:
    """A login that is cut short, and one that is no SASL at all."""
    init = b"\x00\x53\x41\xc0\xff\xff\xa3\x05PLAIN\xa0" + b"\0alice\0" + GOOD.encode()
    frame = (len(init) + 8).to_bytes(4, "big") + b"\x02\x01\0\0" + init
    for data in (b"AMQP\x03\x01\x00\x00" + frame, GOOD.encode() * 3, b"AMQP\x03\x01\x00\x00\0\0"):
        with socket.create_connection(("127.0.0.1", running.port), timeout=30) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while answer := sock.recv(65536):
                    running.heard.append(answer.decode("latin-1"))


def test_a_broker_keeps_its_secrets(running: Running) -> None:
    async def talk() -> int:
        await _log_in(running)
        await _bring_tokens(running)
        return await _read_everything(running)

    assert asyncio.run(talk()) > 5
    _scrape(running)
    _break_off(running)
    said = running.end()
    # It has said a lot, and was asked the right questions.
    for word in ("login-refused", '"login"', "token", "ferrymq_connections", "link attached"):
        assert word in said, word
    expect_no_secret(said)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("[security.users]", "[secruity.users]"),
        (f'alice = "{GOOD}"', f'alice = ["{GOOD}"]'),
        (f'alice = "{GOOD}"', f'alice = "{GOOD}\\u0000"'),
        (f'primary = "{KEY}"', f'primary = {{ a = "{KEY}" }}'),
        (f'primary = "{KEY}"', f'primry = "{KEY}"'),
        (f'primary = "{KEY}"', f'primary = "{KEY}'),
        ("[security.users]", "[security]"),
        ("amqp://127.0.0.1:0", f"amqp://alice:{GOOD}@127.0.0.1:0"),
        ("http://127.0.0.1:0", f"http://alice:{GOOD}@127.0.0.1:0"),
    ],
)
def test_what_is_said_of_a_configuration_has_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: str,
    after: str,
) -> None:
    path = tmp_path / "broker.toml"
    good = CONFIG.format(format="text", password=GOOD, key=KEY)
    assert before in good
    path.write_text(good.replace(before, after) if before else good)
    for options in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["ferrymq", "check-config", *options, str(path)])
        with pytest.raises(SystemExit) as ended:
            run(make_app())
        assert ended.value.code == (1 if before else 0)
        said = capsys.readouterr()
        assert said.out or said.err
        expect_no_secret(said.out + said.err)


def test_objects_do_not_show_them() -> None:
    config = Config.model_validate(
        {
            "security": {
                "users": {"alice": GOOD},
                "shared-access-key": {"name": "root", "primary": KEY, "secondary": KEY + "2"},
            }
        }
    )
    asked = AuthenticationRequested("PLAIN", "alice", GOOD, None, BAD_TOKEN)
    url = parse_url(f"amqp://alice:{GOOD}@localhost")
    things: list[object] = [
        config,
        config.security,
        config.security.model_dump(),
        config.model_dump_json(),
        asked,
        vars(asked) if hasattr(asked, "__dict__") else None,
        Login(None, asked, ClientTransport("peer")),
        url,
        str(url),
        ConnectionOptions(sasl=[Plain("alice", GOOD), OAuthBearer(BAD_TOKEN)]),
        ConnectionSettings(container_id="c", initiator=True, sasl=Plain("alice", GOOD)),
        Plain("alice", GOOD),
        *password_mechanisms("alice", GOOD),
        ScramKeys.derive("SCRAM-SHA-256", GOOD),
        SaslInit(mechanism="PLAIN", initial_response=b"\0alice\0" + GOOD.encode()),
        SaslResponse(response=GOOD.encode()),
        Credentials("alice", None),
        SharedAccessKeys(config.security.shared_access_key),
    ]
    for thing in things:
        expect_no_secret(f"{thing!r} {thing} {thing!s:.5000}")
        try:
            raise ValueError(thing)
        except ValueError as error:
            lines = traceback.TracebackException.from_exception(error, capture_locals=True)
            expect_no_secret("".join(line for line in lines.format() if "GOOD" not in line))


def test_a_mistake_of_ours_does_not_show_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level

    class Broken(KnownUsers):
        def authenticate(self, login: Login) -> None:
            password = login.password
            raise RuntimeError("a mistake") if password else ValueError(login)

    try:
        configure_logging(Log(level="debug"))
        net = Network(authenticator=Broken({"alice": GOOD}, False, False))
        client = Client(net, sasl=Plain("alice", GOOD))
        try:
            client.open()
        except RuntimeError:
            log.exception("internal error", peer="peer")
        said = capsys.readouterr().err
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert "a mistake" in said and "Traceback" in said
    expect_no_secret(said)
