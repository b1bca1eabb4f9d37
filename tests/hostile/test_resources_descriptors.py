"""A broker that has no file descriptor left for one more client: it waits, and does not spin."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Final

from tests.hostile.crowd import answered, connect, greeting, is_let_in, processor_time, sockets
from tests.raw.client import Client
from tests.raw.frames import transfer_frame
from tests.raw.process import Broker
from tests.raw.values import TRUE, binary, composite, data_section, uint

LIMIT: Final = 64
# A message to be stored.
LARGE: Final = composite(0x70, [TRUE]) + data_section(bytes(50_000))


def test_accepting_pauses_and_goes_on(broker: Broker) -> None:
    before = broker.memory()
    old = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, old[1]))
    try:
        with sockets() as crowd:
            for _ in range(LIMIT + 16):
                one = connect(broker.port)
                one.sendall(greeting())
                crowd.append(one)
            # They are accepted in the order they came.
            inside = [is_let_in(one) for one in crowd[:8]]
            assert all(inside)
            assert not answered(crowd[-1], 0.3), "it was let in or refused"
            spent = processor_time(broker.pid)
            time.sleep(1.0)
            assert processor_time(broker.pid) - spent < 0.3, "the broker spins"
            # Everybody gets in when others have gone.
            for position, one in enumerate(crowd):
                if position >= 8:
                    assert is_let_in(one), f"client {position} waits for ever"
                one.close()
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, old)
    broker.memory_is_back(before)
    broker.check()
    assert broker.log.count("accepting no connections for now") == 1
    # The store and the configuration had theirs all the time.
    assert "all file descriptors for connections are in use" in broker.log


def test_few_from_the_start(tmp_path: Path) -> None:
    """A process that was given no more by the system, and has a store: that has its own."""
    config = f'[store]\npath = "{tmp_path / "store"}"\n'
    with Broker(config, descriptors=LIMIT) as broker, Client(broker.port) as client:
        client.begin().sender("kept")
        with sockets() as crowd:
            for _ in range(LIMIT + 16):
                one = connect(broker.port)
                one.sendall(greeting())
                crowd.append(one)
            assert is_let_in(crowd[0])
            assert not answered(crowd[-1], 0.3), "it was let in or refused"
            # What is durable becomes so while all descriptors for connections are in use.
            for number in range(20):
                client.send(transfer_frame(LARGE, 0, uint(number), binary(b"%d" % number)))
            settled = 0
            while settled < 20:
                answer = client.expect("disposition", "flow", "empty")
                first, last = answer.field(1), answer.field(2)
                assert isinstance(first, int)
                settled += (last if isinstance(last, int) else first) - first + 1
            spent = processor_time(broker.pid)
            time.sleep(1.0)
            assert processor_time(broker.pid) - spent < 0.3, "the broker spins"
            for one in crowd[:-1]:
                one.close()
            assert is_let_in(crowd[-1])
        assert "all file descriptors for connections are in use" in broker.log
        client.close()
    with Broker(config, descriptors=LIMIT) as broker, Client(broker.port) as client:
        client.begin().receiver("kept")
        assert len([a for a in client.arrivals(20) if a.field(5) is not True]) == 20
