"""The speed of the bare disk: bytes are appended to a file and synced, repeatedly.

`python -m bench.peers.bare_disk append FOLDER BYTES 0` prints the average seconds of a batch of
BYTES bytes, measured for at least a second. `alone FOLDER BYTES COUNT` prints the seconds of each
of COUNT batches.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

SECONDS = 1.0


def main() -> None:
    """Run the command in the module's docstring."""
    what, folder, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    data = os.urandom(size)
    descriptor, path = tempfile.mkstemp(dir=folder)
    try:
        for _ in range(20):
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        if what == "append":
            batches = 0
            began = time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                os.write(descriptor, data)
                os.fdatasync(descriptor)
                batches += 1
            print(json.dumps([(time.perf_counter() - began) / batches]))
        else:
            found: list[float] = []
            for _ in range(count):
                began = time.perf_counter()
                os.write(descriptor, data)
                os.fdatasync(descriptor)
                found.append(time.perf_counter() - began)
            print(json.dumps(found))
    finally:
        os.close(descriptor)
        os.unlink(path)


if __name__ == "__main__":
    main()
