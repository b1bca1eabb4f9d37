"""What the configuration says of TLS, and what the files hold that it names."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from typer.testing import CliRunner

from ferrymq_broker.cli.app import make_app
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import BadFile, load_config
from ferrymq_broker.security.tls import load_tls
from ferrymq_broker.security.tls_reload import TlsRegistry
from tests.broker.tls.pki import Pki, serving

LISTENER = '[[listener]]\nurl = "amqps://127.0.0.1:0"\n'
FILES = 'certificate = "server.pem"\nkey = "server-key.pem"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LISTENER, "2: listener.url: amqps://127.0.0.1:0: there is no certificate"),
        ('[[listener]]\nurl = "wss://127.0.0.1:0"\n', "2: listener.url: .*no certificate"),
        (
            '[[listener]]\nurl = "amqp://127.0.0.1:0"\nupgrade-tls = "offered"\n',
            "2: listener.url: .*no certificate",
        ),
        (
            f'{LISTENER}upgrade-tls = "required"\n[tls]\n{FILES}',
            "3: listener.upgrade-tls: only amqp://",
        ),
        (
            f'[[listener]]\nurl = "amqp://127.0.0.1:0"\n[listener.tls]\n{FILES}',
            "4: listener.tls.certificate: .* has no TLS",
        ),
        ('[tls]\nkey = "k.pem"\n', "2: tls.key: there is no certificate"),
        (
            f'[tls]\n{FILES}client-certificates = "required"\n',
            "4: tls.client-certificates: client certificates need client-ca",
        ),
        (f'[tls]\n{FILES}client-ca = "ca.pem"\n', "4: tls.client-ca: clients are not asked"),
        (f'[tls]\n{FILES}minimum-version = "1.1"\n', "4: tls.minimum-version: "),
        (f'[tls]\n{FILES}client-certificate = "none"\n', "4: unknown key .*client-certificates"),
        ('[http]\nurl = "https://127.0.0.1:0"\n', "2: http.url: .*no certificate"),
    ],
)
def test_settings_that_do_not_fit_together(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadFile, match=f"broker.toml:{reason}"):
        load_config(write(tmp_path, text))


def test_a_listener_says_what_is_different(pki: Pki, tmp_path: Path) -> None:
    pki.write("other", pki.authority.server(["localhost"], 30))
    config = load_config(
        write(
            tmp_path,
            f'{LISTENER}{LISTENER}[listener.tls]\nminimum-version = "1.3"\n'
            f'{LISTENER}[listener.tls]\ncertificate = "other.pem"\nkey = "other-key.pem"\n'
            f"[tls]\n{FILES}",
        )
    )
    registry = TlsRegistry(config)
    files = [registry.files_for(listener.tls) for listener in config.listener]
    assert files[0] is registry.files_for()
    versions = [each.context.minimum_version for each in files]
    assert versions == [
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
        ssl.TLSVersion.TLSv1_2,
    ]
    assert files[2].context is not files[0].context


def test_another_certificate_has_another_key(pki: Pki) -> None:
    assert pki.tls().refined(pki.tls().model_copy(update={})).key is not None
    alone = type(pki.tls())(certificate=pki.path("alice"))
    assert pki.tls().refined(alone).key is None


def encrypt(pki: Pki, password: bytes) -> None:
    key = load_pem_private_key(pki.path("server-key").read_bytes(), None)
    pki.path("server-key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password))
    )


DAMAGES: list[tuple[str, Callable[[Pki], object], str]] = [
    ("certificate", lambda pki: pki.path("server").unlink(), "No such file"),
    ("certificate", lambda pki: pki.path("server").write_text("hello"), "no certificate in PEM"),
    (
        "certificate",
        lambda pki: pki.path("server").write_text(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        ),
        "a certificate that is none",
    ),
    ("key", lambda pki: pki.path("server-key").unlink(), "No such file"),
    ("key", lambda pki: pki.path("server-key").write_text("hello"), "no private key in PEM"),
    (
        "key",
        lambda pki: pki.path("server-key").write_text(
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
        ),
        "cannot be read",
    ),
    (
        "key",
        lambda pki: pki.path("server-key").write_bytes(pki.path("alice-key").read_bytes()),
        "does not belong to the certificate",
    ),
    ("key", lambda pki: encrypt(pki, b"sesame"), "encrypted: set key-password-file"),
]


@pytest.mark.parametrize(("key", "damage", "reason"), DAMAGES)
async def test_files_that_cannot_be_used(
    pki: Pki, tmp_path: Path, key: str, damage: Callable[[Pki], object], reason: str
) -> None:
    """The start fails, and `check-config` says where it is."""
    damage(pki)
    with pytest.raises(ConfigError, match=reason):
        await serving(pki.tls()).start()
    config = write(tmp_path, f"{LISTENER}[tls]\n{FILES}")
    result = CliRunner().invoke(make_app(), ["check-config", str(config), "--json"])
    (problem,) = json.loads(result.output)["problems"]
    line = {"certificate": 4, "key": 5}[key]
    assert problem["line"] == line and problem["reason"].startswith(f"tls.{key}: ")
    assert reason in problem["reason"] and result.exit_code == 1


def test_an_encrypted_key_with_its_password(pki: Pki) -> None:
    encrypt(pki, b"sesame")
    password = pki.folder / "password"
    password.write_text("sesame\n")
    load_tls(pki.tls(key_password_file=password))
    for wrong in ("open", "", "\n"):
        password.write_text(wrong)
        with pytest.raises(ConfigError, match="key-password-file") as caught:
            load_tls(pki.tls(key_password_file=password))
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("ciphers", ["aNULL:@SECLEVEL=0", "eNULL:@SECLEVEL=0", "NO-SUCH"])
def test_ciphers_that_protect_nothing(pki: Pki, ciphers: str) -> None:
    with pytest.raises(ConfigError, match=r"tls\.ciphers"):
        load_tls(pki.tls(ciphers=ciphers))


def test_what_is_modern(pki: Pki) -> None:
    context = load_tls(pki.tls()).context
    names = {cipher["name"] for cipher in context.get_ciphers()}
    assert names and all("GCM" in name or "CHACHA20" in name for name in names)
    assert all(name.startswith(("TLS_", "ECDHE-")) for name in names)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION


def test_a_chain_with_its_key_in_one_file(pki: Pki) -> None:
    data = pki.path("server").read_bytes() + pki.authority.pem
    pki.path("all").write_bytes(data + pki.path("server-key").read_bytes())
    pki.path("all").chmod(0o600)
    tls = type(pki.tls())(certificate=pki.path("all"))
    assert load_tls(tls).warnings == []


def test_odd_things_are_told(pki: Pki) -> None:
    pki.write("server", pki.authority.server(["localhost"], 3))
    pki.path("server-key").chmod(0o644)
    pki.revoke(days=-0.01)
    warnings = "\n".join(load_tls(pki.asking(client_crl=pki.path("crl"))).warnings)
    assert "everybody on this machine can read" in warnings
    assert "the certificate expires on" in warnings
    assert "list expired on" in warnings


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("client-ca", b"hello", "no certificate in PEM"),
        ("client-crl", b"hello", "no certificate revocation list"),
        (
            "client-crl",
            b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
            "cannot be read",
        ),
    ],
)
def test_files_about_clients(pki: Pki, name: str, data: bytes, reason: str) -> None:
    (pki.folder / "bad").write_bytes(data)
    more: dict[str, object] = {name.replace("-", "_"): pki.folder / "bad"}
    tls = (
        pki.asking(**more)
        if name != "client-ca"
        else pki.tls(client_certificates="optional", **more)
    )
    with pytest.raises(ConfigError, match=f"tls.{name}: .*{reason}"):
        load_tls(tls)
