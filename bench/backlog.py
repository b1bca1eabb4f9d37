"""The cost of a long paged queue: memory, disk and processor time.

    python -m bench.backlog [COUNT] [--path DIR ...]

The benchmark puts COUNT durable messages of 1 KiB into a queue of a broker that may keep 64 MiB of
messages in memory. It stops the broker properly and starts it again, kills it and starts it again,
and drains the queue. The memory of a message is the memory that the second half of the messages
adds, divided by their number. The broker runs from `build/compiled`, or from the import path given
by `--path`, so that another checkout can be measured with the same client.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.client import drain, fill
from bench.parts.memory import DURABLE, PAGE_OUT, SIZE
from bench.process import Server, durable_broker
from bench.tree import ROOT, Trees

COUNT: Final = 1_000_000
QUEUE: Final = "backlog"
# Seconds in which an idle broker applies its journal and gives space back.
PATIENCE: Final = 20.0
# The kernel's unit for counts of bytes written to a disk.
_SECTOR: Final = 512


def main() -> None:
    """Measure, and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=COUNT)
    parser.add_argument("--path", nargs="*", default=[])
    options = parser.parse_args()
    trees = Trees.at(options.path) if options.path else Trees(pure=False, loops=False)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
        measure(trees, Path(folder), options.count)


def measure(trees: Trees, folder: Path, count: int) -> None:
    """Measure everything, with a store in `folder`."""
    config = folder / "paging.toml"
    config.write_text(f"[store]\npage-out = {PAGE_OUT}\n", "utf-8")
    data = folder / "data"
    records = data / "data.mdb"
    payload = count * SIZE
    print(f"{count} messages of {SIZE} B, broker {trees.broker_variant()}")
    with durable_broker(trees, data, {}, config) as server:
        os.sync()
        before, device = written(server), device_written(folder)
        fill(server.port, QUEUE, DURABLE, count // 2)
        half = anonymous(server)
        fill(server.port, QUEUE, DURABLE, count - count // 2)
        show("memory of a message", (anonymous(server) - half) / (count - count // 2), "B")
        show("memory", anonymous(server) / 2**20, "MiB")
        show("processor time to take one in", cpu(server) / count * 1e6, "µs")
        os.sync()
        show("written, by payload", (written(server) - before) / payload, "")
        show("by the machine's disk", (device_written(folder) - device) / payload, "")
    show("records on disk, by payload", allocated(records) / payload, "")
    with durable_broker(trees, data, {}, config) as server:
        show("start after a stop, processor time", cpu(server), "s")
        show("memory then", anonymous(server) / 2**20, "MiB")
        server.kill()
    with durable_broker(trees, data, {}, config) as server:
        show("start after a kill, processor time", cpu(server), "s")
        used = cpu(server)
        drain(server.port, QUEUE, count)
        show("processor time to hand one out", (cpu(server) - used) / count * 1e6, "µs")
        end = time.monotonic() + PATIENCE
        while allocated(records) > payload // 20 and time.monotonic() < end:
            time.sleep(0.5)
        show("records on disk when drained", allocated(records) / 2**20, "MiB")
        show("memory when drained", anonymous(server) / 2**20, "MiB")


def show(what: str, figure: float, unit: str) -> None:
    """Print a figure."""
    print(f"{what:40} {figure:10.2f} {unit}", flush=True)


def cpu(server: Server) -> float:
    """Return the broker's processor time. Raises `OSError` if the system does not report it."""
    used = server.cpu_seconds()
    if used is None:
        raise OSError("this system does not report the processor time of a process")
    return used


def anonymous(server: Server) -> int:
    """Return the broker's anonymous memory. Raises `OSError` if the system does not report it."""
    return 1024 * _number(Path(f"/proc/{server.pid}/status"), "RssAnon:")


def written(server: Server) -> int:
    """Return the bytes that the broker has passed to the system to write, few of them to sockets
    while a queue is filled. `write_bytes` is no alternative: it counts whole folios, of which a
    file system writes only the changed blocks, and with large folios it is three times as high."""
    return _number(Path(f"/proc/{server.pid}/io"), "wchar:")


def device_written(folder: Path) -> int:
    """Return the bytes written by all processes to the disk that holds a folder."""
    number = folder.stat().st_dev
    stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")
    return int(stat.read_text("ascii").split()[6]) * _SECTOR


def allocated(path: Path) -> int:
    """Return the bytes that a file occupies on the disk."""
    return path.stat().st_blocks * 512


def _number(path: Path, name: str) -> int:
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise OSError(f"{path} does not say {name}")


if __name__ == "__main__":
    main()
