"""A harmless client in a separate process, which measures how long it waits.

`python -m bench.standstill.witness PORT PID` sends a message to its own queue, waits until the same
message comes back, and repeats that after a pause. After `begin` on its standard input it counts;
after `end` it prints a JSON object and exits.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path
from typing import Final

from bench.client import Peer
from bench.encoding import data_section

# Seconds between two messages, so that the broker has time for other clients.
PAUSE: Final = 0.0005
_MESSAGE: Final = data_section(b"ping")


def processor_time(pid: int) -> float:
    """Return the processor time of a process's main thread in seconds. Raises `OSError`."""
    text = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii")
    return int(text.split()[0]) / 1e9


def main() -> None:
    """Send and receive messages until `end` is read."""
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    peer = Peer(port, "witness")
    session = peer.session()
    to = peer.sender(session, "witness")
    peer.supplied([to])
    peer.receiver(session, "witness")
    peer.flush()
    counting = False
    count = 0
    silence = worst = 0.0
    while True:
        if select.select([sys.stdin], [], [], PAUSE)[0]:
            word = sys.stdin.readline().strip()
            if word != "begin":
                break
            counting = True
            count, silence, worst = 0, 0.0, 0.0
            print("counting", flush=True)
        awaited = peer.received + 1
        peer.until(lambda: to.credit > 0)
        began, used = time.perf_counter(), processor_time(pid)
        to.send(_MESSAGE)
        peer.until(lambda awaited=awaited: peer.received >= awaited)  # type: ignore[misc]
        if counting:
            count += 1
            silence = max(silence, time.perf_counter() - began)
            worst = max(worst, processor_time(pid) - used)
    peer.end()
    print(json.dumps({"messages": count, "silence": silence, "processor": worst}), flush=True)


if __name__ == "__main__":
    main()
