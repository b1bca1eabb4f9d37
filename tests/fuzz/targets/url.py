"""URLs of brokers and of listeners: ValueError is all that leaves, and no password with it."""

from __future__ import annotations

from random import Random

from ferrymq.url import parse_url, parse_urls, shown_urls
from ferrymq_broker.config.url import check_http_url, parse_listen_url
from tests.fuzz.mutation.plain import mutate_bytes

_SECRET = "swordfish"


def one(data: bytes) -> None:
    """Take it apart in every way."""
    text = data.decode("utf-8", "surrogateescape")
    # Where it stands anywhere else, nobody can know that it is meant to be secret.
    secret = text.count(_SECRET) == 1 and text.partition("//")[2].startswith(f"ann:{_SECRET}@")
    for parse in (parse_url, parse_urls, parse_listen_url, check_http_url):
        try:
            found = parse(text)
        except ValueError as error:
            assert not (secret and _SECRET in str(error)), error
            continue
        if parse is parse_url:
            assert not secret or _SECRET not in str(found) + repr(found)
        elif parse is parse_urls:
            assert not secret or _SECRET not in shown_urls(parse_urls(text)) + repr(found)


def seeds() -> list[bytes]:
    """Good ones and bad ones."""
    return list(_TEXTS)


def mutate(random: Random, data: bytes) -> bytes:
    """Other pieces."""
    return mutate_bytes(random, data, WORDS)


_TEXTS = (
    b"amqp://127.0.0.1:5672",
    b"amqps://ann:swordfish@host:5671?timeout=5&hostname=x",
    b"amqp://[::1]:0",
    b"amqps://localhost",
    b"http://127.0.0.1:9100",
    b"amqp://host:99999",
    b"amqp://ann:swordfish@host/path#x",
    b"amqp://a%40b:swordfish@h",
    b"amqp+ws://host:80/x",
    b"amqp://ann:swordfish@a,amqps://b:1 , ws://c/x,y",
)
WORDS = (
    b"amqp", b"amqps", b"://", b":", b"@", b"/", b"?", b"#", b"[", b"]", b"%00", b"%", b"&", b"=",
    b"ann:swordfish@", b"host", b"[::1]", b"[v1.a]", b"\xe2\x84\x80", b"\xff", b"65536", b"-1",
    b"timeout=5", b"hostname=", b"wss", b"ws", b"0", b"\t", b"\n", b" ", b",", b",amqp://",
)  # fmt: skip
