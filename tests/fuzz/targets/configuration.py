"""Configuration files: `ConfigError` with a line for each mistake, and no secret in it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import load_config
from tests.fuzz.mutation.plain import mutate_text

_EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "broker" / "ferrymq.toml"
_FILE = Path(tempfile.mkdtemp(prefix="ferrymq-fuzz-")) / "ferrymq.toml"
_SECRET = "swordfish"


def one(data: bytes) -> None:
    """Load the text."""
    _FILE.write_bytes(data)
    try:
        config = load_config(_FILE)
    except ConfigError as error:
        text = str(error)
        assert text
        assert all(line.startswith(str(_FILE)) for line in text.split("\n")), text
        return
    if not any(_SECRET in name for name in config.security.users):
        # The name of a user is no secret.
        assert _SECRET not in repr(config)


def _chunks(text: str) -> list[bytes]:
    return [part.encode() for part in text.split("\n\n") if part.strip()]


def seeds() -> list[bytes]:
    """The example, as a whole and its parts, and some of what goes wrong."""
    text = _EXAMPLE.read_text("utf-8")
    return [text.encode(), *_chunks(text), *_TEXTS]


def mutate(random: Random, data: bytes) -> bytes:
    """Other lines and words."""
    if random.random() < 0.1:
        chunks = _chunks(_EXAMPLE.read_text("utf-8"))
        return data + b"\n\n" + random.choice(chunks)
    return mutate_text(random, data, WORDS)


_TEXTS = (
    b"",
    b'listen = ["amqp://127.0.0.1:0"]',
    b'[security.users]\nann = "swordfish"\n',
    b"[security]\nanonymous = true\nplain-without-tls = 5\n",
    b'[queues.a]\nmax-length = "5 MB"\n[queues.a]\n',
    b'[[listeners]]\nurl = "amqps://[::1]:5671"\ncertificate = "c.pem"\nkey = "k.pem"\n',
    b'[[rules]]\nwho = ["ann", "*"]\nmay = ["send", "receive"]\non = ["orders.*"]\n',
    b"a" * 2000,
    b"a.b.c.d.e.f.g = 1",
    b"a = " + b"[" * 200 + b"]" * 200,
    b"\xff\xfe",
    b"a = 1979-05-27T07:32:00Z\nb = nan\nc = 0xffff_ffff_ffff_ffff_ffff\n",
)
WORDS = (
    b"[", b"]", b"=", b"{", b"}", b",", b"true", b"false", b"0", b"-1", b"1e400", b"nan", b"'a'",
    b'"5 MB"', b'"1h"', b'""', b'"*"', b"[]", b"{}", b"[[rules]]", b"[limits]", b"[security]",
    b"[security.users]", b"[queues.a]", b"[topics.a]", b"[streams.a]", b"[exchanges.a]",
    b"[virtual-hosts.x]", b"[virtual-hosts.x.queues.a]", b"[[listeners]]", b"[store]", b"[memory]",
    b"max-length", b"url", b"who", b"may", b"may-not", b"on", b'"amqp://a:b@h:5672/x"', b'"send"',
    b'"http://127.0.0.1:0"', b"#", b'"""', b"99999999999999999999999", b'"\\u0000"', b"type",
    b'"9999999999999 GB"', b'"-1 s"', b"1979-05-27", b'swordfish = "swordfish"',
    b'ann = "swordfish"',
)  # fmt: skip
