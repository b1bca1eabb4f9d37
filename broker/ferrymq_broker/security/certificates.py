"""Logins with client certificates: SASL EXTERNAL (RFC 4422, Appendix A)."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ferrymq.engine.scram import ScramKeys
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.certificates import CertificateRule
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.security.authenticators import LoginRefusedError

EXTERNAL: Final = "EXTERNAL"
# The most characters of a name; longer ones are ignored.
_MOST: Final = 256
# The names of RFC 4514 for attributes, by OpenSSL's long names.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SANS: Final = {"san-dns": "DNS", "san-email": "email", "san-uri": "URI"}


class CertificateUsers:
    """A login method that maps verified certificates to users; the first rule that matches decides.

    `now` returns seconds since the Unix epoch.
    """

    def __init__(
        self, rules: Sequence[CertificateRule], now: Callable[[], float] = time.time
    ) -> None:
        self._rules = [(rule, re.compile(rule.pattern)) for rule in rules]
        self._now = now

    def mechanisms(self, transport: ClientTransport) -> Sequence[str]:
        """Return EXTERNAL for a client with a certificate of a user."""
        certificate = transport.certificate
        if certificate is None or self.identity_of(certificate) is None:
            return ()
        return (EXTERNAL,)

    def scram_keys(self, mechanism: str, username: str) -> ScramKeys | None:
        """Return None, because this method has no passwords."""
        return None

    async def identify(self, login: Login) -> UserIdentity:
        """Return the user of the certificate. Refuse a login as another user."""
        certificate = login.transport.certificate
        identity = None if certificate is None else self.identity_of(certificate)
        if identity is None:
            raise LoginRefusedError("no rule matches the certificate")
        if login.username and login.username != identity.user:
            raise LoginRefusedError(f"the certificate belongs to {identity.user!r}")
        if identity.expires and identity.expires <= self._now():
            raise LoginRefusedError("the certificate has expired")
        return identity

    def identity_of(self, certificate: dict[str, object]) -> UserIdentity | None:
        """Return the user of a certificate by the first rule that matches; None if none does."""
        for rule, pattern in self._rules:
            for name in names_of(certificate, rule.name_from):
                match = pattern.fullmatch(name)
                user = rule.fill(match) if match is not None else ""
                if user:
                    return UserIdentity(
                        user, frozenset(rule.groups), mechanism=EXTERNAL, expires=_end(certificate)
                    )
        return None


def names_of(certificate: dict[str, object], where: str) -> Iterator[str]:
    """Yield the names of one kind. Names with unprintable characters, such as NUL, are ignored."""
    if where == "subject":
        names = [_distinguished(certificate)]
    elif where == "subject-cn":
        names = [value for key, value in _attributes(certificate) if key == "commonName"]
    else:
        kind = _SANS[where]
        names = [value for key, value in _pairs(certificate.get("subjectAltName")) if key == kind]
    for name in names:
        if name and len(name) <= _MOST and name.isprintable() and name == name.strip():
            yield name


def _distinguished(certificate: dict[str, object]) -> str:
    """Return the subject as RFC 4514 writes it, the last part first."""
    parts: list[str] = []
    for part in reversed(_parts(certificate)):
        parts.append("+".join(f"{_SHORT.get(key, key)}={_escape(value)}" for key, value in part))
    return ",".join(parts)


def _escape(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if value.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped


def _attributes(certificate: dict[str, object]) -> Iterator[tuple[str, str]]:
    for part in _parts(certificate):
        yield from part


def _parts(certificate: dict[str, object]) -> list[list[tuple[str, str]]]:
    """Return the parts of the subject, as `ssl.SSLSocket.getpeercert` has them."""
    subject = certificate.get("subject")
    if not isinstance(subject, tuple):
        return []
    return [list(_pairs(part)) for part in subject]


def _pairs(value: object) -> Iterator[tuple[str, str]]:
    if not isinstance(value, tuple):
        return
    for pair in value:
        if isinstance(pair, tuple) and len(pair) == 2:
            key, text = pair
            if isinstance(key, str) and isinstance(text, str):
                yield key, text


def _end(certificate: dict[str, object]) -> float:
    """Return when the certificate expires, in seconds since the Unix epoch; 0 if that is
    unknown."""
    end = certificate.get("notAfter")
    return float(ssl.cert_time_to_seconds(end)) if isinstance(end, str) else 0.0
