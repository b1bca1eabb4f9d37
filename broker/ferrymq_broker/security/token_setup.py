"""Setting up tokens, if the configuration has issuers or shared access keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrymq_broker.broker import Broker
from ferrymq_broker.clock import Clock
from ferrymq_broker.config.errors import ConfigError, ConfigMistake
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.security import Security
from ferrymq_broker.config.tokens import is_url

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.security.request_tokens import RequestTokens
    from ferrymq_broker.security.tokens import TokenVerifier


def take_tokens(
    security: Security, broker: Broker, clock: Clock, signature_types: Sequence[str] = ()
) -> TokenVerifier | None:
    """Make the verifier of tokens, and add ``$cbs`` to every virtual host; None without tokens.
    `signature_types` are the types of tokens that are shared access signatures.

    Called once, when all virtual hosts exist. Raises `ConfigError` for a file of keys that cannot
    be used.
    """
    if not security.takes_tokens:
        return None
    # Imported only when needed, because importing joserfc takes a while.
    from ferrymq_broker.security.cbs import install_tokens
    from ferrymq_broker.security.tokens import make_verifier

    verifier = make_verifier(security, clock)
    install_tokens(security, broker, verifier, signature_types)
    return verifier


def request_tokens(
    broker: Broker, space: AddressSpace, verifier: TokenVerifier | None
) -> RequestTokens | None:
    """Return the judge of tokens of single requests in a virtual host; None without tokens."""
    if verifier is None:
        return None
    from ferrymq_broker.security.request_tokens import RequestTokens

    return RequestTokens(broker, space, verifier)


def check_tokens(config: Config) -> tuple[list[ConfigMistake], list[str]]:
    """Return errors and warnings about files of keys and about tokens."""
    security = config.security
    mistakes: list[ConfigMistake] = []
    for at, issuer in enumerate(security.jwt):
        if is_url(issuer.keys):
            continue
        from ferrymq_broker.security.tokens import keys_of

        try:
            keys_of(issuer, lambda: 0.0)
        except ConfigError as error:
            mistakes.append(ConfigMistake(("security", "jwt", at, "keys"), str(error)))
    warnings = []
    if (
        security.takes_tokens
        and not any(each.rule for each in (config, *config.virtual_host))
        and not any(key.may or key.rights for key in security.shared_access_key)
    ):
        warnings.append("tokens are accepted, so every right needs a rule, but there are no rules")
    return mistakes, warnings
