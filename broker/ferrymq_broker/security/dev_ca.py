"""Certificates for development and tests: a certificate authority, and its certificates.

Keys are on the curve P-256. Do not use this for an authority that other people have to trust.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Certificates are valid from this much earlier on, because the clocks of other machines may be
# behind.
_EARLIER: Final = timedelta(hours=1)


class Issued(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority for servers and clients. Programs that trust it need `pem`."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, days: float) -> Authority:
        """Make a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _begin(subject, subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(certifies=True), True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> Authority:
        """Load an authority that `create` made. Raises ValueError if it cannot be used."""
        found = x509.load_pem_x509_certificate(certificate)
        try:
            loaded = load_pem_private_key(key, None)
        except TypeError:
            raise ValueError("its key is encrypted") from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("its key is of another kind")
        if loaded.public_key() != found.public_key():
            raise ValueError("its key belongs to another certificate")
        try:
            found.verify_directly_issued_by(found)
        except (InvalidSignature, ValueError, TypeError):
            raise ValueError("ferrymq cert did not make it") from None
        if found.not_valid_after_utc <= datetime.now(UTC):
            raise ValueError("it has expired")
        return cls(found, loaded)

    @property
    def pem(self) -> bytes:
        """The certificate of the authority."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The private key of the authority, which must be kept secret."""
        return _key_pem(self._key)

    def server(self, hosts: list[str], days: float) -> Issued:
        """Issue a certificate for a server with these names and addresses. Raises ValueError for an
        invalid one."""
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(_ascii(host)))
        return self._issue(hosts[0], names, ExtendedKeyUsageOID.SERVER_AUTH, days)

    def client(self, name: str, days: float) -> Issued:
        """Issue a certificate for a client. Its name, of at most 64 characters, is the common
        name."""
        names: list[x509.GeneralName] = []
        if name.count("@") == 1 and name.isascii() and " " not in name:
            names.append(x509.RFC822Name(name))
        return self._issue(name, names, ExtendedKeyUsageOID.CLIENT_AUTH, days)

    def _issue(
        self, name: str, names: list[x509.GeneralName], use: x509.ObjectIdentifier, days: float
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        # A common name has at most 64 characters. The names of a server are in an extension.
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
        builder = _begin(subject, self._certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(certifies=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False
        )
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Issued(certificate.public_bytes(Encoding.PEM), _key_pem(key))


def _begin(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    # With negative `days` the certificate must begin before its end.
    begins = min(now, now + timedelta(days=days)) - _EARLIER
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(certifies: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=certifies,
        crl_sign=certifies,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _ascii(host: str) -> str:
    """Return the ASCII form of a host name, for a certificate."""
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{host!r} is neither a host name nor an address") from None
    labels = name.removeprefix("*.").removesuffix(".").split(".")
    if not all(label and label.replace("-", "").replace("_", "").isalnum() for label in labels):
        raise ValueError(f"{host!r} is neither a host name nor an address")
    return name
