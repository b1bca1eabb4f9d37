"""The factory that makes the authenticators of a configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrymq.engine.scram import load_scramp
from ferrymq_broker.config.security import Security
from ferrymq_broker.security.authenticators import Authenticators, Method, PasswordMethod, Watched
from ferrymq_broker.security.certificates import CertificateUsers
from ferrymq_broker.security.key_passwords import KeyPasswords
from ferrymq_broker.security.passwords import AnyPassword, ConfiguredPasswords
from ferrymq_broker.security.throttle import Throttle

if TYPE_CHECKING:
    from ferrymq_broker.security.tokens import TokenVerifier


def make_authenticators(
    security: Security,
    changed: Callable[[set[str]], object],
    now: Callable[[], float] = time.monotonic,
    verifier: TokenVerifier | None = None,
) -> Authenticators:
    """Return the authenticators of a broker.

    `changed` is called with the names of users who were deleted, or whose password or groups have
    changed, since they logged in. `now` is a clock in seconds. `verifier` checks tokens. Raises
    `ConfigError` if a file that the configuration names cannot be used.
    """
    if security.names_somebody:
        # Else nearly all clients are anonymous, and the import would delay the start.
        load_scramp()
    throttle = Throttle(security.failed_logins, now)
    methods: list[Method] = []
    watched: list[Watched] = []
    passwords: PasswordMethod | None = None
    if security.users_file is not None:
        # Imported only when needed, because importing argon2 takes a while.
        from ferrymq_broker.security.stored_passwords import StoredPasswords

        stored = StoredPasswords(
            security.users_file,
            security.users,
            throttle,
            changed,
            in_the_clear=security.plain_without_tls,
            now=now,
        )
        watched.append(stored)
        passwords = stored
    elif security.users:
        passwords = ConfiguredPasswords(security.users, security.plain_without_tls)
    elif not security.names_somebody and not security.shared_access_key:
        passwords = AnyPassword()
    if security.certificate_rule:
        methods.append(CertificateUsers(security.certificate_rule))
    if verifier is not None and verifier.takes_jwt:
        # Imported only when needed, because importing joserfc takes a while.
        from ferrymq_broker.security.oauth import TokenMethod, TokenPasswords

        methods.append(TokenMethod(verifier, security.plain_without_tls))
        if verifier.takes_passwords:
            passwords = TokenPasswords(verifier, passwords, security.plain_without_tls)
    if verifier is not None and verifier.has_keys:
        methods.append(KeyPasswords(verifier, security.plain_without_tls))
    if passwords is not None:
        methods.append(passwords)
    return Authenticators(
        methods,
        security.anonymous is True,
        # By default clients on this machine need no login, until the first user is configured.
        nameless=security.anonymous is None and not security.names_somebody,
        passwords=passwords,
        throttle=throttle,
        groups=security.groups_of(),
        watched=watched,
    )
