"""``ferrymq cert``, and commands that connect by TLS."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from tests.broker.test_process import run, serve

LOCAL = ["localhost", "127.0.0.1"]


def cert(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), ["cert", *arguments])
    # What a command says of its failure it raises, for `run` to print.
    return result.exit_code, result.output + str(result.exception or "")


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_certificates_are_what_servers_and_clients_need(tmp_path: Path) -> None:
    status, text = cert("--out", str(tmp_path), "--host", "broker.example", "--client", "a@b.c")
    assert status == 0 and "broker.example" in text and "[tls]" in text
    server, client = read(tmp_path / "server.pem"), read(tmp_path / "client-a@b.c.pem")
    authority = read(tmp_path / "ca.pem")
    for certificate in (server, client):
        certificate.verify_directly_issued_by(authority)
        left = certificate.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=89) < left <= timedelta(days=90)
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert basic.critical and not basic.value.ca
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example"]
    use = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
    use = client.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(use) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    for name in ("ca", "server", "client-a@b.c"):
        assert stat.S_IMODE((tmp_path / f"{name}-key.pem").stat().st_mode) == 0o600


def test_nothing_is_replaced_unless_that_is_meant(tmp_path: Path) -> None:
    assert cert("--out", str(tmp_path), "--json")[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    status, text = cert("--out", str(tmp_path))
    assert status == 1 and "--force" in text
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    status, text = cert("--out", str(tmp_path), "--force", "--json")
    assert json.loads(text)["files"] == ["server.pem", "server-key.pem"]
    assert (tmp_path / "ca.pem").read_bytes() == before["ca.pem"]
    assert (tmp_path / "server.pem").read_bytes() != before["server.pem"]


def test_further_clients_are_certified_by_the_same_authority(tmp_path: Path) -> None:
    assert cert("--out", str(tmp_path))[0] == 0
    _, text = cert("--out", str(tmp_path), "--client", "bob", "--json")
    assert json.loads(text)["files"] == ["client-bob.pem", "client-bob-key.pem"]
    read(tmp_path / "client-bob.pem").verify_directly_issued_by(read(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--client", "../alice"),
        ("--client", ""),
        ("--client", "a" * 65),
        ("--host", "no host"),
        ("--host", "a..b"),
        ("--days", "0"),
    ],
)
def test_names_that_are_none(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert cert("--out", str(tmp_path / "new"), *arguments)[0] == 2
    assert not list(tmp_path.rglob("*.pem"))


def test_a_foreign_authority_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("hello")
    (tmp_path / "ca-key.pem").write_text("hello")
    status, text = cert("--out", str(tmp_path))
    assert status == 1 and "cannot be used" in text
    assert (tmp_path / "ca.pem").read_text() == "hello"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A broker that knows its clients by their certificates, as `ferrymq cert` proposes it."""
    folder = tmp_path_factory.mktemp("broker")
    cert("--out", str(folder), "--client", "alice")
    config = folder / "broker.toml"
    config.write_text(
        '[[listener]]\nurl = "amqps://127.0.0.1:0"\n'
        '[[listener]]\nurl = "amqp://127.0.0.1:0"\n'
        '[tls]\ncertificate = "server.pem"\nkey = "server-key.pem"\nclient-ca = "ca.pem"\n'
        'client-certificates = "optional"\n[[security.certificate-rule]]\n'
    )
    with serve("--config", str(config)) as (_, lines):
        yield folder, f"amqps://localhost:{lines[0].rpartition(':')[2]}"


def test_commands_show_their_certificate(broker: tuple[Path, str]) -> None:
    folder, url = broker
    shown = ["--ca", str(folder / "ca.pem"), "--cert", str(folder / "client-alice.pem")]
    shown += ["--key", str(folder / "client-alice-key.pem")]
    assert run("send", "--url", url, *shown, "orders", "hello").returncode == 0
    received = run("receive", "--url", url, *shown, "-n", "1", "orders")
    assert received.stdout == "hello\n"
    listed = run("admin", *shown, "list", "connections", "--url", url, "--json")
    assert "alice" in listed.stdout, listed.stderr


def test_a_broker_that_nobody_vouches_for_is_not_trusted(broker: tuple[Path, str]) -> None:
    _, url = broker
    refused = run("send", "--url", url, "orders", "hello")
    assert refused.returncode == 1 and "not good: self-signed" in refused.stderr
    assert refused.stderr.count("\n") == 1 and "--ca" in refused.stderr


def test_not_to_check_is_said_aloud(broker: tuple[Path, str]) -> None:
    folder, url = broker
    shown = ["--cert", str(folder / "client-alice.pem")]
    shown += ["--key", str(folder / "client-alice-key.pem")]
    sent = run("send", "--url", url, "--no-verify", *shown, "unchecked", "hello")
    assert sent.returncode == 0 and "WARNING" in sent.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--ca", "{folder}/none.pem"], "none.pem"),
        (["--ca", "{folder}/broker.toml"], "no PEM text"),
        (["--cert", "{folder}/client-alice.pem"], "client-alice.pem"),
        (
            ["--cert", "{folder}/client-alice.pem", "--key", "{folder}/server-key.pem"],
            "mismatch",
        ),
        (["--key", "{folder}/server-key.pem"], "--cert"),
        (["--ca", "{folder}/ca.pem", "--no-verify"], "exclude"),
        (["--ca", "{folder}/ca.pem", "--url", "amqp://127.0.0.1:1"], "amqps://"),
    ],
)
def test_mistakes_are_told(broker: tuple[Path, str], arguments: list[str], reason: str) -> None:
    folder, url = broker
    given = [argument.format(folder=folder) for argument in arguments]
    result = CliRunner().invoke(make_app(), ["send", "--url", url, *given, "orders", "hello"])
    assert result.exit_code == 1 and reason in str(result.exception)
