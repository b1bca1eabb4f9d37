"""Error messages of commands: one line, with a hint if possible."""

from __future__ import annotations

import ssl
from typing import Final

from ferrymq.errors import AuthenticationError
from ferrymq_types.security import SaslCode

# OpenSSL's codes for a certificate without a trusted signature: X509_V_ERR_DEPTH_ZERO_SELF_…,
# _SELF_SIGNED_CERT_IN_CHAIN, _UNABLE_TO_GET_ISSUER_CERT_LOCALLY, _UNABLE_TO_VERIFY_LEAF_SIGNATURE.
_NOT_TRUSTED: Final = (18, 19, 20, 21)

_VERDICTS: Final = {
    int(SaslCode.AUTH): "the credentials are wrong",
    int(SaslCode.SYS_TEMP): "try again later",
}


def reason_of(error: BaseException) -> str:
    """Return the line for an error that ends a command."""
    refused = _certificate_error(error)
    if refused is not None:
        hint = "; --ca FILE names its authority" if refused.verify_code in _NOT_TRUSTED else ""
        return f"the certificate of the broker is not good: {refused.verify_message}{hint}"
    text = str(error) or type(error).__name__
    if isinstance(error, AuthenticationError):
        if error.code is None:
            return f"{text}; use --user, --token-file or --cert to log in"
        verdict = _VERDICTS.get(error.code)
        return text if verdict is None else f"{text}: {verdict}"
    return text


def _certificate_error(error: BaseException) -> ssl.SSLCertVerificationError | None:
    found: BaseException | None = error
    while found is not None:
        # An exception of aiohttp is an instance too, but only its cause has the details.
        if isinstance(found, ssl.SSLCertVerificationError) and hasattr(found, "verify_code"):
            return found
        found = found.__cause__
    return None
