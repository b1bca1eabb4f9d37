"""Keys to check tokens with: from a JWKS or PEM file, or from the URL of a JWKS (RFC 7517).

Only public keys are accepted, unless the configuration of the issuer has algorithms with secret
keys; those come from a file. A file is read again when it has changed. A URL is requested again
when its keys are old, or when a token names an unknown key, but at most every 30 seconds. Old keys
stay valid until new ones have been read.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, OctKey, OKPKey, RSAKey

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.event_log import log

Key = OctKey | RSAKey | ECKey | OKPKey

# The most bytes of a file or of a response.
MAX_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 100
FETCH_TIMEOUT: Final = 5.0
# Seconds between two checks of a file, and between two requests to a URL.
LOOK_EVERY: Final = 1.0
FETCH_EVERY: Final = 30.0
_LEAST_RSA: Final = 2048
_LEAST_SECRET: Final = 32

# The match ends at the next dashes, so that a file with many BEGIN lines takes little time, too.
_PEM: Final = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]{1,64})-----(?:(?!-----).)*+-----END \1-----", re.DOTALL
)


class KeysNeededError(Exception):
    """A token cannot be checked before the keys of its issuer are fetched (`KeyUrl.fetch`)."""

    def __init__(self, keys: KeyUrl) -> None:
        super().__init__("the keys of the issuer must be fetched first")
        self.keys = keys


class KeySource(Protocol):
    """A source of the keys of one issuer."""

    def find(self, kid: str | None) -> list[Key]:
        """Return the keys with this name, or all for None. Raises `KeysNeededError`."""
        ...


class KeyFile:
    """The keys in a file. Raises `ConfigError` if the file has none at the start."""

    def __init__(self, path: Path, now: Callable[[], float], symmetric: bool = False) -> None:
        self._path = path
        self._now = now
        self._symmetric = symmetric
        self._state = self._look()
        self._looked = now()
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: keys for tokens: {_reason(error)}") from None

    def find(self, kid: str | None) -> list[Key]:
        """Return keys of the file, which is read again if it has changed."""
        if self._now() - self._looked >= LOOK_EVERY:
            self._looked = self._now()
            state = self._look()
            if state != self._state:
                self._state = state
                self._reread()
        return _named(self._keys, kid)

    def _reread(self) -> None:
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            log.warning("keys not read again", path=str(self._path), reason=_reason(error))
        else:
            log.info("keys read again", path=str(self._path), keys=len(self._keys))

    def _look(self) -> tuple[int, ...] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> list[Key]:
        with self._path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        return read_keys(data, self._symmetric)


class KeyUrl:
    """The keys from a URL, which are fetched for the first token."""

    def __init__(self, url: str, refresh: float, now: Callable[[], float]) -> None:
        # Imported only for a URL, because importing it takes a while.
        import aiohttp

        self._http = aiohttp
        self._url = url
        self._refresh = refresh
        self._now = now
        self._keys: list[Key] = []
        # The time of the last response, and of the last request.
        self._fetched: float | None = None
        self._asked: float | None = None
        self._lock = asyncio.Lock()

    def find(self, kid: str | None) -> list[Key]:
        """Return the known keys. Raises `KeysNeededError` if they have to be fetched."""
        found = _named(self._keys, kid)
        now = self._now()
        old = self._fetched is None or now - self._fetched >= self._refresh
        if (old or not found) and (self._asked is None or now - self._asked >= FETCH_EVERY):
            raise KeysNeededError(self)
        return found

    async def fetch(self) -> None:
        """Fetch the keys, once for all callers that wait. After that, even after a failure, `find`
        does not request keys again for a while."""
        asked = self._asked
        async with self._lock:
            if self._asked != asked:
                # Another caller has fetched the keys meanwhile.
                return
            try:
                async with asyncio.timeout(FETCH_TIMEOUT):
                    keys = read_keys(await self._get(), False, True)
            except (OSError, TimeoutError, ValueError, self._http.ClientError) as error:
                log.warning("keys not fetched", url=self._url, reason=_reason(error))
            else:
                self._keys = keys
                self._fetched = self._now()
                log.info("keys fetched", url=self._url, keys=len(keys))
            finally:
                self._asked = self._now()

    async def _get(self) -> bytes:
        async with (
            # Use the proxy of the environment, but not for a server on this machine.
            self._http.ClientSession(trust_env=self._url.startswith("https:")) as session,
            # A redirect could lead to any server.
            session.get(self._url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"the HTTP status is {answer.status}")
            data = bytearray()
            async for piece in answer.content.iter_chunked(65536):
                data += piece
                if len(data) > MAX_BYTES:
                    raise ValueError(f"the answer has more than {MAX_BYTES} bytes")
            return bytes(data)


def read_keys(data: bytes, symmetric: bool = False, lenient: bool = False) -> list[Key]:
    """Return the keys of a JWKS, or of PEM with public keys and certificates. Raises ValueError.

    With `symmetric` only secret keys are accepted, otherwise only public ones. `lenient` leaves out
    keys that cannot be used, as long as any are left.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"the keys have more than {MAX_BYTES} bytes")
    keys: list[Key] = []
    for made in _of_pem(data) if data.lstrip().startswith(b"-----BEGIN") else _of_jwks(data):
        if isinstance(made, ValueError):
            if not lenient:
                raise made
        elif isinstance(made, OctKey) == symmetric:
            keys.append(made)
        elif not lenient:
            raise ValueError(
                "the file has a public key, but the algorithms need a secret one"
                if symmetric
                else "the file has a secret key, but the algorithms need public ones"
            )
    if not keys:
        raise ValueError("there is no usable key")
    if len(keys) > MAX_KEYS:
        raise ValueError(f"there are more than {MAX_KEYS} keys")
    return keys


