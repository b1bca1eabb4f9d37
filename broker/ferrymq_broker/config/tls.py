"""How connections are encrypted, and with whom: ``[tls]``; ``[listener.tls]`` for one listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section, kebab
from ferrymq_broker.errors import ConfigError


class BadTlsError(ConfigError):
    """The TLS settings, or the files they name, cannot be used. `field` is the setting's."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"tls.{kebab(field)}: {reason}")
        self.field = field
        self.reason = reason


class Tls(Section):
    """``[tls]``: the certificate to show, and those to ask clients for. All files are PEM.

    `certificate` may have a chain, the server's own first, and the key, unless that is in `key`;
    `key_password_file` has the password of an encrypted one in its first line. `client_ca` are the
    authorities whose certificates clients may show, or must with `client_certificates`
    ``required``; `client_crl` are the lists of what those have revoked.
    """

    certificate: File | None = None
    key: File | None = None
    key_password_file: File | None = None
    client_ca: File | None = None
    client_crl: File | None = None
    client_certificates: Literal["none", "optional", "required"] = "none"
    minimum_version: Literal["1.2", "1.3"] = "1.2"
    # OpenSSL's words for those of TLS 1.2; empty for those with forward secrecy and an AEAD.
    ciphers: str = ""

    def refined(self, other: Tls) -> Tls:
        """The same with what `other` says in its place."""
        said = {name: getattr(other, name) for name in other.model_fields_set}
        if "certificate" in said:
            # The key of one certificate is not the key of another.
            for name in ("key", "key_password_file"):
                said.setdefault(name, None)
        return self.model_copy(update=said)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """What does not fit together: the key, and why."""
        if self.certificate is None:
            for key in ("key", "client_certificates"):
                if getattr(self, key) not in (None, "none"):
                    yield key, "there is no certificate for TLS"
        if self.key_password_file is not None and self.certificate is None:
            yield "key_password_file", "there is no key"
        if self.client_certificates == "none":
            for key in ("client_ca", "client_crl"):
                if getattr(self, key) is not None:
                    reason = 'clients are not asked; say client-certificates = "optional"'
                    yield key, f'{reason} or "required"'
        elif self.client_ca is None:
            yield "client_certificates", "say who certifies clients: client-ca"
