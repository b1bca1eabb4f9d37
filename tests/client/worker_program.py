"""A worker as a program: `worker_program.py FACE URL SECONDS`. It prints what it handles.

`begin N` when the handler of message N begins, `end N` when it ends; each takes so many seconds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import ferrymq
from ferrymq import blocking


def tell(line: str) -> None:
    # In one piece, whichever thread it is.
    os.write(1, f"{line}\n".encode())


def main() -> None:
    face, url, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])

    async def handle(delivery: ferrymq.Delivery) -> None:
        tell(f"begin {delivery.message.body}")
        await asyncio.sleep(seconds)
        tell(f"end {delivery.message.body}")

    def handle_in_thread(delivery: blocking.Delivery) -> None:
        tell(f"begin {delivery.message.body}")
        time.sleep(seconds)
        tell(f"end {delivery.message.body}")

    if face == "asyncio":
        asyncio.run(ferrymq.Worker(url, "jobs", handle, concurrency=5).run())
    else:
        blocking.Worker(url, "jobs", handle_in_thread, concurrency=5).run()
    tell("stopped")


if __name__ == "__main__":
    main()
