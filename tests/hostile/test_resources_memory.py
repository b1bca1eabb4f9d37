"""A broker in a small container: producers wait, nobody kills it, and it goes on when it can."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.raw.client import Client
from tests.raw.frames import (
    attach_frame,
    disposition_frame,
    source,
    target,
    transfer_frame,
)
from tests.raw.process import MIB, Broker
from tests.raw.values import TRUE, binary, composite, data_section, string, uint

LIMIT = 256 * MIB
MESSAGE = data_section(bytes(50_000))
ACCEPTED = composite(0x24, [])


def _groups() -> tuple[Path, str] | None:
    """Where control groups for memory are made, and what their limit is called."""
    one = Path("/sys/fs/cgroup/memory")
    if (one / "memory.limit_in_bytes").exists() and os.access(one, os.W_OK):
        return one, "memory.limit_in_bytes"
    two = Path("/sys/fs/cgroup")
    if (two / "memory.max").exists() and os.access(two, os.W_OK):
        return two, "memory.max"
    return None


@contextlib.contextmanager
def small_container(broker: Broker) -> Iterator[None]:
    """The broker runs with 256 MiB, and may not exchange memory for disk."""
    found = _groups()
    if found is None:
        pytest.skip("no control group for memory can be made here")
    root, name = found
    group = root / f"ferrymq-test-{os.getpid()}"
    group.mkdir()
    # Where this process is, and goes back to.
    home = root / _own_group()
    try:
        (group / name).write_text(str(LIMIT))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            broker.start()
        finally:
            (home / "cgroup.procs").write_text(str(os.getpid()))
        yield
        broker.stop()
    finally:
        broker.kill()
        with contextlib.suppress(OSError):
            group.rmdir()


def _own_group() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            return path.strip("/")
    return ""


def _fill(writer: Client) -> int:
    """Use all the credit there is, until there is none for a second; how many messages that was."""
    where = target(string("q"))
    writer.begin().send(attach_frame("w", 0, target=where, source=source()))
    sent = allowed = 0
    while True:
        for answer in writer.come():
            if answer.name == "flow":
                count, credit = answer.field(5), answer.field(6)
                assert isinstance(count, int) and isinstance(credit, int)
                allowed = count + credit
        if sent >= allowed and not select.select([writer.socket], [], [], 1.0)[0]:
            return sent
        while sent < allowed:
            writer.send(transfer_frame(MESSAGE, 0, uint(sent), binary(b"t"), settled=TRUE))
            sent += 1
            if sent % 50 == 0:
                break


def _credit(writer: Client) -> int:
    """The credit of the next flow."""
    credit = writer.expect("flow", "empty").field(6)
    assert isinstance(credit, int)
    return credit


def test_producers_wait_in_a_small_container() -> None:
    broker = Broker('[log]\nlevel = "warning"\n', started=True)
    with small_container(broker), Client(broker.port) as writer:
        sent = _fill(writer)
        assert 50 * MIB < sent * len(MESSAGE) < LIMIT
        assert "alarm: producers get no credit" in broker.log
        # Consumers go on; and when they have taken enough, the producer does.
        with Client(broker.port) as reader:
            reader.begin().receiver("q", credit=sent, name="reader")
            taken = 0
            while taken < sent:
                answer = reader.expect("transfer", "flow", "empty")
                taken += answer.field(5) is not True
                reader.send(disposition_frame(taken - 1, settled=TRUE, state=ACCEPTED))
        assert _credit(writer) > 0
        broker.check()


def test_a_message_too_large_for_the_container() -> None:
    """It could be put together nowhere: its link pays, and others can send."""
    broker = Broker('[log]\nlevel = "warning"\n', started=True)
    with small_container(broker), Client(broker.port) as writer:
        writer.begin().sender("q")
        for number in range(90 * MIB // len(MESSAGE)):
            first = (uint(0), binary(b"t")) if number == 0 else ()
            writer.send(transfer_frame(MESSAGE, 0, *first, more=TRUE))
        assert writer.verdict()[:2] == ("link", "amqp:resource-limit-exceeded")
        with Client(broker.port) as other:
            other.begin().sender("q", name="other")
        broker.check()
