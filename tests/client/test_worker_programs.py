"""Workers as programs: they are told to end, and they are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from ferrymq import Message
from ferrymq_broker.server import BrokerServer
from tests.client.test_workers import broker, put, queue, until
from tests.support.lanes import amount

__all__ = ["broker"]

PROGRAM = Path(__file__).with_name("worker_program.py")


async def start(face: str, url: str, seconds: float) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), face, url, str(seconds)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ,
    )


async def words(process: asyncio.subprocess.Process, word: str, count: int) -> list[str]:
    """Wait for so many lines that begin with a word."""
    assert process.stdout is not None
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            line = (await process.stdout.readline()).decode()
            assert line, "the program has ended"
            if line.startswith(word):
                found.append(line.split()[-1])
    return found


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_a_program_in_good_order(
    broker: BrokerServer, face: str, number: signal.Signals
) -> None:
    await put(broker, *[Message(number) for number in range(20)])
    process = await start(face, broker.url, 0.5)
    began = await words(process, "begin", 5)
    process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err.decode()
    lines = out.decode().splitlines()
    assert lines[-1] == "stopped"
    ended = [line.split()[1] for line in lines if line.startswith("end")]
    more = [line.split()[1] for line in lines if line.startswith("begin")]
    # What had begun has ended, and is accepted; nothing is lost and nothing is done twice.
    assert sorted(ended) == sorted(began + more)
    assert queue(broker).message_count() == 20 - len(ended)
    assert queue(broker).acquired == 0


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_a_signal_ends_the_wait_for_a_broker(face: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    process = await start(face, f"amqp://127.0.0.1:{port}", 0)
    assert process.stderr is not None
    async with asyncio.timeout(30):
        for _ in range(4):
            assert b"no connection yet" in await process.stderr.readline()
        process.terminate()
        out, _ = await process.communicate()
    assert process.returncode == 0 and out == b"stopped\n"


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
async def test_a_program_that_is_killed_loses_nothing(broker: BrokerServer, face: str) -> None:
    # Many more than are done until the programs are killed, on a busy machine, too.
    await put(broker, *[Message(number) for number in range(100)])
    ended: list[str] = []
    # No more often than a message may be tried again.
    for _ in range(amount(2, 5)):
        process = await start(face, broker.url, 0.05)
        try:
            ended += await words(process, "end", 2)
        finally:
            process.kill()
            out, _ = await process.communicate()
            ended += [line.split()[1] for line in out.decode().splitlines() if "end" in line]
    process = await start(face, broker.url, 0)
    await until(lambda: queue(broker).message_count() == 0)
    process.terminate()
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    ended += [line.split()[1] for line in out.decode().splitlines() if line.startswith("end")]
    assert {int(number) for number in ended} == set(range(100))
    assert queue(broker, "jobs.dead").message_count() == 0


async def test_a_message_that_kills_its_workers_becomes_a_dead_letter(
    broker: BrokerServer,
) -> None:
    """`retries` attempts after the first, and the program dies in each of them."""
    await put(broker, Message("deadly"))
    for _ in range(6):
        process = await start("asyncio", broker.url, 60)
        await words(process, "begin deadly", 1)
        process.kill()
        await process.communicate()
    process = await start("asyncio", broker.url, 60)
    await until(lambda: queue(broker, "jobs.dead").message_count() == 1)
    process.terminate()
    out, _ = await process.communicate()
    assert out == b"stopped\n"
