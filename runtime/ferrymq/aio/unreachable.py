"""Errors of connections that could not be made: what was met there, and what to change."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import TYPE_CHECKING, Final

from ferrymq.errors import AuthenticationError, TransportError

if TYPE_CHECKING:
    from ferrymq.aio.transport import EngineTransport
    from ferrymq.options import ConnectionOptions
    from ferrymq.url import Url

# What OpenSSL says of a peer that answers without TLS, by its versions.
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
)
# OpenSSL's codes for a certificate without a trusted signature: X509_V_ERR_DEPTH_ZERO_SELF_…,
# _SELF_SIGNED_CERT_IN_CHAIN, _UNABLE_TO_GET_ISSUER_CERT_LOCALLY, _UNABLE_TO_VERIFY_LEAF_SIGNATURE.
NOT_TRUSTED: Final = (18, 19, 20, 21)


def unreachable(url: Url, error: OSError) -> TransportError | TimeoutError:
    """Return the error for a failure of the network or of TLS."""
    text = f"cannot connect to {url}: {describe(url, error)}"
    return TimeoutError(text) if isinstance(error, TimeoutError) else TransportError(text)


def describe(url: Url, error: OSError) -> str:
    """Return what a failure of the network or of TLS means, in one sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = ""
        if error.verify_code in NOT_TRUSTED:
            hint = "; its authority: ssl=ssl.create_default_context(cafile=...)"
        return f"the certificate of the peer is not good: {error.verify_message}{hint}"
    plain = "ws" if url.over_web else "amqp"
    if isinstance(error, ssl.SSLError) and getattr(error, "reason", None) in _NO_TLS:
        return f"the peer speaks no TLS here: connect with {plain}://, or to its port for TLS"
    if url.secure and isinstance(error, ssl.SSLEOFError | ConnectionResetError):
        return (
            f"the peer ended the TLS handshake ({error}): if this is a port without TLS, connect "
            f"with {plain}://"
        )
    if isinstance(error, socket.gaierror):
        return f"the host {url.host!r} is not known ({error})"
    # asyncio joins the errors of several addresses into one without a number.
    refused = f"[Errno {errno.ECONNREFUSED}]"
    if isinstance(error, ConnectionRefusedError) or refused in str(error):
        return f"nothing listens there: is the broker running, and is the port right? ({error})"
    return str(error)


def unanswered(url: Url, transport: EngineTransport, within: str) -> str:
    """Return the text for a peer that took too long, which names the step that it did not take."""
    if not transport.connected:
        steps = "TCP or TLS" if url.secure else "TCP"
        return f"broker {url} made no {steps} connection {within}"
    step = transport.engine.awaited
    if step != "protocol header":
        return f"broker {url} did not answer the {step} {within}"
    # A server of another protocol waits for more data.
    return (
        f"broker {url} did not answer the protocol header {within}: is this a port of AMQP, and "
        f"{'not' if url.secure else 'without'} TLS?"
    )


def refused(
    url: Url,
    options: ConnectionOptions,
    error: AuthenticationError | TransportError,
) -> AuthenticationError | TransportError:
    """Return the error for a peer that was reached and does not open the connection."""
    if isinstance(error, AuthenticationError):
        unnamed = url.username is None and options.token is None and options.sasl == "auto"
        hint = ""
        if unnamed and error.code is None and not error.lost:
            hint = ": log in with a user name and password in the URL, or with token= or sasl="
        return AuthenticationError(error.reason, error.code, error.lost, url=str(url), hint=hint)
    cause = error.__cause__
    # The TLS handshake inside AMQP may fail as one before AMQP does.
    text = describe(url, cause) if isinstance(cause, ssl.SSLError) else str(error)
    return TransportError(f"cannot connect to {url}: {text}")
