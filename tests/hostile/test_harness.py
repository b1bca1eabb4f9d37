"""The harness sees what it is there to see: each of its checks fails when it should."""

from __future__ import annotations

import signal
import time

import pytest

from tests.hostile.site import Site
from tests.raw.frames import transfer_frame
from tests.raw.process import MIB, Broker
from tests.raw.values import TRUE, binary, data_section, uint


def test_the_witness_notices_a_broker_that_blocks(site: Site) -> None:
    """Stopped for 0.2 s, as it would be by a computation of that length."""

    def block() -> None:
        site.broker.signal(signal.SIGSTOP)
        time.sleep(0.2)
        site.broker.signal(signal.SIGCONT)
        time.sleep(0.5)

    with pytest.raises(AssertionError, match="had to wait"):
        site.witness.is_served(block)


def test_memory_that_stays_is_noticed(site: Site, address: str) -> None:
    broker = site.broker
    with site.client() as client:
        client.begin().sender(address)
        before = broker.memory()
        for number in range(64):
            client.send(
                transfer_frame(
                    data_section(bytes(60_000)), 0, uint(number), binary(b"t"), settled=TRUE
                )
            )
        client.close()
    with pytest.raises(AssertionError, match="MiB more than before"):
        broker.memory_is_back(before, MIB, patience=0.5)


def test_a_mistake_in_the_log_is_noticed() -> None:
    broker = Broker('[log]\nlevel = "debug"')
    with broker:
        broker.check()
        with broker._log.open("a") as log:
            log.write("Traceback (most recent call last):\n")
        with pytest.raises(AssertionError, match="made a mistake"):
            broker.check()


def test_a_broker_that_has_died_is_noticed() -> None:
    with Broker() as broker:
        broker.signal(signal.SIGKILL)
        assert broker._process is not None
        broker._process.wait()
        with pytest.raises(AssertionError, match="has died"):
            broker.check()
        broker.kill()
