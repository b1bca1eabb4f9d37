"""OAUTHBEARER: a token in place of a password (RFC 7628, RFC 6750).

Each side sends a GS2 header (RFC 5801 §4) and key-value pairs. Only the token is used here; host
and port are ignored. A server that refuses a token states the reason in a challenge, and ends the
exchange when the client has answered it.
"""

from __future__ import annotations

import re
from typing import Final

from ferrymq.engine.sasl import SaslMechanism, SaslServerMechanism, malformed
from ferrymq.errors import RemoteProtocolError

OAUTHBEARER: Final = "OAUTHBEARER"

# The separator of the pairs.
_SEPARATOR: Final = "\x01"
# The client's answer to a refusal (RFC 7628 §3.2.3).
_RESIGNED: Final = b"\x01"
# The characters of a token (RFC 6750 §2.1), and the keys of the pairs (RFC 7628 §3.1).
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_KEY: Final = re.compile(r"[A-Za-z]+")
_SCHEME: Final = "bearer "
# The form of a server's reason for a refusal that the client shows to its user.
_STATUS: Final = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_REFUSAL: Final = b'{"status":"invalid_token"}'


class OAuthBearer(SaslMechanism):
    """The client's side. `username` is the identity to act as; None for the identity of the token.

    Raises ValueError for an invalid token. The token is never part of the repr or of an error.
    """

    __slots__ = ("_token", "_status")

    def __init__(self, token: str, username: str | None = None) -> None:
        if _TOKEN.fullmatch(token) is None:
            raise ValueError(
                "a bearer token is letters, digits and -._~+/ with = at its end (RFC 6750 §2.1)"
            )
        if username is not None and ("\0" in username or _SEPARATOR in username):
            raise ValueError("SASL OAUTHBEARER cannot carry NUL or SOH in a user name")
        super().__init__(OAUTHBEARER, username)
        self._token = token
        self._status = ""

    def initial_response(self) -> bytes | None:
        """Return the identity to act as, and the token (RFC 7628 §3.1)."""
        name = ""
        if self.username:
            name = "a=" + self.username.replace("=", "=3D").replace(",", "=2C")
        pairs = f"auth=Bearer {self._token}"
        return f"n,{name},{_SEPARATOR}{pairs}{_SEPARATOR}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Acknowledge that the server refuses the token (§3.2.3)."""
        self._status = _status_of(challenge)
        return _RESIGNED

    def refusal(self) -> str:
        """Return the server's reason for refusing the token, such as ``invalid_token``; empty if it
        gave none."""
        return self._status


class OAuthBearerServer(SaslServerMechanism):
    """The server's side. `token` is None if the client sent none and asks which are accepted."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.client_first = True

    def start(self, response: bytes | None) -> None:
        """Read ``n,a=USER,`` and the pairs. Raises `RemoteProtocolError` if they are malformed."""
        try:
            text = (response or b"").decode()
        except UnicodeDecodeError:
            raise malformed(self.name, "not UTF-8") from None
        header, separator, rest = text.partition(_SEPARATOR)
        self.username: str | None = self._authorization_id(header)
        if not separator or not (rest == _SEPARATOR or rest.endswith(_SEPARATOR * 2)):
            raise malformed(self.name, "its pairs do not end with two separators")
        for pair in rest[:-2].split(_SEPARATOR) if len(rest) > 1 else []:
            key, equals, value = pair.partition("=")
            if not equals or _KEY.fullmatch(key) is None:
                raise malformed(self.name, "the text between separators is no key-value pair")
            if key == "auth":
                if self.token is not None:
                    raise malformed(self.name, "two tokens")
                self.token: str | None = self._token(value)

    def refusal(self) -> bytes | None:
        """Return the refusal as JSON (RFC 7628 §3.2.2). It is the same for every reason."""
        return _REFUSAL

    def _authorization_id(self, header: str) -> str | None:
        """Return the user in the GS2 header (RFC 5801 §4)."""
        fields = header.split(",")
        if len(fields) != 3 or fields[2]:
            raise malformed(self.name, "no GS2 header")
        if fields[0].startswith("p="):
            raise RemoteProtocolError(
                "amqp:not-allowed", f"SASL {self.name}: channel binding is not offered"
            )
        if fields[0] not in ("n", "y"):
            raise malformed(self.name, "no GS2 header")
        if not fields[1]:
            return None
        key, _, name = fields[1].partition("=")
        plain = name.replace("=2C", ",").replace("=3D", "=")
        escapes = name.count("=2C") + name.count("=3D")
        if key != "a" or not plain or "\0" in plain or name.count("=") != escapes:
            raise malformed(self.name, "no GS2 header")
        return plain

    def _token(self, value: str) -> str | None:
        if not value:
            # The client asks for the server's requirements (RFC 7628 §4.3).
            return None
        token = value[len(_SCHEME) :].strip(" ")
        if value[: len(_SCHEME)].lower() != _SCHEME or _TOKEN.fullmatch(token) is None:
            raise malformed(self.name, "no bearer token")
        return token


def _status_of(challenge: bytes) -> str:
    """Return the status in a server's refusal, if it is safe to show."""
    # Few clients are refused.
    import json

    try:
        refusal = json.loads(challenge)
    except (ValueError, RecursionError):
        return ""
    status = refusal.get("status") if isinstance(refusal, dict) else None
    if isinstance(status, str) and _STATUS.fullmatch(status) is not None:
        return status
    return ""
