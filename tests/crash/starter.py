"""Starts brokers in a few milliseconds: loads their modules once, then forks.

    python -m tests.crash.starter FD

What runs in the fork is `ferrymq serve` as it is. FD is a socket on which requests come: to fork a
broker with these arguments, environment and files for its output, and to say how one has ended.
When the other end is gone, the brokers are ended with it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import ferrymq_broker
from ferrymq_broker.cli import main as ferrymq

SIZE = 65536


def load() -> None:
    """Import what a broker would."""
    root = Path(ferrymq_broker.__file__).parent
    for folder in ("cli", "server", "store", "recovery", "replication"):
        for path in sorted((root / folder).rglob("*.py")):
            name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            import_module(name.removesuffix(".__init__"))
    for name in ("uvloop", "lmdb", "google_crc32c", "psycopg"):
        import_module(name)
    gc.collect()
    gc.freeze()


def become(request: dict[str, object], files: list[int]) -> NoReturn:
    """The fork: a broker, once it is let go."""
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list) and isinstance(environment, dict)
    output, errors, *gate = files
    os.setsid()
    for number, file in ((1, output), (2, errors)):
        os.dup2(file, number)
        os.close(file)
    if gate:
        # Whoever wants to trace it from the first call says when.
        os.read(gate[0], 1)
        os.close(gate[0])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    sys.argv = ["ferrymq", *arguments]
    status = 0
    try:
        ferrymq()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # As an interpreter ends, but for what is on the stack of this one.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve(control: socket.socket) -> None:
    """Answer requests until there are none."""
    children: set[int] = set()
    try:
        while True:
            data, files, _, _ = socket.recv_fds(control, SIZE, 3)
            if not data:
                return
            request = json.loads(data)
            if "reap" in request:
                pid, status = os.waitpid(request["reap"], 0)
                children.discard(pid)
                control.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
                continue
            pid = os.fork()
            if pid == 0:
                control.close()
                become(request, files)
            children.add(pid)
            for file in files:
                os.close(file)
            control.send(json.dumps(pid).encode())
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    load()
    # Ctrl-C is for the harness, which ends this process by going.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=int(sys.argv[1]))
    requests.send(b"loaded")
    serve(requests)
