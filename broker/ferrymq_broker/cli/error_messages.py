"""Error messages of commands: one line, with a hint if possible."""

from __future__ import annotations

import ssl
from typing import Final

from ferrymq.aio.unreachable import NOT_TRUSTED
from ferrymq.errors import AuthenticationError
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.store.errors import StoreError
from ferrymq_codec.errors import AmqpError

# Errors that are no mistakes of the program: a command that raises one ends with a line.
EXPECTED: Final = (
    AmqpError,
    ConfigError,
    ReplicationError,
    StoreError,
    OSError,
    TimeoutError,
    ValueError,
)


def reason_of(error: BaseException) -> str:
    """Return the line for an error that ends a command."""
    refused = _certificate_error(error)
    if refused is not None:
        hint = "; --ca FILE names its authority" if refused.verify_code in NOT_TRUSTED else ""
        return f"the certificate of the broker is not good: {refused.verify_message}{hint}"
    if isinstance(error, AuthenticationError) and error.code is None:
        return f"{error.reason}; use --user, --token-file or --cert to log in"
    return str(error) or type(error).__name__


def _certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    found: BaseException | None = error
    while found is not None:
        # An exception of aiohttp is an instance too, but only its cause has the details.
        if isinstance(found, ssl.SSLCertVerificationError) and hasattr(found, "verify_code"):
            return found
        found = found.__cause__
    return None
