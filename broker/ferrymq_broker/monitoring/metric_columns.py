"""Figures by label in arrays, which are small, and which another worker can send as they are."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import Any, Final

from ferrymq_broker.monitoring.node_totals import Pause, pause

# Labels that are handled in one pass of the event loop.
_AT_ONCE: Final = 10_000


class MetricColumns:
    """A column for each of `names`, with numbers of the `typecode` of `array`, and the labels of
    each row as they are written. `prefix` is written before the labels of this process."""

    def __init__(self, names: Iterable[str], typecode: str, prefix: str = "") -> None:
        self.labels: list[str] = []
        self.values: dict[str, array[Any]] = {name: array(typecode) for name in names}
        self._prefix = prefix

    def add_labels(self, labels: str) -> None:
        """Begin a row."""
        self.labels.append(self._prefix + labels)

    async def encode(self, pause: Pause = pause) -> bytes:
        """Return all rows as bytes for `extend`, which only a process of this machine reads."""
        pieces: list[bytes] = []
        for first in range(0, len(self.labels), _AT_ONCE):
            pieces.append("\n".join(self.labels[first : first + _AT_ONCE]).encode())
            await pause()
        head = {
            "rows": len(self.labels),
            "sizes": [len(piece) for piece in pieces],
            "names": list(self.values),
        }
        for column in self.values.values():
            pieces.append(column.tobytes())
            await pause()
        return b"".join((json.dumps(head).encode(), b"\n", *pieces))

    async def extend(self, data: bytes, start: int, prefix: str, pause: Pause = pause) -> None:
        """Add the rows of another process, with `prefix` before their labels. They begin at the
        place `start` in the data."""
        at = data.index(b"\n", start) + 1
        told = json.loads(data[start:at])
        for size in told["sizes"]:
            labels = data[at : at + size].decode().split("\n")
            self.labels += [prefix + each for each in labels]
            at += size
            await pause()
        rest = memoryview(data)
        for name in told["names"]:
            column = self.values[name]
            size = told["rows"] * column.itemsize
            column.frombytes(rest[at : at + size])
            at += size
            await pause()
