"""Verification of tokens of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.security import Security
from ferrymq_broker.config.tokens import SYMMETRIC, Jwt, is_url
from ferrymq_broker.security.jwks import KeyFile, KeysNeededError, KeySource, KeyUrl
from ferrymq_broker.security.jwt_verifier import JwtVerifier, UnverifiedToken
from ferrymq_broker.security.shared_access import SharedAccessKeys, SignedToken
from ferrymq_broker.security.token_refusal import MAX_TOKEN, TokenRefusedError

# The mechanism of an identity whose token came by ``$cbs``.
TOKEN: Final = "token"


class TokenVerifier:
    """A verifier of tokens.

    `issuers` are the trusted issuers of JSON Web Tokens, `shared` checks shared access signatures;
    `clock` is used for the time of the day.
    """

    def __init__(
        self, issuers: Sequence[JwtVerifier], shared: SharedAccessKeys, clock: Clock
    ) -> None:
        self._issuers = {each.settings.issuer: each for each in issuers}
        self._shared = shared
        self.clock = clock

    @property
    def takes_jwt(self) -> bool:
        """Whether any issuer is trusted."""
        return bool(self._issuers)

    @property
    def takes_passwords(self) -> bool:
        """Whether a token may come as the password of PLAIN."""
        return any(each.settings.as_password for each in self._issuers.values())

    @property
    def has_keys(self) -> bool:
        """Whether there are shared access keys."""
        return self._shared.any

    def key_with(self, name: str, secret: str) -> str:
        """Return the id of the shared access key with this name and secret; empty if there is
        none."""
        return self._shared.key_with(name, secret)

    def now(self) -> float:
        """Return seconds since the Unix epoch."""
        return self.clock.now() + self.clock.epoch()

    def check_jwt(
        self, token: str, mechanism: str = TOKEN, *, as_password: bool = False
    ) -> UserIdentity:
        """Return the identity of a JSON Web Token, without fetching keys.

        With `as_password` only issuers that allow tokens as passwords are accepted. Raises
        `TokenRefusedError`, and `KeysNeededError` if the keys of the issuer have to be fetched
        first.
        """
        if len(token) > MAX_TOKEN:
            raise TokenRefusedError(f"the token has more than {MAX_TOKEN} characters")
        if not token.isascii():
            raise TokenRefusedError("the text is not a JSON Web Token")
        unverified = UnverifiedToken(token)
        issuer = self._issuers.get(unverified.issuer)
        if issuer is None or (as_password and not issuer.settings.as_password):
            raise TokenRefusedError("the issuer is not trusted")
        return issuer.verify(unverified, self.now(), mechanism)

    def check_signature(self, token: str) -> SignedToken:
        """Check a shared access signature. Raises `TokenRefusedError`."""
        return self._shared.verify(token, self.now())

    async def identify_token(
        self, token: str, mechanism: str = TOKEN, *, as_password: bool = False
    ) -> UserIdentity:
        """Return the identity of a JSON Web Token; fetch keys if needed.

        Raises `TokenRefusedError`.
        """
        try:
            return self.check_jwt(token, mechanism, as_password=as_password)
        except KeysNeededError as needed:
            await needed.keys.fetch()
        try:
            return self.check_jwt(token, mechanism, as_password=as_password)
        except KeysNeededError:
            raise TokenRefusedError("the keys of the issuer cannot be fetched") from None


def make_verifier(security: Security, clock: Clock | None = None) -> TokenVerifier | None:
    """Make the verifier for the tokens of a configuration; None if it has none.

    Raises `ConfigError` for a file of keys without usable keys.
    """
    if not security.takes_tokens:
        return None
    clock = Clock() if clock is None else clock
    issuers = [JwtVerifier(each, keys_of(each, clock.now)) for each in security.jwt]
    return TokenVerifier(issuers, SharedAccessKeys(security.shared_access_key), clock)


def keys_of(settings: Jwt, now: Callable[[], float]) -> KeySource:
    """Return the source of an issuer's keys. Raises `ConfigError` for a file without usable
    keys."""
    if is_url(settings.keys):
        return KeyUrl(settings.keys, settings.refresh, now)
    return KeyFile(Path(settings.keys), now, settings.algorithms[0] in SYMMETRIC)
