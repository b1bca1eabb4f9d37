"""Store files that are not as they were written: bits that are different, ends that are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from ferrymq import AmqpError
from ferrymq_broker.store.journal_frames import BLOCK, HEADER_BYTES, MAGIC
from ferrymq_broker.store.segments import parse_journal
from tests.crash.checks import check
from tests.crash.draining import drain
from tests.crash.history import Violation
from tests.crash.processes import NotReady, Starter
from tests.crash.specimen import Specimen
from tests.crash.stage import Stage

_PAGE: Final = 4096
# Files that a copy does not have, or that nobody reads.
_UNREAD: Final = ("lock", "in-use")


@dataclass(frozen=True)
class Damage:
    """What is done to a file: bytes at an offset become others, or the file ends there."""

    name: str
    offset: int
    # None: the file ends here.
    change: bytes | None

    def __str__(self) -> str:
        if self.change is None:
            return f"{self.name} ends at {self.offset}"
        return f"{self.name} at {self.offset}: {self.change[:8].hex()} ({len(self.change)} bytes)"

    def apply(self, folder: Path) -> None:
        """Do it."""
        with (folder / self.name).open("r+b") as file:
            if self.change is None:
                file.truncate(self.offset)
            else:
                file.seek(self.offset)
                file.write(self.change)

    def hides_the_last_batch(self, data: bytes) -> bool:
        """Whether it changes the head of the last batch of a segment of the journal with `data`.

        What is left is what a crash leaves while this batch is being written: nothing in the files
        tells the one from the other, and no broker could.
        """
        heads = batches(self.name, data)
        if not heads or self.change is None:
            return False
        changed = data[: self.offset] + self.change + data[self.offset + len(self.change) :]
        head = slice(heads[-1], heads[-1] + HEADER_BYTES)
        return changed[head] != data[head]


@dataclass(frozen=True)
class Removal:
    """Files of a store that are gone: those of a pattern, in order, or some of them."""

    pattern: str
    first: int | None = None
    end: int | None = None
    # What a broker that misses them says.
    name: str = "missing"

    def __str__(self) -> str:
        return f"{self.pattern}[{self.first}:{self.end}] removed"

    def apply(self, folder: Path) -> None:
        """Do it."""
        files = sorted(folder.glob(self.pattern))[self.first : self.end]
        assert files, f"there is no {self.pattern}"
        for file in files:
            file.unlink()


def batches(name: str, data: bytes) -> list[int]:
    """Where batches begin in a file, if it is a segment of the journal."""
    journal = parse_journal(name)
    if journal is None:
        return []
    begins = MAGIC + journal[0].to_bytes(8, "big")
    return [at for at in range(0, len(data), BLOCK) if data.startswith(begins, at)]


def damages(folder: Path, seed: int, count: int) -> Iterator[Damage]:
    """Things to do to the files of a store: the beginning of every page, its header and its middle,
    zeros for a page, a page in another's place, ends at and beside the limits of pages; and bits
    anywhere in what is not zero."""
    random = Random(f"{seed} damage")
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    files = {name: data for name, data in files.items() if data and name not in _UNREAD}
    aimed = [d for name, data in files.items() for d in _aimed(name, data, random)]
    random.shuffle(aimed)
    for number in range(count):
        if aimed and number % 2:
            yield aimed.pop()
        else:
            yield _flip(*random.choice(list(files.items())), random)


def _flip(name: str, data: bytes, random: Random) -> Damage:
    """A bit, in a byte that says something if possible."""
    offset = random.randrange(len(data))
    for _ in range(20):
        if data[offset]:
            break
        offset = random.randrange(len(data))
    return Damage(name, offset, bytes([data[offset] ^ 1 << random.randrange(8)]))


def _aimed(name: str, data: bytes, random: Random) -> Iterator[Damage]:
    pages = [at for at in range(0, len(data), _PAGE) if any(data[at : at + _PAGE])]
    for at in pages:
        # Heads of frames and of LMDB's pages are here: magic, numbers, lengths, flags.
        offset = min(at + random.randrange(40), len(data) - 1)
        yield Damage(name, offset, bytes([data[offset] ^ 1 << random.randrange(8)]))
        offset = min(at + random.randrange(_PAGE), len(data) - 1)
        yield Damage(name, offset, bytes([data[offset] ^ 0xFF]))
        yield Damage(name, at, bytes(len(data[at : at + _PAGE])))
        other = random.choice(pages)
        if data[other : other + _PAGE] != data[at : at + _PAGE]:
            yield Damage(name, at, data[other : other + _PAGE])
        yield Damage(name, at, None)
        yield Damage(name, min(at + 1 + random.randrange(_PAGE), len(data)) - 1, None)


@dataclass
class Finding:
    """What a broker made of a damaged store.

    `verdict`: ``refused`` with a reason, ``exact``, ``cut`` if it left out the end of the journal
    and said so, or could not see that there was more; ``wrong`` is everything else.
    """

    damage: Damage | Removal
    verdict: str
    said: str
    violations: list[Violation]

    def __str__(self) -> str:
        shown = "".join(f"\n    {v.rule}: {v.what[:300]}" for v in self.violations[:3])
        return f"{self.damage}: {self.verdict}: {self.said[-400:]}{shown}"


async def examine(
    starter: Starter, specimen: Specimen, damage: Damage | Removal, folder: Path
) -> Finding:
    """Start a broker with a damaged copy of the specimen and compare all it has."""
    data = specimen.copy(folder / "data")
    damage.apply(data)
    stage = Stage(starter, specimen.seed, folder, data=data)
    stage.ledger.entries[:] = specimen.entries
    said, refused = "", False
    life = stage.begin()
    try:
        await life.ready()
        stage.ledger.write("lives", seconds=0)
        try:
            async with asyncio.timeout(20):
                await drain(stage)
        except (AmqpError, TimeoutError, OSError) as error:
            # It may have come upon the damage only now.
            said = f"{error!r} "
            try:
                await life.ended(5)
                refused = True
            except TimeoutError:
                stage.wrong(f"the broker lives, but: {error!r}")
    except NotReady:
        refused = True
    said += life.said()
    status = await stage.end("over") if life.status is None else life.status
    stage.life = None
    stage.ledger.close()
    if refused:
        named = damage.name in said
        if status > 0 and named and "Traceback" not in said:
            return Finding(damage, "refused", said, [])
        return Finding(damage, "wrong", said, [Violation("refused", f"status {status}, unnamed")])
    violations = check(stage.ledger.entries)
    if not violations:
        return Finding(damage, "exact", said, [])
    cut = ("not written completely" in said and damage.name in said) or (
        isinstance(damage, Damage)
        and damage.hides_the_last_batch((specimen.folder / damage.name).read_bytes())
    )
    rules = {violation.rule for violation in violations}
    if cut and rules <= {"lost", "half", "redelivered", "ghost", "gap"}:
        return Finding(damage, "cut", said, violations)
    return Finding(damage, "wrong", said, violations)
