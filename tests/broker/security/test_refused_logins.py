"""What a client whose login fails gets to read: the outcome, and then the end (AMQP 1.0 §5.3.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from ferrymq_broker.config import Config, Listener
from ferrymq_broker.config.security import Security
from ferrymq_broker.security.users_file import write_users
from ferrymq_broker.server import BrokerServer
from ferrymq_codec.reader import Reader
from ferrymq_types.security import SaslCode, SaslInit, SaslOutcome
from ferrymq_types.transport import Open
from ferrymq_types.unions import decode_sasl_frame
from tests.broker.security.logins import ALICE
from tests.broker.tls.pki import Pki
from tests.support.script import AMQP_HEADER, SASL_HEADER, encoded

PLAIN = encoded(SaslInit(mechanism="PLAIN", initial_response=b"\0alice\0wrong"))
UNKNOWN = encoded(SaslInit(mechanism="SHOUTING", initial_response=b"let me in"))
# Clients may send on before they have the outcome: a little, or more than any socket buffer takes.
EAGER = AMQP_HEADER + encoded(Open(container_id="eager"))
FLOOD = EAGER + bytes(3_000_000)


async def read_frames(reader: asyncio.StreamReader) -> list[object]:
    """Read all that the broker says, up to its end, without the header."""
    data = await reader.read(-1)
    assert data.startswith(SASL_HEADER), data
    frames: list[object] = []
    at = 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        frames.append(decode_sasl_frame(Reader(data[at + 8 : at + size]), "frame"))
        at += size
    return frames


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("stored", [False, True], ids=["configured", "stored"])
@pytest.mark.parametrize("secure", [False, True], ids=["amqp", "amqps"])
@pytest.mark.parametrize("more", [b"", EAGER, FLOOD], ids=["waits", "eager", "flood"])
@pytest.mark.parametrize("init", [PLAIN, UNKNOWN], ids=["wrong", "unknown"])
@pytest.mark.spec("5.3.2")
def test_the_outcome_comes_before_the_end(
    tmp_path: Path,
    loop: Callable[[], asyncio.AbstractEventLoop],
    stored: bool,
    secure: bool,
    more: bytes,
    init: bytes,
) -> None:
    pki = Pki(tmp_path)
    users = tmp_path / "users.json"
    write_users(users, {"alice": ALICE})
    security: dict[str, object] = {"users-file": users} if stored else {"users": {"alice": "good"}}
    scheme = "amqps" if secure else "amqp"

    async def log_in() -> None:
        config = Config(
            listener=[Listener(url=f"{scheme}://127.0.0.1:0")],
            security=Security.model_validate(security),
            tls=pki.tls(),
        )
        context = pki.trusting() if secure else None
        host = "localhost" if secure else None
        async with BrokerServer(config) as server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=context, server_hostname=host
            )
            writer.write(SASL_HEADER + init + more)
            frames = await read_frames(reader)
            assert isinstance(frames[-1], SaslOutcome)
            assert frames[-1].code in (SaslCode.AUTH, SaslCode.SYS_PERM)
            assert frames[-1].code is SaslCode.AUTH or more is FLOOD or init is UNKNOWN
            assert sum(isinstance(frame, SaslOutcome) for frame in frames) == 1
            writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(log_in())
