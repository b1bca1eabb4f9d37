"""Has a broker take tokens, if its configuration says of any that they are good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrymq_broker.broker import Broker
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.security import Security

if TYPE_CHECKING:
    from ferrymq_broker.security.tokens import TokenVerifier


def take_tokens(security: Security, broker: Broker, clock: Clock) -> TokenVerifier | None:
    """What tokens are checked with, and ``$cbs`` in every virtual host; None for nothing.

    To be called once, when the virtual hosts are there. Raises `ConfigError` for a file of keys
    that cannot be used.
    """
    if not security.takes_tokens:
        return None
    # joserfc takes a while to import: who does not need it does not wait.
    from ferrymq_broker.security.cbs import install_tokens
    from ferrymq_broker.security.tokens import make_verifier

    verifier = make_verifier(security, clock)
    install_tokens(security, broker, verifier)
    return verifier
