"""Certificates for tests, and brokers that use them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from ferrymq_broker.config.listeners import Listener
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.tls import Tls
from ferrymq_broker.security.dev_ca import Authority, Issued
from ferrymq_broker.server import BrokerServer


class Pki:
    """An authority, a server and a client in one folder, made by what `ferrymq cert` uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create("test authority", 1)
        self.stranger = Authority.create("another authority", 1)
        (folder / "ca.pem").write_bytes(self.authority.pem)
        (folder / "stranger.pem").write_bytes(self.stranger.pem)
        self.write("server", self.authority.server(["localhost", "127.0.0.1"], 30))
        self.write("alice", self.authority.client("alice", 1))

    def write(self, name: str, issued: Issued) -> Path:
        """Write a certificate and its key; the path of the certificate."""
        path = self.path(name)
        path.write_bytes(issued.certificate)
        key = self.path(f"{name}-key")
        key.touch(0o600)
        key.write_bytes(issued.key)
        return path

    def path(self, name: str) -> Path:
        """Where something is."""
        return self.folder / f"{name}.pem"

    def revoke(self, *certificates: bytes, days: float = 30) -> None:
        """Write ``crl.pem``, the list of certificates that the authority has revoked."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().last_update(now - timedelta(hours=1))
        builder = builder.issuer_name(x509.load_pem_x509_certificate(self.authority.pem).subject)
        builder = builder.next_update(now + timedelta(days=days))
        for pem in certificates:
            number = x509.load_pem_x509_certificate(pem).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now)
            builder = builder.add_revoked_certificate(revoked.build())
        key = load_pem_private_key(self.authority.key_pem, None)
        assert isinstance(key, EllipticCurvePrivateKey)
        signed = builder.sign(key, hashes.SHA256())
        self.path("crl").write_bytes(signed.public_bytes(Encoding.PEM))

    def tls(self, server: str = "server", **more: Any) -> Tls:
        """Settings with the certificate of a server."""
        return Tls(certificate=self.path(server), key=self.path(f"{server}-key"), **more)

    def asking(self, how: str = "optional", **more: Any) -> Tls:
        """Settings with which clients are asked for certificates of the authority."""
        return self.tls(client_certificates=how, client_ca=self.path("ca"), **more)

    def trusting(self, client: str | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority, and may have a certificate."""
        context = ssl.create_default_context(cafile=str(self.path("ca")))
        if client is not None:
            context.load_cert_chain(self.path(client), self.path(f"{client}-key"))
        return context


def serving(tls: Tls, url: str = "amqps://127.0.0.1:0", **more: Any) -> BrokerServer:
    """A broker with one listener; a setting of the listener, ``upgrade_tls``, may be among the
    others."""
    listener = Listener(url=url, upgrade_tls=more.pop("upgrade_tls", "off"))
    return BrokerServer(Config(listener=[listener], tls=tls, **more))
