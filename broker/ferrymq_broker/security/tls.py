"""TLS contexts of the standard library, from the settings of ``[tls]``, with modern defaults.

TLS 1.2 and newer, forward secrecy, authenticated encryption; no compression, no renegotiation.
Errors in files are found when the files are read.
"""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from ferrymq_broker.config.tls import BadTlsError, Tls

# The ciphers of TLS 1.2. All ciphers of TLS 1.3 are allowed.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!eNULL"
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
# A certificate that expires within this time causes a warning.
_SOON: Final = timedelta(days=7)


class Loaded(NamedTuple):
    """A context for servers, when its certificate expires, and warnings about the files."""

    context: ssl.SSLContext
    expires: datetime
    warnings: list[str]


def load_tls(tls: Tls) -> Loaded:
    """Read the files. Raises `BadTlsError` for the first file that cannot be used."""
    if tls.certificate is None:
        raise BadTlsError("certificate", "there is no [tls] section")
    warnings: list[str] = []
    leaf = _certificates(tls.certificate, "certificate")[0]
    password = _password(tls)
    _check_key(tls, leaf, password, warnings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.minimum_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    _set_ciphers(context, tls)
    try:
        context.load_cert_chain(tls.certificate, tls.key, lambda: password or b"")
    except (ssl.SSLError, OSError) as error:
        raise BadTlsError("certificate", f"{tls.certificate}: {_reason(error)}") from None
    _ask_clients(context, tls, warnings)
    expires = leaf.not_valid_after_utc
    warnings += _warn_of_times(tls.certificate, leaf.not_valid_before_utc, expires)
    return Loaded(context, expires, warnings)


def _ask_clients(context: ssl.SSLContext, tls: Tls, warnings: list[str]) -> None:
    """Set whether clients need certificates, and the authorities for them."""
    if tls.client_certificates == "none" or tls.client_ca is None:
        return
    required = tls.client_certificates == "required"
    for authority in _certificates(tls.client_ca, "client_ca"):
        if authority.not_valid_after_utc <= datetime.now(UTC):
            name = authority.subject.rfc4514_string()
            warnings.append(f"{tls.client_ca}: the certificate of {name} has expired")
    _load_locations(context, tls.client_ca, "client_ca")
    if tls.client_crl is not None:
        _check_crl(tls.client_crl, warnings)
        _load_locations(context, tls.client_crl, "client_crl")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    # An intermediate authority can be trusted without trusting the root above it.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    # A resumed session is not verified again, and its certificate may have been revoked.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _load_locations(context: ssl.SSLContext, path: Path, field: str) -> None:
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise BadTlsError(field, f"{path}: {_reason(error)}") from None


def _set_ciphers(context: ssl.SSLContext, tls: Tls) -> None:
    try:
        context.set_ciphers(tls.ciphers or _CIPHERS)
    except ssl.SSLError:
        raise BadTlsError("ciphers", f"no cipher is left with {tls.ciphers!r}") from None
    for cipher in context.get_ciphers():
        if cipher["auth"] == "auth-null" or not cipher["strength_bits"]:
            raise BadTlsError("ciphers", f"the cipher {cipher['name']} does not encrypt")


def _read(path: Path, field: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadTlsError(field, f"{path}: {error.strerror or error}") from None


def _certificates(path: Path, field: str) -> list[x509.Certificate]:
    """Return all certificates of a file, at least one."""
    data = _read(path, field)
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        what = "a certificate that is none" if b"BEGIN CERT" in data else "no certificate in PEM"
        raise BadTlsError(field, f"{path}: there is {what}") from None


def _password(tls: Tls) -> bytes | None:
    path = tls.key_password_file
    if path is None:
        return None
    lines = _read(path, "key_password_file").splitlines()
    # OpenSSL does not accept longer passwords.
    if not lines or not 0 < len(lines[0]) <= 1024:
        raise BadTlsError(
            "key_password_file", f"{path}: the first line must be the password, but it is empty"
        )
    return lines[0]


def _check_key(
    tls: Tls, leaf: x509.Certificate, password: bytes | None, warnings: list[str]
) -> None:
    """Raise `BadTlsError` if the key cannot be read, or is not that of the certificate."""
    assert tls.certificate is not None
    path = tls.key or tls.certificate
    data = _read(path, "key")
    if b"PRIVATE KEY-----" not in data:
        raise BadTlsError("key", f"{path}: there is no private key in PEM")
    encrypted = b"ENCRYPTED" in data
    try:
        key = load_pem_private_key(data, password if encrypted else None)
    except TypeError:
        raise BadTlsError(
            "key", f"{path}: the private key is encrypted: set key-password-file"
        ) from None
    except ValueError:
        if encrypted:
            raise BadTlsError(
                "key_password_file", f"{path}: the password of the private key is wrong"
            ) from None
        raise BadTlsError("key", f"{path}: the private key cannot be read") from None
    except Exception:
        # A kind of key that TLS does not support.
        raise BadTlsError("key", f"{path}: the private key cannot be used") from None
    wanted = leaf.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != wanted:
        raise BadTlsError(
            "key", f"{path}: the key does not belong to the certificate {tls.certificate}"
        )
    if path.stat().st_mode & stat.S_IROTH:
        warnings.append(
            f"{path}: everybody on this machine can read the private key; run chmod 600"
        )


def _check_crl(path: Path, warnings: list[str]) -> None:
    data = _read(path, "client_crl")
    marker = b"-----END X509 CRL-----"
    lists = [part + marker for part in data.split(marker)[:-1]]
    if not lists:
        raise BadTlsError("client_crl", f"{path}: there is no certificate revocation list in PEM")
    for part in lists:
        try:
            revoked = x509.load_pem_x509_crl(part[part.index(b"-----BEGIN X509 CRL") :])
        except ValueError:
            raise BadTlsError(
                "client_crl", f"{path}: a certificate revocation list in it cannot be read"
            ) from None
        update = revoked.next_update_utc
        if update is not None and update <= datetime.now(UTC):
            warnings.append(
                f"{path}: the certificate revocation list expired on {update:%Y-%m-%d}; all "
                "client certificates are refused"
            )


def _warn_of_times(path: Path, begins: datetime, ends: datetime) -> list[str]:
    now = datetime.now(UTC)
    if ends <= now:
        return [f"{path}: the certificate has expired, on {ends:%Y-%m-%d %H:%M} UTC"]
    if ends <= now + _SOON:
        return [f"{path}: the certificate expires on {ends:%Y-%m-%d %H:%M} UTC"]
    if begins > now:
        return [f"{path}: the certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC"]
    return []


def _reason(error: OSError) -> str:
    """Return the reason of an OpenSSL error in readable words."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return error.strerror or str(error)
