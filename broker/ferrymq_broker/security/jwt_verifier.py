"""JSON Web Tokens (RFC 7519), checked by joserfc with the keys of trusted issuers.

Before its signature is checked, only three things of a token are used, to find the key: its issuer,
the name of the key, and the algorithm. The algorithm has to be one that is allowed for this issuer
and one for this kind of key. So no token is checked with a public key as if it were a secret, and
no token without a signature is accepted.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from typing import Final

from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    ExpiredTokenError,
    InvalidClaimError,
    JoseError,
    MissingClaimError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry, extract_compact
from joserfc.jwt import JWTClaimsRegistry

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.tokens import Jwt
from ferrymq_broker.security.jwks import Key, KeySource
from ferrymq_broker.security.token_refusal import MAX_TOKEN, TokenRefusedError

_MAX_HEADER: Final = 4096
# The most values of all claims together, and the most characters of a user's name.
_MAX_VALUES: Final = 256
_MAX_NAME: Final = 256
# The most keys that are tried for a token without the name of a key.
_MAX_TRIES: Final = 8
# The end of the year 9999.
_END_OF_TIME: Final = 253_402_300_799

_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "Ed25519": "Ed25519"}
_EDWARDS: Final = ("EdDSA", "Ed25519")
# Claims whose words are separate values (RFC 8693 §4.2). In other claims they are not, because
# users
# choose the words of their names themselves.
_SCOPES: Final = ("scope", "scp")
_CHECKED: Final = ("iss", "aud", "exp", "nbf", "iat")


class _Registry(JWSRegistry):
    """A registry that allows exactly the issuer's algorithms, whatever joserfc recommends."""

    max_header_length = _MAX_HEADER
    max_payload_length = MAX_TOKEN

    def get_alg(self, name: str):  # type: ignore[no-untyped-def]
        """Return the algorithm, if it is allowed. Raises `UnsupportedAlgorithmError`."""
        found = self.algorithms.get(name)
        if found is None or self.allowed is None or name not in self.allowed:
            raise UnsupportedAlgorithmError("the algorithm is not allowed")
        return found


class UnverifiedToken:
    """The parts of an unverified token that are needed to find its key. They may be forged."""

    def __init__(self, text: str) -> None:
        try:
            parts = extract_compact(text.encode(), registry=_Registry())
            claims = json.loads(parts.payload)
            header = parts.headers()
        except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
            raise TokenRefusedError("the text is not a JSON Web Token") from None
        issuer = claims.get("iss") if isinstance(claims, dict) else None
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or not (kid is None or isinstance(kid, str)):
            raise TokenRefusedError("the text is not a JSON Web Token")
        if "crit" in header or "b64" in header:
            # No critical headers are supported (RFC 7515 §4.1.11).
            raise TokenRefusedError("the token has critical headers")
        if not isinstance(issuer, str):
            raise TokenRefusedError("the token names no issuer")
        self.text = text
        self.issuer = issuer
        self.algorithm = algorithm
        self.kid = kid


