"""Our client, and servers that are not what it wants: they hear nothing and are not believed."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import ferrymq
from ferrymq.engine import Anonymous, OAuthBearer, Plain, Scram
from tests.broker.tls.pki import Pki
from tests.raw.frames import AMQP_HEADER, SASL_CHALLENGE, SASL_HEADER, frame, sasl_frame
from tests.raw.values import binary, ubyte

PASSWORD = "correct-horse"
USER = f"alice:{PASSWORD}@"
SALT = base64.b64encode(bytes(16)).decode()

# What a server says to what a client has said; None hangs up.
Script = Callable[[bytes], bytes | None]


@asynccontextmanager
async def server(
    script: Script, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, bytearray]]:
    """A server that follows a script; its port, and all that it hears."""
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                heard.extend(data)
                answer = script(data)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield listening.sockets[0].getsockname()[1], heard
    finally:
        listening.close()
        await asyncio.sleep(0)


def offering(*mechanisms: str, then: Callable[[bytes], bytes | None] = lambda said: None) -> Script:
    """Offers these, and goes on with what `then` says to each frame."""

    def script(said: bytes) -> bytes | None:
        if said.startswith(SASL_HEADER):
            names = b"".join(bytes((len(name),)) + name.encode() for name in mechanisms)
            array = b"\xe0" + bytes((len(names) + 2, len(mechanisms))) + b"\xa3" + names
            return SASL_HEADER + sasl_frame(0x40, array)
        return then(said)

    return script


def challenge(text: str | bytes) -> bytes:
    """A challenge of a server."""
    return sasl_frame(SASL_CHALLENGE, binary(text if isinstance(text, bytes) else text.encode()))


def nonce_of(said: bytes) -> str:
    """The client's nonce."""
    found = re.search(rb"r=([0-9A-Za-z+/=\-_]+)", said)
    assert found is not None
    return found[1].decode()


GOOD = sasl_frame(0x44, ubyte(0))


async def fails(port: int, scheme: str = "amqp", user: str = "", **options: object) -> str:
    """Why the client does not connect, which it has to know soon."""
    began = time.monotonic()
    with pytest.raises(ferrymq.AmqpError) as caught:
        url = f"{scheme}://{user}127.0.0.1:{port}"
        async with ferrymq.connect(url, reconnect=False, **options):  # type: ignore[arg-type]
            pass
    assert time.monotonic() - began < 10
    texts = []
    error: BaseException | None = caught.value
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    assert PASSWORD not in " ".join(texts)
    return " ".join(texts)


FIRSTS: dict[str, Callable[[str], str | bytes]] = {
    "10^9 iterations": lambda nonce: f"r={nonce}x,s={SALT},i=1000000000",
    "10^4000 iterations": lambda nonce: f"r={nonce}x,s={SALT},i=1{'0' * 4000}",
    "no iterations": lambda nonce: f"r={nonce}x,s={SALT},i=0",
    "negative iterations": lambda nonce: f"r={nonce}x,s={SALT},i=-4096",
    "another nonce": lambda nonce: f"r=x{nonce},s={SALT},i=4096",
    "the same nonce": lambda nonce: f"r={nonce},s={SALT},i=4096",
    "no salt": lambda nonce: f"r={nonce}x,s=,i=4096",
    "a salt that is no base64": lambda nonce: f"r={nonce}x,s=!!,i=4096",
    "an extension": lambda nonce: f"m=x,r={nonce}x,s={SALT},i=4096",
    "an error": lambda nonce: "e=other-error",
    "nothing": lambda nonce: "",
    "no UTF-8": lambda nonce: b"\xff\xfe",
}


@pytest.mark.parametrize("what", FIRSTS)
async def test_malformed_challenges(what: str) -> None:
    def then(said: bytes) -> bytes | None:
        return challenge(FIRSTS[what](nonce_of(said))) if b"n,,n=" in said else GOOD

    async with server(offering("SCRAM-SHA-256", then=then)) as (port, _):
        assert "SCRAM" in await fails(port, sasl=Scram("SCRAM-SHA-256", "alice", PASSWORD))


