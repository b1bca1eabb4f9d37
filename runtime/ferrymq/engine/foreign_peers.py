"""Error texts for peers that do not speak the expected protocol: what they speak, and what to
change.

Each function returns one sentence for an error message, or an empty text.
"""

from __future__ import annotations

from typing import Final

_MAGIC: Final = b"AMQP"
# The protocol ids of the layers (AMQP 1.0 §2.2, §5.2, §5.3).
_AMQP: Final = 0
_TLS: Final = 2
_SASL: Final = 3
# Records of TLS begin with their type, here alert and handshake, and the major version (RFC 8446
# §5.1).
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
# The last bytes of the headers of earlier versions.
_OLDER: Final = {
    b"\x00\x00\x09\x01": "0-9-1",
    b"\x01\x01\x00\x09": "0-9",
    b"\x01\x01\x00\x0a": "0-10",
    b"\x01\x01\x08\x00": "0-8",
}


def describe_other(sent: int, received: bytes) -> str:
    """Return what a peer speaks that has answered our protocol header with id `sent` with other
    bytes. `received` are the peer's first bytes."""
    if received.startswith(_TLS_RECORDS):
        return "the peer speaks TLS here: connect with amqps://, or to its port without TLS"
    if received.startswith(b"HTTP/"):
        return (
            "the peer speaks HTTP here: connect to its port for AMQP, or with ws:// or wss:// if "
            "it takes AMQP over WebSocket"
        )
    if len(received) < 8 or not received.startswith(_MAGIC):
        return f"the peer does not speak AMQP here; it sent {received!r}"
    if received[5:] != b"\x01\x00\x00":
        return _other_version(received)
    if received[4] == _TLS:
        return "the peer requires TLS here: connect with amqps://, or with upgrade_tls=True"
    if sent == _TLS:
        return (
            "the peer has no TLS inside AMQP here: connect with amqps:// if it has a port for TLS, "
            "or without upgrade_tls"
        )
    if received[4] == _SASL:
        return (
            "the peer requires SASL: connect without sasl=None, and with a user name and password "
            "if it asks for them"
        )
    if sent == _SASL and received[4] == _AMQP:
        return "the peer has no SASL here: connect with sasl=None, without user name and password"
    return f"the peer sent the protocol header {received!r}, which is unknown"


def _other_version(received: bytes) -> str:
    """Return the sentence for a header of another version of AMQP."""
    name = _OLDER.get(received[4:8])
    if name is None:
        return f"the peer does not speak AMQP 1.0 here; its protocol header is {received!r}"
    hint = ""
    if name == "0-9-1":
        hint = ": RabbitMQ has AMQP 1.0 from version 4 on, before by the plugin rabbitmq_amqp1_0"
    return f"the peer speaks AMQP {name} here, not AMQP 1.0{hint}"


def describe_end(received: bytes) -> str:
    """Return what to append where the peer has ended the transport instead of answering the first
    protocol header; `received` are the bytes that came, fewer than a header has."""
    if received:
        return f": {describe_other(_AMQP, received)}"
    return (
        " and without an answer: check the port, and whether it is one for TLS (amqps://) or not "
        "(amqp://)"
    )
