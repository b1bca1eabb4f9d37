"""A disk that does what disks may do: forget what was not synced, tear what is being written.

`lose_power` leaves what a disk may have kept: of names that were not synced any part, in any order;
of a write that was under way any of its sectors. `kill` leaves all that system calls have done, and
any first part of the one that was under way.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from itertools import count

from ferrymq_broker.store.disk import File, Folder
from ferrymq_broker.store.errors import StoreLocked

SECTOR = 512


class Interrupted(BaseException):
    """The process or the machine has stopped in the middle of a call."""


class _Content:
    """The bytes of a file, whatever its name. Those behind `synced` may be zeros after a cut."""

    _numbers = count(1)

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.data = bytearray()
        # Sectors that were written and not synced, as they were before.
        self.unsynced: dict[int, bytes] = {}


class SimulatedDisk:
    """The directory of a store, as it is and as it would be after a power cut."""

    def __init__(self, rng: random.Random, *, capacity: int = 1 << 40, syncs: bool = True) -> None:
        self.rng = rng
        self.capacity = capacity
        # A disk, or a broker, that does not sync what it says it has synced.
        self.syncs = syncs
        self.names: dict[str, _Content] = {}
        self.synced_names: dict[str, _Content] = {}
        # How many steps of a call are done before it stops; None for all.
        self.steps_left: int | None = None
        self.locked = False
        self.failing: OSError | None = None
        # What records take, which are no file here.
        self.record_bytes = 0

    def step(self) -> None:
        """A part of a call that is done or not as a whole."""
        if self.steps_left is not None:
            if self.steps_left <= 0:
                raise Interrupted
            self.steps_left -= 1

    def used(self) -> int:
        files = sum(len(content.data) for content in self.names.values())
        return files + self.record_bytes

    def free(self) -> int:
        return max(0, self.capacity - self.used())

    def finish_with(self, call: Callable[[], None]) -> None:
        """Do some of a call that was under way when everything stopped."""
        self.steps_left = self.rng.choice((0, 1, 2, self.rng.randrange(64), 1 << 30))
        try:
            call()
        except (Interrupted, OSError):
            pass
        finally:
            self.steps_left = None

    def kill(self) -> None:
        """The process is gone: its lock is free, its files are closed."""
        self.locked = False

    def lose_power(self) -> None:
        """The machine is gone: what was not synced is there or not, as it happens."""
        rng = self.rng
        kept = dict(self.synced_names)
        # Of every name either what it was or what it is now; and the other way round.
        for name in sorted({*self.names, *self.synced_names}):
            if rng.random() < 0.5:
                continue
            content = self.names.get(name)
            if content is None:
                kept.pop(name, None)
            else:
                kept[name] = content
        for content in {id(c): c for c in (*self.names.values(), *kept.values())}.values():
            for sector, before in content.unsynced.items():
                if rng.random() < 0.5:
                    content.data[sector : sector + len(before)] = before
            content.unsynced = {}
        self.names = kept
        self.synced_names = dict(kept)
        self.locked = False


class SimulatedFile(File):
    """A file on a simulated disk."""

    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._content.data[position : position + size])

    def write(self, position: int, parts: Sequence[bytes], sync: bool = True) -> None:
        disk = self._disk
        if disk.failing is not None:
            raise disk.failing
        data = b"".join(parts)
        grown = position + len(data) - len(self._content.data)
        if grown > 0:
            if disk.used() + grown > disk.capacity:
                raise OSError(errno.ENOSPC, "the simulated disk is full")
            self._content.data.extend(bytes(grown))
        first = position - position % SECTOR
        sectors = list(range(first, position + len(data), SECTOR))
        if disk.steps_left is not None:
            # What is under way when the power goes gets there in any order.
            disk.rng.shuffle(sectors)
        for sector in sectors:
            disk.step()
            self._put(sector, position, data)
        if sync:
            self._sync()

    def _put(self, sector: int, position: int, data: bytes) -> None:
        content = self._content
        begin, end = max(sector, position), min(sector + SECTOR, position + len(data))
        if sector not in content.unsynced:
            content.unsynced[sector] = bytes(content.data[sector : sector + SECTOR])
        content.data[begin:end] = data[begin - position : end - position]

    def _sync(self) -> None:
        self._disk.step()
        if self._disk.syncs:
            self._content.unsynced = {}

    def size(self) -> int:
        return len(self._content.data)

    def fill(self, size: int) -> None:
        disk = self._disk
        disk.step()
        if disk.failing is not None:
            raise disk.failing
        if disk.used() - len(self._content.data) + size > disk.capacity:
            raise OSError(errno.ENOSPC, "the simulated disk is full")
        self._content.data = bytearray(size)
        self._content.unsynced = {}
        self._sync()

    def close(self) -> None:
        """Nothing is kept open."""


class SimulatedFolder(Folder):
    """What the store sees of a simulated disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk

    def describe(self, name: str = "") -> str:
        return f"simulated/{name}" if name else "simulated"

    def names(self) -> list[str]:
        return sorted(self.disk.names)

    def open(self, name: str) -> File:
        content = self.disk.names.get(name)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return SimulatedFile(self.disk, content)

    def create(self, name: str) -> File:
        self.disk.step()
        content = _Content()
        self.disk.names[name] = content
        return SimulatedFile(self.disk, content)

    def rename(self, old: str, new: str) -> None:
        self.disk.step()
        self.disk.names[new] = self.disk.names.pop(old)

    def remove(self, name: str) -> None:
        self.disk.step()
        if self.disk.names.pop(name, None) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)

    def sync(self) -> None:
        self.disk.step()
        if self.disk.failing is not None:
            raise self.disk.failing
        if self.disk.syncs:
            self.disk.synced_names = dict(self.disk.names)

    def identity(self, name: str) -> str:
        content = self.disk.names.get(name)
        return "" if content is None else str(content.number)

    def free(self) -> int:
        return self.disk.free()

    def lock(self) -> None:
        if self.disk.locked:
            raise StoreLocked("the simulated store is in use")
        self.disk.locked = True

    def unlock(self) -> None:
        self.disk.locked = False
