"""The heap of the C library keeps memory for large blocks, and returns it in slices."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MIB = 1 << 20
# The heap belongs to the process, so each test has its own. It fills 300 MiB and frees them.
PROGRAM = """
import json, mmap, sys
from pathlib import Path
from ferrymq.heap import process_heap

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

heap = process_heap()
if heap is None:
    sys.exit(3)
assert list(heap.shrink()) == []
before = resident()
blocks = [b"x" * (1 << 20) for _ in range(300)]
blocks.clear()
freed = resident()
slices = list(heap.shrink())
print(json.dumps([before, freed, resident(), slices, list(heap.shrink())]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another C library")
def test_freed_blocks_stay_until_they_are_returned_in_slices() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        pytest.skip("another C library")
    assert done.returncode == 0, done.stderr
    before, freed, after, slices, then = json.loads(done.stdout)
    assert freed - before > 290 * MIB
    assert 100 * MIB < after - before < 150 * MIB
    assert sum(slices) > 150 * MIB
    assert max(slices) <= 33 * MIB
    assert then == []
