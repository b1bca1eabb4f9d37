"""Where the keys for tokens come from: files that change, and URLs (RFC 7517)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from pydantic import ValidationError

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.security import Security
from ferrymq_broker.security.jwks import FETCH_EVERY, LOOK_EVERY, MAX_BYTES, read_keys
from ferrymq_broker.security.token_refusal import TokenRefusedError
from ferrymq_broker.security.tokens import TokenVerifier, make_verifier
from tests.broker.tokens.makers import (
    AUDIENCE,
    ISSUER,
    TestClock,
    ec_key,
    ed_key,
    jwks,
    make_jwt,
    make_verifier_for,
    rsa_key,
)

# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "neither JSON nor PEM"),
        ("hello", "neither JSON nor PEM"),
        ("[" * 100_000, "neither JSON nor PEM"),
        ("{}", "no JWKS"),
        ('{"keys": []}', "no usable key"),
        ('{"keys": [7]}', "not a JWK"),
        ('{"keys": [{"kty": "EC"}]}', "key 0"),
        ('{"keys": [{"kty": "Lattice"}]}', "key 0"),
        (json.dumps({"keys": [ec_key().as_dict(private=True)]}), "private"),
        (ec_key().as_pem(private=True).decode(), "private"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "PUBLIC KEY"),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0" * 8}]}), "secret key"),
        (" " * (MAX_BYTES + 1), "bytes"),
    ],
)
def test_files_without_keys(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        make_verifier_for(tmp_path, keys=content)
    assert str(tmp_path / "keys.json") in str(raised.value)
    assert "c2VjcmV0" not in str(raised.value)


def test_no_file(tmp_path: Path) -> None:
    security = Security.model_validate(
        {"jwt": {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(tmp_path / "none")}}
    )
    with pytest.raises(ConfigError, match="No such file"):
        make_verifier(security)


def test_several_keys_in_pem() -> None:
    pem = b"".join(key.as_pem(private=False) for key in (ec_key(), ed_key(), rsa_key()))
    assert [key.key_type for key in read_keys(b"\n" + pem)] == ["EC", "OKP", "RSA"]


def test_keys_for_encryption_are_left_out() -> None:
    other = {**ed_key().as_dict(private=False), "use": "enc"}
    keys = json.dumps({"keys": [ec_key().as_dict(private=False), other]}).encode()
    assert [key.kid for key in read_keys(keys)] == ["ec"]


def replace(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(content)
    os.replace(new, path)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    clock = TestClock()
    verifier = make_verifier_for(tmp_path, clock, keys=jwks(ec_key()))
    old, new = make_jwt(), make_jwt(ed_key(), "EdDSA")
    with pytest.raises(TokenRefusedError):
        verifier.check_jwt(new)
    path = tmp_path / "keys.json"
    replace(path, jwks(ed_key()))
    # Nobody looks all the time.
    verifier.check_jwt(old)
    clock.time += LOOK_EVERY
    verifier.check_jwt(new)
    with pytest.raises(TokenRefusedError):
        verifier.check_jwt(old)
    # What cannot be used changes nothing, and nor does a file that is gone.
    for spoil in (lambda: replace(path, "half a fi"), path.unlink):
        spoil()
        clock.time += LOOK_EVERY
        verifier.check_jwt(new)
    replace(path, jwks(ec_key()))
    clock.time += LOOK_EVERY
    verifier.check_jwt(old)


# -- URLs --------------------------------------------------------------------------------------


class Publisher:
    """Answers with keys, over HTTP. `answer` is called for each request, counted by `asked`."""

    def __init__(self) -> None:
        self.asked = 0
        self.body: str | bytes = jwks(ec_key())
        self.encoding = ""
        self.status = 200
        self.location: str | None = None
        self.hold: asyncio.Event | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        return await self.respond(request)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        headers = {} if self.location is None else {"Location": self.location}
        if self.encoding:
            headers["Content-Encoding"] = self.encoding
        body = self.body.encode() if isinstance(self.body, str) else self.body
        return web.Response(body=body, status=self.status, headers=headers)


@pytest.fixture
async def publisher() -> AsyncIterator[tuple[Publisher, str]]:
    publisher = Publisher()
    app = web.Application()
    app.router.add_get("/{path:.*}", publisher.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    yield publisher, f"http://127.0.0.1:{port}/jwks"
    if publisher.hold is not None:
        publisher.hold.set()
    await runner.cleanup()


def verifier_at(url: str, clock: TestClock, **settings: object) -> TokenVerifier:
    table = {"issuer": ISSUER, "audience": AUDIENCE, "keys": url, "leeway": 0, **settings}
    verifier = make_verifier(Security.model_validate({"jwt": table}), clock)
    assert verifier is not None
    return verifier


async def is_good(verifier: TokenVerifier, token: str) -> bool:
    try:
        await verifier.identify_token(token)
    except TokenRefusedError:
        return False
    return True


async def test_keys_are_fetched_once(publisher: tuple[Publisher, str]) -> None:
    server, url = publisher
    verifier = verifier_at(url, TestClock())
    assert server.asked == 0
    good = await asyncio.gather(*[is_good(verifier, make_jwt()) for _ in range(10)])
    assert all(good) and server.asked == 1


async def test_an_unknown_key_has_them_fetched_again_but_not_all_the_time(
    publisher: tuple[Publisher, str],
) -> None:
    server, url = publisher
    clock = TestClock()
    verifier = verifier_at(url, clock)
    assert await is_good(verifier, make_jwt())
    new = make_jwt(ed_key(), "EdDSA")
    for _ in range(5):
        assert not await is_good(verifier, new)
    assert server.asked == 1
    clock.time += FETCH_EVERY
    server.body = jwks(ec_key(), ed_key())
    assert await is_good(verifier, new)
    assert server.asked == 2
    assert await is_good(verifier, make_jwt())


async def test_old_keys_are_fetched_again(publisher: tuple[Publisher, str]) -> None:
    server, url = publisher
    clock = TestClock()
    verifier = verifier_at(url, clock, refresh=600)
    assert await is_good(verifier, make_jwt())
    clock.time += 599
    assert await is_good(verifier, make_jwt())
    assert server.asked == 1
    clock.time += 1
    server.body = jwks(ed_key())
    # The key has been taken back.
    assert not await is_good(verifier, make_jwt())
    assert server.asked == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, ""),
        (404, jwks(ec_key())),
        (302, jwks(ec_key())),
        (200, "<html>"),
        (200, '{"keys": []}'),
        (200, '{"keys": [' + " " * MAX_BYTES + "]}"),
    ],
)
async def test_keys_that_were_good_stay_good(
    publisher: tuple[Publisher, str], status: int, body: str
) -> None:
    server, url = publisher
    clock = TestClock()
    verifier = verifier_at(url, clock, refresh=60)
    assert await is_good(verifier, make_jwt())
    server.status, server.body, server.location = status, body, url if status == 302 else None
    clock.time += 60
    assert await is_good(verifier, make_jwt())
    assert server.asked == 2
    # And from the beginning there are none.
    fresh = verifier_at(url, clock)
    assert not await is_good(fresh, make_jwt())


async def test_a_server_that_does_not_answer(
    publisher: tuple[Publisher, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrymq_broker.security.jwks.FETCH_TIMEOUT", 0.05)
    server, url = publisher
    server.hold = asyncio.Event()
    verifier = verifier_at(url, TestClock())
    assert not await is_good(verifier, make_jwt())


async def test_an_answer_without_end(
    publisher: tuple[Publisher, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of it is taken than the keys may be."""
    monkeypatch.setattr("ferrymq_broker.security.jwks.FETCH_TIMEOUT", 60.0)
    server, url = publisher
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while sent < 100 * MAX_BYTES:
            await answer.write(b" " * 65536)
            sent += 65536
        return answer

    monkeypatch.setattr(server, "respond", endless)
    assert not await is_good(verifier_at(url, TestClock()), make_jwt())
    assert sent < 100 * MAX_BYTES


