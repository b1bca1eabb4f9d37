"""A broker that has no file descriptor left for one more client: it waits, and does not spin."""

from __future__ import annotations

import resource
import time
from typing import Final

from tests.hostile.crowd import answered, connect, greeting, is_let_in, processor_time, sockets
from tests.hostile.process import Broker

LIMIT: Final = 64


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
