"""Values at any depth of other values: an object that is freed deep inside others must not damage
memory. Classes without a place for the garbage collector (`acyclic` of mypyc) did."""

from __future__ import annotations

import os
import subprocess
import sys

FREE_AT_ALL_DEPTHS = """
from ferrymq.engine.events import OpenReceived
from ferrymq_types.messaging import Header
from ferrymq_types.transport import Open, Transfer
from ferrymq_types_0_9_1.basic import BasicAck

for make in (
    Header,
    lambda: Transfer(handle=1),
    lambda: OpenReceived(Open(container_id="a")),
    lambda: BasicAck(delivery_tag=1),
):
    for depth in range(200):
        held = [make(), make()]
        for _ in range(depth):
            held = [held]
        del held
print("freed")
"""


def test_values_are_freed_at_any_depth() -> None:
    run = subprocess.run(
        [sys.executable, "-c", FREE_AT_ALL_DEPTHS],
        env={**os.environ, "PYTHONMALLOC": "debug"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout) == (0, "freed\n"), run.stderr[-2000:]