async def test_secrets_are_not_taken_from_a_url(publisher: tuple[Publisher, str]) -> None:
    server, url = publisher
    server.body = json.dumps(
        {"keys": [{"kty": "oct", "k": "c2VjcmV0" * 8}, ec_key().as_dict(private=False)]}
    )
    assert await is_good(verifier_at(url, TestClock()), make_jwt())


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://login.example/jwks", "https://"),
        ("http://10.0.0.1/jwks", "https://"),
        ("http://127.0.0.1.example/jwks", "https://"),
        ("https://user:secret@login.example/", "no user"),
        ("https:///jwks", "host"),
    ],
)
def test_urls_that_are_not_asked(url: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason) as raised:
        Security.model_validate({"jwt": {"issuer": "i", "audience": "a", "keys": url}})
    assert "secret" not in str(raised.value)


def test_a_file_of_beginnings_takes_no_time() -> None:
    data = b"-----BEGIN PUBLIC KEY-----" * (MAX_BYTES // 26)
    began = time.process_time()
    with pytest.raises(ValueError, match="no usable key"):
        read_keys(data)
    assert time.process_time() - began < 1


async def test_what_is_compressed_is_not_taken(publisher: tuple[Publisher, str]) -> None:
    """A quarter of a megabyte could be gigabytes."""
    server, url = publisher
    server.body = gzip.compress(b" " * 100_000_000 + jwks(ec_key()).encode())
    server.encoding = "gzip"
    assert len(server.body) < MAX_BYTES
    verifier = verifier_at(url, TestClock())
    tracemalloc.start()
    try:
        assert not await is_good(verifier, make_jwt())
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert server.asked == 1
