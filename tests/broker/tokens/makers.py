"""Makes tokens and the keys they are checked with, good ones and others."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import warnings
from pathlib import Path
from urllib.parse import quote_plus

from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from ferrymq_broker.clock import Clock
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.security import Security
from ferrymq_broker.security.tokens import TokenVerifier, make_verifier

ISSUER = "https://login.example/"
AUDIENCE = "ferrymq"
# The time of the day at which these tests begin.
NOW = 1_700_000_000


class TestClock(Clock):
    """A clock that stands still unless a test moves it. `time` is that of the day."""

    __test__ = False

    def __init__(self, time: float = NOW) -> None:
        self.time = float(time)

    def now(self) -> float:
        return self.time - NOW

    def epoch(self) -> float:
        return float(NOW)


@functools.cache
def ec_key(kid: str = "ec") -> ECKey:
    return ECKey.generate_key("P-256", {"kid": kid})


@functools.cache
def ed_key(kid: str = "ed") -> OKPKey:
    return OKPKey.generate_key("Ed25519", {"kid": kid})


@functools.cache
def rsa_key() -> RSAKey:
    """The only one: making one takes its time."""
    return RSAKey.generate_key(2048, {"kid": "rsa"})


def jwks(*keys: object) -> str:
    """The public parts of keys, as a JWKS."""
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})  # type: ignore[attr-defined]


def claims(**changes: object) -> dict[str, object]:
    """Those of a good token; None leaves one out."""
    made: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "exp": NOW + 3600,
        "iat": NOW,
    }
    made.update(changes)
    return {name: value for name, value in made.items() if value is not None}


def make_jwt(
    key: ECKey | OKPKey | RSAKey | None = None,
    alg: str = "ES256",
    header: dict[str, object] | None = None,
    **changes: object,
) -> str:
    """A token, good but for the changes."""
    key = ec_key() if key is None else key
    head = {"alg": alg, "kid": key.kid, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    registry = JWSRegistry(algorithms=[alg], strict_check_header=False)
    with warnings.catch_warnings():
        # Of what is better used today.
        warnings.simplefilter("ignore", SecurityWarning)
        return jwt.encode(head, claims(**changes), key, registry=registry)


def part(value: object) -> str:
    """One part of a token made by hand."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_verifier_for(
    tmp_path: Path, clock: Clock | None = None, keys: str | None = None, **settings: object
) -> TokenVerifier:
    """A verifier of one issuer, with its keys in a file."""
    path = tmp_path / "keys.json"
    path.write_text(jwks(ec_key(), ed_key()) if keys is None else keys)
    issuer = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(path), "leeway": 0, **settings}
    verifier = make_verifier(
        Security.model_validate({"jwt": issuer}), TestClock() if clock is None else clock
    )
    assert verifier is not None
    return verifier


def make_sas(
    resource: str,
    key: str,
    name: str = "shop",
    expires: object = NOW + 3600,
) -> str:
    """A shared access signature, as the clients make it."""
    encoded = quote_plus(resource)
    digest = hmac.new(key.encode(), f"{encoded}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expires}&skn={name}"


def config_of(text: dict[str, object]) -> Config:
    """A configuration of these tables."""
    return Config.model_validate(text)
