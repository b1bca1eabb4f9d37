"""Figures by label in arrays, which are small, and which another worker can send as they are."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import Any, Final

from ferrymq_broker.monitoring.node_totals import Pause, pause

# Labels that are prefixed in one pass of the event loop.
_AT_ONCE: Final = 10_000


class MetricColumns:
    """A column for each of `names`, with numbers of the `typecode` of `array`, and the labels of
    each row as they are written. `prefix` is written before the labels of this process."""

    def __init__(self, names: Iterable[str], typecode: str, prefix: str = "") -> None:
        self.labels: list[str] = []
        self.values: dict[str, array[Any]] = {name: array(typecode) for name in names}
        self._typecode = typecode
        self._prefix = prefix

    def add_labels(self, labels: str) -> None:
        """Begin a row."""
        self.labels.append(self._prefix + labels)

    def encode(self) -> bytes:
        """Return all rows as bytes for `extend`, which only a process of this machine reads."""
        labels = "\n".join(self.labels).encode()
        head = {"rows": len(self.labels), "size": len(labels), "names": list(self.values)}
        columns = [column.tobytes() for column in self.values.values()]
        return b"".join((json.dumps(head).encode(), b"\n", labels, *columns))

    async def extend(self, data: bytes, prefix: str, pause: Pause = pause) -> None:
        """Add the rows of another process, with `prefix` before their labels."""
        head, _, rest = data.partition(b"\n")
        told = json.loads(head)
        rows, size = told["rows"], told["size"]
        labels = rest[:size].decode().split("\n") if rows else []
        for first in range(0, rows, _AT_ONCE):
            self.labels += [prefix + each for each in labels[first : first + _AT_ONCE]]
            await pause()
        at = size
        for name in told["names"]:
            column = array(self._typecode)
            column.frombytes(rest[at : at + rows * column.itemsize])
            at += rows * column.itemsize
            self.values[name].extend(column)
            await pause()
