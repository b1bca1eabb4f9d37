"""Makes the gate that a configuration describes."""

from __future__ import annotations

import time
from collections.abc import Callable

from ferrymq_broker.config.security import Security
from ferrymq_broker.security.gate import Gate, Method, PasswordMethod
from ferrymq_broker.security.passwords import AnyPassword, ConfiguredPasswords
from ferrymq_broker.security.throttle import Throttle


def make_gate(security: Security, now: Callable[[], float] = time.monotonic) -> Gate:
    """The gate of a broker; `now` is a clock in seconds."""
    passwords = make_passwords(security)
    methods: list[Method] = []
    if passwords is not None:
        methods.append(passwords)
    return Gate(
        methods,
        security.anonymous is True,
        # Access that was not configured ends at this machine, and with the first user named.
        nameless=security.anonymous is None and not security.names_somebody,
        passwords=passwords,
        throttle=Throttle(security.failed_logins, now),
        groups=security.groups_of(),
    )


def make_passwords(security: Security) -> PasswordMethod | None:
    """What knows passwords, if anything does."""
    if not security.names_somebody:
        return AnyPassword()
    if security.users:
        return ConfiguredPasswords(security.users, security.plain_without_tls)
    return None
