"""Memory is given back when there is reason to, and not all the time."""

from __future__ import annotations

import asyncio
import gc
import mmap
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrymq_broker.server import housekeeping
from ferrymq_broker.server.housekeeping import ENOUGH, MOST_BLOCKS, WORTH_IT, Housekeeping
from tests.broker.harness import Network


class Loop:
    def __init__(self) -> None:
        self.me = self


def lose_a_loop() -> weakref.ref[Loop]:
    loop = Loop()
    return weakref.ref(loop)


@pytest.fixture(autouse=True)
def no_automatic_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_connections_that_are_gone_are_collected_once_there_were_enough() -> None:
    broker = Network().broker
    keeper = Housekeeping(broker)
    lost = lose_a_loop()
    for _ in range(ENOUGH - 1):
        broker.shared.numbers.next()
    keeper.look()
    assert lost() is not None
    broker.shared.numbers.next()
    keeper.look()
    assert lost() is None


def test_nothing_is_collected_while_there_is_too_much_to_look_at() -> None:
    broker = Network().broker
    blocks = 1_000
    keeper = Housekeeping(broker, blocks=lambda: blocks)
    blocks += MOST_BLOCKS + 1
    for _ in range(ENOUGH):
        broker.shared.numbers.next()
    lost = lose_a_loop()
    keeper.look()
    assert lost() is not None
    blocks -= 1
    keeper.look()
    assert lost() is None


def test_memory_goes_back_when_most_messages_are_gone() -> None:
    broker = Network().broker
    keeper = Housekeeping(broker)
    told = []
    for held in (0, 3, 2, 1, 1, 0, 0):
        broker.agenda.held = held * WORTH_IT
        told.append(keeper.look())
    assert told == [False, False, False, True, False, True, False]


def test_a_few_messages_less_are_no_reason() -> None:
    broker = Network().broker
    keeper = Housekeeping(broker)
    for held in (WORTH_IT - 1, 0, WORTH_IT - 1, 0):
        broker.agenda.held = held
        assert not keeper.look()


async def test_clients_are_served_between_the_slices_of_memory_that_are_returned() -> None:
    done: list[str] = []

    def shrink() -> Iterator[int]:
        for _ in range(3):
            asyncio.get_running_loop().call_soon(done.append, "client")
            done.append("slice")
            yield 1

    await housekeeping.return_memory(shrink, lambda: done.append("trim"))
    assert done == ["slice", "client"] * 3 + ["trim"]
    await housekeeping.return_memory(None, None)


def test_the_c_library_is_asked_where_it_can_be() -> None:
    trim = housekeeping.find_trim()
    assert trim is None or trim() in (0, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")
def test_files_that_are_only_read_are_found_among_what_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "data.mdb"
    path.write_bytes(bytes(1 << 20))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        found = housekeeping.mapped_files(str(path))
        assert [size for _, size in found] == [1 << 20]
        assert sum(mapped[::4096]) == 0
        before = resident(path)
        unmap = housekeeping.find_unmap()
        assert unmap is not None and before > 0
        unmap()
        assert resident(path) == 0
        # It is all there still.
        assert sum(mapped[::4096]) == 0
    assert housekeeping.mapped_files(str(path)) == []
    assert housekeeping.mapped_files("x", str(tmp_path / "none")) == []


def resident(path: Path) -> int:
    """Kilobytes of a mapped file that count as ours."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.endswith(str(path)):
            found = True
        elif found and line.startswith("Rss:"):
            return int(line.split()[1])
    return 0
