"""Shared access signatures: tokens that owners of a key make themselves.

``SharedAccessSignature sr=URI&sig=SIGNATURE&se=EXPIRY&skn=KEY``, each value percent-encoded. The
signature is an HMAC-SHA256, with the text of the key, of the encoded URI, a line feed and the
expiry in seconds since the epoch. The token is for the address in the path of the URI and
everything below it; without a path it is for all addresses.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.tokens import SharedAccessKey
from ferrymq_broker.security.token_refusal import MAX_TOKEN, TokenRefusedError

PREFIX: Final = "SharedAccessSignature "
_FIELDS: Final = frozenset({"sr", "sig", "se", "skn"})
# Twelve digits reach beyond the year 9999.
_EXPIRY: Final = re.compile(r"[0-9]{1,12}")
_ESCAPED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")
_MAX_SCOPE: Final = 1024


class SignedToken:
    """A token with a valid signature: its identity, and the resource that it is for."""

    def __init__(self, identity: UserIdentity, resource: str) -> None:
        self.identity = identity
        # The decoded URI.
        self.resource = resource


class SharedAccessKeys:
    """A verifier of tokens with the keys of a configuration."""

    def __init__(self, keys: Sequence[SharedAccessKey]) -> None:
        # The secrets of each name, with the ids of their keys: those of several entities may have
        # one name.
        self._secrets: dict[str, list[tuple[bytes, str]]] = {}
        for key in keys:
            primary = key.primary
            known = self._secrets.setdefault(key.name, [])
            for secret in (primary, key.secondary or primary):
                known.append((secret.get_secret_value().encode(), key.id))
        # Secrets for unknown names, so that checking takes the same time.
        self._nobodys = [(secrets.token_bytes(32), ""), (secrets.token_bytes(32), "")]

    @property
    def any(self) -> bool:
        """Whether there are keys."""
        return bool(self._secrets)

    def verify(self, token: str, now: float) -> SignedToken:
        """Check a token; `now` is in seconds since the epoch. Raises `TokenRefusedError`."""
        fields = _fields(token)
        name = _decoded(fields["skn"])
        resource = _decoded(fields["sr"])
        if _EXPIRY.fullmatch(fields["se"]) is None:
            raise TokenRefusedError("the expiry is not a number of seconds")
        expires = int(fields["se"])
        try:
            said = base64.b64decode(_decoded(fields["sig"]), validate=True)
        except (binascii.Error, ValueError):
            raise TokenRefusedError("the signature is not base64") from None
        signed = f"{fields['sr']}\n{fields['se']}".encode()
        key = self._key_by(
            name, lambda secret: hmac.compare_digest(said, hmac.digest(secret, signed, "sha256"))
        )
        if not key:
            raise TokenRefusedError("the key is unknown, or the signature is wrong")
        if expires <= now:
            raise TokenRefusedError("the token has expired")
        identity = UserIdentity(None, key=key, mechanism="token", expires=float(expires))
        return SignedToken(identity, resource)

    def key_with(self, name: str, secret: str) -> str:
        """Return the id of the key with this name and secret; empty if there is none."""
        said = secret.encode(errors="surrogatepass")
        return self._key_by(name, lambda known: hmac.compare_digest(said, known))

    def _key_by(self, name: str, fits: Callable[[bytes], bool]) -> str:
        """Return the id of the key of this name whose secret fits; empty if none does. All secrets
        are compared, whether one fits or not."""
        found = ""
        for secret, id in self._secrets.get(name, self._nobodys):
            if fits(secret) and id:
                found = id
        return found


def is_signature(token: str) -> bool:
    """Return whether a token is a shared access signature, not a JWT."""
    return token.startswith(PREFIX)


def scope_of(text: str) -> str:
    """Return the address that a URI names, which is its path. A text that is no URI is an address
    itself. ``""`` means all addresses.

    Raises `TokenRefusedError` for an ambiguous path. Nothing in it is decoded, and it must not
    contain dot segments.
    """
    found = _SCHEME.match(text)
    path = text
    if found is not None:
        path = text[found.end() :].partition("/")[2]
    path = path.removeprefix("/") if found is None else path
    path = path.removesuffix("/")
    if not path:
        return ""
    if len(path) > _MAX_SCOPE:
        raise TokenRefusedError("the name is too long")
    if "?" in path or "#" in path or "\\" in path:
        raise TokenRefusedError("the name must have no query, no fragment and no backslash")
    if any(segment in ("", ".", "..") for segment in path.split("/")):
        raise TokenRefusedError("the name has an empty segment or a dot segment")
    if any(unicodedata.category(char) in ("Cc", "Cf", "Cs") for char in path):
        raise TokenRefusedError("the name has invisible characters")
    return path


def host_of(text: str) -> str | None:
    """Return the host that a URI names, in lower case and without a port; None if it is no URI."""
    found = _SCHEME.match(text)
    if found is None:
        return None
    authority = text[found.end() :].partition("/")[0].rpartition("@")[2].lower()
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]


def covers(scope: str, other: str) -> bool:
    """Return whether `other` is `scope`, or below it: ``q1`` covers ``q1/x``, but not ``q10``."""
    return not scope or other == scope or other.startswith(f"{scope}/")


def _fields(token: str) -> dict[str, str]:
    """Return the values of a token by name, still encoded."""
    if len(token) > MAX_TOKEN or not token.isascii() or not token.startswith(PREFIX):
        raise TokenRefusedError("the text is not a shared access signature")
    fields: dict[str, str] = {}
    for pair in token[len(PREFIX) :].split("&", len(_FIELDS)):
        name, equals, value = pair.partition("=")
        if not equals or name not in _FIELDS or name in fields or not value:
            raise TokenRefusedError("the text is not a shared access signature")
        fields[name] = value
    if len(fields) < len(_FIELDS):
        raise TokenRefusedError("the shared access signature lacks one of sr, sig, se and skn")
    return fields


def _decoded(value: str) -> str:
    """Decode the percent-encoding of a value, once."""
    if _ESCAPED.search(value) is not None:
        raise TokenRefusedError("a value of the signature is not percent-encoded")
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise TokenRefusedError("a value of the signature is not UTF-8") from None
