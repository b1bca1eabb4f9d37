"""Messages sent one at a time, each when the previous one is answered.

`python -m bench.peers.one_by_one PORT BYTES COUNT HEAD` prints for each message the time between
transfer and outcome, in µs. `HEAD` is the header of the messages, in hexadecimal digits.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time

from bench.loops.load import Plan, Sender
from bench.parts.latency import WARM_UP, connect


def main() -> None:
    """Run the command in the module's docstring."""
    port, size, count, head = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    total = count + WARM_UP
    plan = Plan(
        address=f"bench-alone-{os.getpid()}",
        count=total,
        warm_up=0,
        size=size,
        in_flight=1,
        credit=500,
        settled=False,
        run=int.from_bytes(os.urandom(6), "big"),
        heads=[bytes.fromhex(head)],
    )
    sender, pipe = Sender(plan), connect(port)
    while not sender.attached or sender.link is None or sender.link.credit == 0:
        pipe.sendall(sender.take())
        sender.receive(pipe.recv(65536))
    link = sender.link
    found: list[float] = []
    gc.disable()
    for _ in range(total):
        sender.send_one(link)
        frame = sender.take()
        began = time.perf_counter_ns()
        pipe.sendall(frame)
        while sender.settled < sender.sent:
            sender.receive(pipe.recv(65536))
        found.append((time.perf_counter_ns() - began) / 1000)
        while link.credit == 0:
            sender.receive(pipe.recv(65536))
        # Other output of the engine, such as a flow, is not timed.
        rest = sender.take()
        if rest:
            pipe.sendall(rest)
    sender.close()
    pipe.sendall(sender.take())
    pipe.close()
    print(json.dumps(found[WARM_UP:]))


if __name__ == "__main__":
    main()