def _of_jwks(data: bytes) -> Iterable[Key | ValueError]:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("the text is neither JSON nor PEM") from None
    keys = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(keys, list):
        raise ValueError('no JWKS: it is {"keys": [...]}')
    for at, each in enumerate(keys):
        if not isinstance(each, dict):
            yield ValueError(f"key {at} is not a JWK")
            continue
        if each.get("use", "sig") != "sig":
            # A key for encryption is not needed.
            continue
        try:
            if "d" in each:
                raise ValueError("the key is private; only the public part is needed")
            yield _checked(JWKRegistry.import_key(each))
        except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
            yield ValueError(f"key {at}: {_reason(error)}")


def _of_pem(data: bytes) -> Iterable[Key | ValueError]:
    for found in _PEM.finditer(data):
        label = found[1].decode()
        try:
            if label.endswith("PRIVATE KEY"):
                raise ValueError("the key is private; only the public part is needed")
            public = (
                x509.load_pem_x509_certificate(found[0]).public_key()
                if label == "CERTIFICATE"
                else load_pem_public_key(found[0])
            )
            pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            if isinstance(public, rsa.RSAPublicKey):
                yield _checked(RSAKey.import_key(pem))
            elif isinstance(public, ec.EllipticCurvePublicKey):
                yield _checked(ECKey.import_key(pem))
            elif isinstance(public, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
                yield _checked(OKPKey.import_key(pem))
            else:
                raise ValueError("no algorithm uses such a key")
        except (JoseError, ValueError, TypeError) as error:
            yield ValueError(f"{label}: {_reason(error)}")


def _checked(key: Key) -> Key:
    """Return the key, if it is long enough. Raises ValueError."""
    if isinstance(key, RSAKey) and key.raw_value.key_size < _LEAST_RSA:
        raise ValueError(f"the RSA key has fewer than {_LEAST_RSA} bits")
    if isinstance(key, OctKey) and len(key.raw_value) < _LEAST_SECRET:
        raise ValueError(f"the secret has fewer than {_LEAST_SECRET} bytes")
    return key


def _named(keys: list[Key], kid: str | None) -> list[Key]:
    """Return the keys with that name and those without a name; all for None."""
    if kid is None:
        return keys
    return [key for key in keys if key.get("kid") in (kid, None)]


def _reason(error: Exception) -> str:
    """Return the text of an error in one line, without parts of keys."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (str(error) or type(error).__name__).replace("\n", " ")[:200]
