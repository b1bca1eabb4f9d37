"""What the clients of a run did and saw, in that order.

Every entry is written when it is known: an intention before the bytes leave, an answer when the
client has it. `checks` tells from the entries alone whether the broker has kept its word, so a
ledger that was kept can be judged again.

| entry | about | means |
|---|---|---|
| `sent` | `id`, `to`, `txn`, `due`, `volatile`, `once` | about to be sent to these nodes |
| `answered` | `id`, `outcome` | the broker's outcome of what was sent |
| `got` | `id`, `node`, `drained`, `once`, `lease` | a client has received it |
| `read` | `id`, `node`, `partition`, `offset`, `time` | a client has read a record of a stream |
| `leased` | `lease`, `node`, `until` | a client has a lease; it lapses then |
| `ends` | `lease`, `node`, `lapsed` | about to release a lease; or it has lapsed |
| `overdue` | `lease`, `node` | a lease could be read after its time |
| `gives` | `id`, `node`, `outcome`, `txn`, `key`, `lease` | a client is about to give an outcome |
| `confirmed` | `id`, `node`, `key` | the broker has settled after the outcome |
| `unsaid` | `id`, `node`, `key` | the outcome never left |
| `commits` | `txn` | a commit is about to be asked for; without it the transaction is void |
| `committed`, `rolled-back` | `txn` | the answer to that |
| `declares`, `declared` | `type`, `name`, `settings` | about to make an entity; it is made |
| `deletes`, `deleted` | `type`, `name` | about to delete it; it is gone |
| `found`, `missing` | `type`, `name`, `settings` | what is there in the end |
| `drains` | | from here on everything there is is received |
| `dies` | `how` | the broker was killed, or the disk fell away, or it ended |
| `lives` | `seconds` | it is ready again |
| `disturbs`, `mended` | `kind`, `leader` | about to do something to a cluster; all is undone |
| `combines` | `faults` | that are two things at once |
| `wrong` | `what` | something happened that must not happen, whatever was sent |
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO


class Entry(NamedTuple):
    """What happened, when (milliseconds since the epoch), and to what."""

    what: str
    at: int
    about: dict[str, Any]


class Ledger:
    """Entries in memory, and in a file if there is a `path`."""

    def __init__(self, path: Path | None = None) -> None:
        self.entries: list[Entry] = []
        self.counts: Counter[str] = Counter()
        self._file: TextIO | None = None if path is None else path.open("a", encoding="utf-8")

    def write(self, what: str, /, **about: Any) -> None:
        """Write an entry."""
        entry = Entry(what, time.time_ns() // 1_000_000, about)
        self.entries.append(entry)
        self.counts[what] += 1
        if self._file is not None:
            self._file.write(json.dumps(entry) + "\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    @staticmethod
    def load(path: Path) -> list[Entry]:
        """The entries of a file."""
        with path.open(encoding="utf-8") as lines:
            return [Entry(*json.loads(line)) for line in lines]


def of(entries: Iterable[Entry], *kinds: str) -> Iterator[tuple[int, Entry]]:
    """The entries of these kinds, with their places."""
    for place, entry in enumerate(entries):
        if entry.what in kinds:
            yield place, entry


def summary(entries: Iterable[Entry]) -> dict[str, int]:
    """How many there are of what matters."""
    counts: Counter[str] = Counter()
    for entry in entries:
        about = entry.about
        match entry.what:
            case "answered":
                counts[f"sent and {about['outcome']}"] += 1
            case "got":
                counts["drained" if about.get("drained") else "received"] += 1
            case "gives":
                counts[f"given {about['outcome']}"] += 1
            case "dies":
                counts[about["how"]] += 1
            case "mended":
                counts[about["kind"]] += 1
            case other:
                counts[other] += 1
    return dict(sorted(counts.items()))
