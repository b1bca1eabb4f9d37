"""Logins made by hand (AMQP 1.0 §5.3; RFC 4616, RFC 5802, RFC 7628): right ones, and others."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from tests.raw.answers import Answer
from tests.raw.client import Client
from tests.raw.frames import SASL_HEADER, sasl_init, sasl_response

# Outcomes (AMQP 1.0 §5.3.3.6).
OK: Final = 0
AUTH: Final = 1
SYS: Final = 2
SYS_PERM: Final = 3
SYS_TEMP: Final = 4
# No outcome, but the end of the transport.
END: Final = -1


def plain(user: str, password: str, authzid: str = "") -> bytes:
    """The response of PLAIN."""
    return f"{authzid}\0{user}\0{password}".encode()


def bearer(token: str, user: str = "") -> bytes:
    """The response of OAUTHBEARER."""
    return f"n,{f'a={user}' if user else ''},\x01auth=Bearer {token}\x01\x01".encode()


def begin(client: Client, mechanism: str, response: bytes, hostname: str = "") -> Client:
    """The headers, and what a client says first."""
    client.send(SASL_HEADER, sasl_init(mechanism, response, hostname))
    assert client.take(8) == SASL_HEADER
    client.expect("sasl-mechanisms")
    return client


def outcome(client: Client) -> int:
    """The next thing is the outcome, or the end."""
    answer = client.read()
    if answer is None:
        return END
    assert answer.name == "sasl-outcome", answer
    code = answer.field(0)
    assert isinstance(code, int)
    if code != OK:
        assert client.read() is None, "something after a bad outcome"
    return code


def log_in(port: int, mechanism: str, response: bytes, hostname: str = "") -> int:
    """The code of the outcome of a mechanism with one step; `END` for none."""
    with Client(port) as client:
        return outcome(begin(client, mechanism, response, hostname))


def offered(port: int) -> list[str]:
    """The mechanisms that a client is offered."""
    with Client(port) as client:
        client.send(SASL_HEADER)
        assert client.take(8) == SASL_HEADER
        names = client.expect("sasl-mechanisms").field(0)
        return [names] if isinstance(names, str) else [str(name) for name in names]  # type: ignore[attr-defined]


class Scram:
    """The client's side of SCRAM-SHA-256, one step at a time."""

    def __init__(self, client: Client, user: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL") -> None:
        self.client = client
        self.user = user
        self.nonce = nonce
        self.server_first = ""
        self.attributes: dict[str, str] = {}

    def start(self) -> Answer | None:
        """What the server says to the first message."""
        first = f"n,,n={self.user},r={self.nonce}".encode()
        answer = begin(self.client, "SCRAM-SHA-256", first).read()
        if answer is not None and answer.name == "sasl-challenge":
            challenge = answer.field(0)
            assert isinstance(challenge, bytes)
            self.server_first = challenge.decode()
            self.attributes = dict(part.split("=", 1) for part in self.server_first.split(","))
        return answer

    def proof(self, password: str) -> bytes:
        """The final message."""
        salt = base64.b64decode(self.attributes["s"])
        rounds = int(self.attributes["i"])
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c=biws,r={self.attributes['r']}"
        signed = f"n={self.user},r={self.nonce},{self.server_first},{without}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, final: bytes) -> int:
        """The code of the outcome."""
        self.client.send(sasl_response(final))
        return outcome(self.client)


def prove(port: int, user: str, password: str) -> int:
    """The code of the outcome of SCRAM-SHA-256."""
    with Client(port) as client:
        scram = Scram(client, user)
        answer = scram.start()
        if answer is None or answer.name != "sasl-challenge":
            assert answer is None or answer.name == "sasl-outcome"
            return END if answer is None else int(str(answer.field(0)))
        return scram.finish(scram.proof(password))