class JwtVerifier:
    """A verifier of the tokens of one issuer. `settings` say what a valid token has."""

    def __init__(self, settings: Jwt, keys: KeySource) -> None:
        self.settings = settings
        self._keys = keys

    def verify(self, token: UnverifiedToken, now: float, mechanism: str) -> UserIdentity:
        """Return the identity of a token; `now` is in seconds since the epoch.

        Raises `TokenRefusedError`, and `KeysNeededError` if keys have to be fetched first.
        """
        algorithm = token.algorithm
        if algorithm not in self.settings.algorithms:
            raise TokenRefusedError(f"{algorithm[:20]!r} is not among the algorithms of the issuer")
        named = self._keys.find(token.kid)
        if not named:
            raise TokenRefusedError("the key is not among those of the issuer")
        fitting = [key for key in named if _fits(key, algorithm)]
        claims = self._claims(token, fitting)
        self._check(claims, now)
        return self._identity(claims, mechanism)

    def _claims(self, token: UnverifiedToken, keys: list[Key]) -> dict[str, object]:
        registry = _Registry(algorithms=[token.algorithm], strict_check_header=False)
        for key in keys[:_MAX_TRIES]:
            try:
                claims: dict[str, object] = jwt.decode(token.text, key, registry=registry).claims
            except BadSignatureError:
                continue
            except (JoseError, ValueError, TypeError, RecursionError):
                # The signature cannot be read, or the key is of another kind.
                continue
            return claims
        raise TokenRefusedError("the signature is wrong")

    def _check(self, claims: dict[str, object], now: float) -> None:
        settings = self.settings
        registry = JWTClaimsRegistry(
            now=int(now),
            leeway=int(settings.leeway),
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "values": list(settings.audience)},
            exp={"essential": True},
        )
        # Only these claims are validated; others may have any type.
        known: dict[str, object] = {name: claims[name] for name in _CHECKED if name in claims}
        try:
            registry.validate(known)
        except ExpiredTokenError:
            raise TokenRefusedError("the token has expired") from None
        except MissingClaimError:
            raise TokenRefusedError("the token lacks one of iss, aud and exp") from None
        except (InvalidClaimError, OverflowError) as error:
            claim = getattr(error, "claim", "exp")
            raise TokenRefusedError(
                f"the claim {claim} of the token does not have the required value"
            ) from None

    def _identity(self, claims: dict[str, object], mechanism: str) -> UserIdentity:
        settings = self.settings
        user = _find(claims, settings.user_claim)
        if not isinstance(user, str) or not _is_name(user):
            raise TokenRefusedError(f"the claim {settings.user_claim} does not name a user")
        groups: set[str] = set()
        for name in settings.groups_claim:
            groups.update(_values(_find(claims, name), True))
        values = {
            name: frozenset(_values(value, name in _SCOPES)) for name, value in claims.items()
        }
        if len(groups) + sum(len(each) for each in values.values()) > _MAX_VALUES:
            raise TokenRefusedError(f"the claims have more than {_MAX_VALUES} values")
        # The identity expires when the token would no longer be accepted.
        expires = claims["exp"]
        assert isinstance(expires, int | float)
        return UserIdentity(
            user,
            frozenset(groups),
            {name: each for name, each in values.items() if each},
            mechanism=mechanism,
            expires=float(min(expires, _END_OF_TIME)) + settings.leeway,
        )


def _fits(key: Key, algorithm: str) -> bool:
    """Return whether the key is of the right kind for this algorithm, and names no other one."""
    own = key.get("alg")
    if own is not None and own != algorithm and not (own in _EDWARDS and algorithm in _EDWARDS):
        return False
    if algorithm.startswith("HS"):
        return isinstance(key, OctKey)
    if algorithm.startswith(("RS", "PS")):
        return isinstance(key, RSAKey)
    if isinstance(key, ECKey):
        return key.curve_name == _CURVES.get(algorithm)
    return isinstance(key, OKPKey) and algorithm in _EDWARDS and key.curve_name == "Ed25519"


def _find(claims: dict[str, object], name: str) -> object:
    """Return a claim by its name, or by a path of names with dots between them."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _values(value: object, words: bool) -> Iterable[str]:
    """Yield the values of a claim as text: each item of a list, or a whole text, and with `words`
    also each word of it.

    Maps and their contents have no values.
    """
    if isinstance(value, str):
        yield value
        if words:
            yield from value.split()
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield _digits(value)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, str):
                yield each
            elif isinstance(each, int) and not isinstance(each, bool):
                yield _digits(each)


def _digits(number: int) -> str:
    # Converting a number with thousands of digits takes long, and no such number is useful.
    return str(number) if number.bit_length() <= 64 else "?"


def _is_name(text: str) -> bool:
    """Return whether a text can be the name of a user: without invisible characters."""
    return 0 < len(text) <= _MAX_NAME and not any(
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text
    )
