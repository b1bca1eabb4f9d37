"""A connection that goes from one worker to another, with all that the other has to know."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import Final

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.management.traces import RECEIVED

AMQP: Final = b"AMQP\x00\x01\x00\x00"
"""The protocol header of the layer without SASL and TLS (AMQP 1.0 §2.2)."""
# The protocol ids of TLS and SASL in a protocol header (AMQP 1.0 §5.2, §5.3).
_LAYERS: Final = (2, 3)


@dataclass(frozen=True, slots=True)
class PassedConnection:
    """A client that has logged in, and has named a virtual host of another worker.

    `received` are the bytes of the client from which the other worker begins, and `sent` those
    that the client has got: the other worker writes them again, and they are thrown away.
    `relayed` is whether the first worker keeps the socket of the client, because the state of TLS
    cannot be passed. The other fields are those of `ClientTransport` and of `UserIdentity`.
    """

    received: bytes
    sent: bytes
    relayed: bool
    peer: str
    host: str
    loopback: bool
    encrypted: bool
    tls_version: str
    user: str | None
    groups: list[str]
    claims: dict[str, list[str]]
    key: str
    mechanism: str
    expires: float
    proven: bool

    @classmethod
    def of(
        cls, received: bytes, sent: bytes, relayed: bool, client: ClientTransport, who: UserIdentity
    ) -> PassedConnection:
        """Return the connection of a client, with the identity that it has proved."""
        return cls(
            received,
            sent,
            relayed,
            client.peer,
            client.host,
            client.loopback,
            client.encrypted,
            client.tls_version,
            who.user,
            sorted(who.groups),
            {name: sorted(values) for name, values in who.claims.items()},
            who.key,
            who.mechanism,
            who.expires,
            who.proven,
        )

    def transport(self) -> ClientTransport:
        """Return what the first worker knows of the transport of the client."""
        found = ClientTransport(self.peer, self.host, self.loopback, self.encrypted)
        found.tls_version = self.tls_version
        return found

    def identity(self) -> UserIdentity:
        """Return the identity that the client has proved."""
        claims = {name: frozenset(values) for name, values in self.claims.items()}
        return UserIdentity(
            self.user,
            frozenset(self.groups),
            claims,
            self.key,
            self.mechanism,
            self.expires,
            self.proven,
        )

    def encode(self) -> bytes:
        """Return the connection as bytes for `decode`."""
        fields = asdict(self)
        fields["received"] = b64encode(self.received).decode()
        fields["sent"] = b64encode(self.sent).decode()
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> PassedConnection:
        """Return the connection from the bytes of `encode`."""
        fields = json.loads(data)
        fields["received"] = b64decode(fields["received"])
        fields["sent"] = b64decode(fields["sent"])
        return cls(**fields)


class HandshakeRecord:
    """The bytes of a connection in both directions, until it is open."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.received = bytearray()
        self.sent = bytearray()

    def add(self, arrow: str, data: bytes) -> None:
        """Note bytes that the client sent (`RECEIVED`), or that are sent to it."""
        if arrow == RECEIVED:
            self.received += data
        else:
            self.sent += data

    def from_amqp(self) -> tuple[bytes, bytes]:
        """Return the bytes in both directions from the AMQP header on. Another protocol is returned
        as a whole: only AMQP has a login that cannot be repeated, because it has random numbers."""
        begins = self.received.startswith
        if not begins(AMQP) and not (begins(b"AMQP") and self.received[4] in _LAYERS):
            return bytes(self.received), bytes(self.sent)
        at = 0
        while self.received[at : at + 4] != b"AMQP" or self.received[at + 4] in _LAYERS:
            if self.received[at : at + 4] == b"AMQP":
                at += len(AMQP)
            else:
                at += int.from_bytes(self.received[at : at + 4], "big")
        # The broker answers the header of the layer with the same one, and waits for the open.
        return bytes(self.received[at:]), AMQP
