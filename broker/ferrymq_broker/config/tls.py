"""Settings of TLS: ``[tls]``, and ``[listener.tls]`` for one listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section, kebab


class BadTlsError(ConfigError):
    """The TLS settings, or the files they name, cannot be used. `field` names the setting."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"tls.{kebab(field)}: {reason}")
        self.field = field
        self.reason = reason


class Tls(Section):
    """``[tls]``: the server's certificate, and the check of clients' certificates. All files are
    PEM.

    `certificate` is a file with the server's certificate, followed by its chain if there is one.
    The key is in the file `key`, or in the same file. The first line of `key_password_file` is the
    password of an encrypted key. `client_ca` is a file with authorities: clients may send
    certificates of these, or must if `client_certificates` is ``required``. `client_crl` is a file
    with the certificates that these authorities have revoked.
    """

    certificate: File | None = None
    key: File | None = None
    key_password_file: File | None = None
    client_ca: File | None = None
    client_crl: File | None = None
    client_certificates: Literal["none", "optional", "required"] = "none"
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    # Ciphers of TLS 1.2 in OpenSSL's form; empty for the ciphers with forward secrecy and an AEAD.
    ciphers: str = ""

    def refined(self, other: Tls) -> Tls:
        """Return these settings, overridden by the settings that `other` contains."""
        said = {name: getattr(other, name) for name in other.model_fields_set}
        if "certificate" in said:
            # A key belongs to one certificate: another certificate needs a key of its own.
            for name in ("key", "key_password_file"):
                said.setdefault(name, None)
        return self.model_copy(update=said)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield settings that contradict each other: the key and the reason."""
        if self.certificate is None:
            for key in ("key", "client_certificates"):
                if getattr(self, key) not in (None, "none"):
                    yield key, "there is no certificate for TLS"
        if self.key_password_file is not None and self.certificate is None:
            yield "key_password_file", "there is no key"
        if self.client_certificates == "none":
            for key in ("client_ca", "client_crl"):
                if getattr(self, key) is not None:
                    reason = 'clients are not asked for any; set client-certificates = "optional"'
                    yield key, f'{reason} or "required"'
        elif self.client_ca is None:
            yield "client_certificates", "client certificates need client-ca, their authorities"