@pytest.mark.parametrize(
    "final", [b"v=AAAA", b"v=" + base64.b64encode(bytes(32)), b"e=x", b"", None]
)
async def test_a_server_that_does_not_know_the_password(final: bytes | None) -> None:
    """It says that all is well; it has to prove that it knows the user."""

    def then(said: bytes) -> bytes | None:
        if b"n,,n=" in said:
            return challenge(f"r={nonce_of(said)}x,s={SALT},i=4096")
        return GOOD if final is None else sasl_frame(0x44, ubyte(0), binary(final))

    async with server(offering("SCRAM-SHA-256", then=then)) as (port, heard):
        await fails(port, sasl=Scram("SCRAM-SHA-256", "alice", PASSWORD))
        assert PASSWORD.encode() not in heard


async def test_a_server_that_is_content_at_once() -> None:
    """Without a challenge, and so without a proof."""
    async with server(offering("SCRAM-SHA-256", then=lambda said: GOOD)) as (port, _):
        await fails(port, sasl=Scram("SCRAM-SHA-256", "alice", PASSWORD))


async def test_a_server_that_wants_less_than_there_was_to_be() -> None:
    """Somebody in between has taken out the better mechanisms."""
    async with server(offering("PLAIN", "ANONYMOUS")) as (port, heard):
        await fails(port, sasl=Scram("SCRAM-SHA-256", "alice", PASSWORD))
        assert PASSWORD.encode() not in heard and b"alice" not in heard


async def test_challenges_where_none_are_due() -> None:
    for sasl in (Plain("alice", PASSWORD), Anonymous()):
        script = offering(sasl.name, then=lambda said: challenge("more, please"))
        async with server(script) as (port, _):
            await fails(port, sasl=sasl)


async def test_challenges_without_end() -> None:
    """Nobody waits for a server longer than for any other."""
    script = offering("OAUTHBEARER", then=lambda said: challenge('{"status": "again"}'))
    async with server(script) as (port, _):
        with pytest.raises(TimeoutError):
            await fails(port, sasl=OAuthBearer("token"), timeout=0.5)


async def test_much_too_large_a_challenge() -> None:
    async with server(offering("SCRAM-SHA-256", then=lambda said: challenge(b"x" * 1_000_000))) as (
        port,
        _,
    ):
        await fails(port, sasl=Scram("SCRAM-SHA-256", "alice", PASSWORD))
    huge = offering("SCRAM-SHA-256", then=lambda said: frame(b"", kind=1, size=0xFFFFFFFF))
    async with server(huge) as (port, _):
        await fails(port, sasl=Scram("SCRAM-SHA-256", "alice", PASSWORD))


async def test_the_reason_of_a_server_is_not_repeated_as_it_is() -> None:
    """Whatever it says gets on somebody's screen."""
    ugly = challenge('{"status": "\\u001b[2J bad"}')

    def then(said: bytes) -> bytes | None:
        return ugly if b"auth=Bearer" in said else sasl_frame(0x44, ubyte(1))

    async with server(offering("OAUTHBEARER", then=then)) as (port, _):
        assert "\x1b" not in await fails(port, sasl=OAuthBearer("token"))


@pytest.mark.parametrize(
    "answer", [AMQP_HEADER, SASL_HEADER, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"]
)
async def test_amqps_without_tls(answer: bytes) -> None:
    """It fails hard: nothing is said in the clear that only the server was to hear."""
    async with server(lambda said: answer or None) as (port, heard):
        await fails(port, "amqps", user=USER)
        assert bytes(heard[:1]) in (b"\x16", b"")
        assert b"AMQP" not in heard and b"alice" not in heard


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.mark.parametrize("names", [["elsewhere.example"], ["*.0.0.1"], ["127.0.0.1.example"]])
async def test_the_certificate_of_another_host(pki: Pki, names: list[str]) -> None:
    """Vouched for by who is trusted, but for somebody else."""
    pki.write("other", pki.authority.server(names, 1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.path("other"), pki.path("other-key"))
    async with server(offering("PLAIN"), context) as (port, heard):
        reason = await fails(port, "amqps", user=USER, ssl=pki.trusting())
        assert "certificate" in reason.lower() and not heard


async def test_the_certificate_of_a_stranger(pki: Pki) -> None:
    pki.write("other", pki.stranger.server(["127.0.0.1"], 1))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.path("other"), pki.path("other-key"))
    async with server(offering("PLAIN"), context) as (port, heard):
        await fails(port, "amqps", user=USER, ssl=pki.trusting())
        assert not heard
