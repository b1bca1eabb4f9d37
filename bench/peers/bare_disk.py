"""The speed of the bare disk: bytes are appended to a file and synced, repeatedly.

`python -m bench.peers.bare_disk append FOLDER BYTES 0` prints the average seconds of a batch of
BYTES bytes, measured for at least a second. `answered FOLDER BYTES COUNT` sends COUNT batches one
after another to a process that appends and syncs each and sends a byte back; it prints the seconds
from each batch to its byte.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time

SECONDS = 1.0
WARM_UP = 20


def main() -> None:
    """Run the command in the module's docstring."""
    what, folder, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    data = os.urandom(size)
    descriptor, path = tempfile.mkstemp(dir=folder)
    os.unlink(path)
    if what == "append":
        print(json.dumps([append(descriptor, data)]))
    else:
        print(json.dumps(answered(descriptor, data, WARM_UP + count)[WARM_UP:]))


def append(descriptor: int, data: bytes) -> float:
    """Return the average seconds in which the data is appended and synced."""
    for _ in range(WARM_UP):
        os.write(descriptor, data)
        os.fdatasync(descriptor)
    batches = 0
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        os.write(descriptor, data)
        os.fdatasync(descriptor)
        batches += 1
    return (time.perf_counter() - began) / batches


def answered(descriptor: int, data: bytes, count: int) -> list[float]:
    """Return the seconds of each of `count` batches, from sending it until it is answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if child == 0:
            try:
                _answer(listener.accept()[0], descriptor, len(data))
            finally:
                os._exit(0)
        found: list[float] = []
        with socket.create_connection(listener.getsockname()) as pipe:
            pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(count):
                began = time.perf_counter()
                pipe.sendall(data)
                if not pipe.recv(1):
                    raise OSError("the disk took no more")
                found.append(time.perf_counter() - began)
    os.waitpid(child, 0)
    return found


def _answer(pipe: socket.socket, descriptor: int, size: int) -> None:
    pipe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    left = size
    while data := pipe.recv(left):
        os.write(descriptor, data)
        left -= len(data)
        if left == 0:
            os.fdatasync(descriptor)
            pipe.sendall(b"\0")
            left = size


if __name__ == "__main__":
    main()
