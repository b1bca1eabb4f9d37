"""The disk that syncs in 1 ms: what waits for the disk waits longer, and nothing else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.parts.durable import Disk, disks
from bench.tree import Trees, command, environment

# Long enough to be told from what a busy machine does.
SLOW_SECONDS = 0.05
TIMES = 5

CALLS = {
    "fsync": ("O_RDWR", "os.fsync(fd)"),
    "fdatasync": ("O_RDWR", "os.fdatasync(fd)"),
    "pwrite to what is opened for synced writes": ("O_DSYNC", "os.pwrite(fd, b'x', 0)"),
    "pwritev that syncs": ("O_RDWR", "os.pwritev(fd, [b'x'], 0, os.RWF_DSYNC)"),
}
NOT_WAITING = {
    "pwrite": ("O_RDWR", "os.pwrite(fd, b'x', 0)"),
    "pwritev": ("O_RDWR", "os.pwritev(fd, [b'x'], 0, 0)"),
}
SCRIPT = """
import json, os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR | os.{flag})
found = []
for _ in range({times}):
    began = time.perf_counter()
    {call}
    found.append(time.perf_counter() - began)
print(json.dumps(found))
"""


@pytest.fixture
def slow(tmp_path: Path) -> Disk:
    found, why_not = disks(tmp_path)
    if why_not.startswith("no C compiler"):
        pytest.skip(why_not)
    assert not why_not
    assert [disk.slow for disk in found] == [False, True]
    return found[1]


def seconds(folder: Path, flag: str, call: str, **variables: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(flag=flag, call=call, times=TIMES), folder / "file"],
        env={**os.environ, **variables}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_what_waits_for_the_disk_waits_longer(call: str, slow: Disk, tmp_path: Path) -> None:
    preload = slow.preload | {"SLOW_DISK_US": str(int(SLOW_SECONDS * 1e6))}
    assert min(seconds(tmp_path, *CALLS[call], **preload)) >= SLOW_SECONDS


@pytest.mark.parametrize("call", NOT_WAITING)
def test_what_does_not_wait_takes_no_longer(call: str, slow: Disk, tmp_path: Path) -> None:
    preload = slow.preload | {"SLOW_DISK_US": str(int(SLOW_SECONDS * 1e6))}
    assert min(seconds(tmp_path, *NOT_WAITING[call], **preload)) < SLOW_SECONDS


def test_the_bare_disk_is_slowed_down_by_1_ms(slow: Disk, tmp_path: Path) -> None:
    done = subprocess.run(
        command("bench.peers.bare_disk", "answered", str(tmp_path), "1024", "20"),
        env={**environment(Trees(pure=True).loops), **slow.preload},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert len(found) == 20
    assert min(found) >= 0.001
    assert {path.name for path in tmp_path.iterdir()} == {"slow_disk.so"}
