"""Damaged files: found and named, or harmless; never a message that is another one."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.damage import Damage, Finding, Removal, batches, damages, examine
from tests.crash.play import prepare
from tests.crash.processes import NotReady, Starter
from tests.crash.specimen import Writer, make_specimen
from tests.crash.stage import Stage
from tests.support.lanes import amount

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
async def test_damage_is_named_or_harmless(starter: Starter, folder: Path, closed: bool) -> None:
    specimen = await make_specimen(starter, folder, 1, closed=closed)
    wrong: list[Finding] = []
    verdicts: Counter[str] = Counter()
    for number, damage in enumerate(damages(specimen.folder, 1, amount(16, 40))):
        place = folder / f"copy-{number}"
        place.mkdir()
        finding = await examine(starter, specimen, damage, place)
        verdicts[finding.verdict] += 1
        if finding.verdict == "wrong":
            wrong.append(finding)
    assert not wrong, "\n".join(map(str, wrong))
    # Something was damaged that mattered, and something that did not.
    assert verdicts["refused"] > amount(1, 5) and verdicts["exact"] > 0


async def test_what_a_torn_write_leaves_is_no_damage_unless_more_was_written_after_it(
    starter: Starter, folder: Path
) -> None:
    specimen = await make_specimen(starter, folder, 2, closed=False)
    heads = [
        (path.name, at)
        for path in sorted(specimen.folder.glob("journal-*"))
        for at in batches(path.name, path.read_bytes())
    ]
    assert len(heads) > 1
    verdicts = []
    for number, (name, at) in enumerate(heads[-2:]):
        place = folder / f"copy-{number}"
        place.mkdir()
        finding = await examine(starter, specimen, Damage(name, at, bytes(4096)), place)
        verdicts.append(finding.verdict)
    # The last one may have had nothing in it that clients can see.
    assert verdicts[0] == "refused" and verdicts[1] in ("cut", "exact")


KILLED = [
    Removal("journal-*", -1),
    Removal("journal-*"),
    Removal("*-*"),
    Removal("data.mdb"),
    Removal("head"),
    Removal("format"),
]
CLOSED = [Removal("data.mdb"), Removal("head"), Removal("format")]
UNNEEDED = [Removal("spare-*"), Removal("lock")]


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
async def test_a_file_that_is_missing_is_named_or_not_missed(
    starter: Starter, folder: Path, closed: bool
) -> None:
    specimen = await make_specimen(starter, folder, 3, closed=closed)
    needed = CLOSED if closed else KILLED
    for number, removal in enumerate((*needed, *UNNEEDED)):
        place = folder / f"copy-{number}"
        place.mkdir()
        finding = await examine(starter, specimen, removal, place)
        expected = "refused" if removal in needed else "exact"
        assert finding.verdict == expected, str(finding)


async def test_a_copy_of_a_store_in_use_is_refused(starter: Starter, folder: Path) -> None:
    stage = Stage(starter, 4, folder, segment_bytes=64 * 1024)
    await stage.start()
    await prepare(stage)
    async with stage.connect("writer") as connection:
        work = asyncio.create_task(Writer(stage, "writer").work(connection))
        for number in range(4):
            place = folder / f"copy-{number}"
            await asyncio.to_thread(copy, stage.data, place / "data")
            other = Stage(starter, 4, place, data=place / "data")
            with pytest.raises(NotReady, match="a copy of a store that was not closed"):
                await other.begin().ready()
            await other.end("refused")
        await work
    await stage.end("over")


def copy(source: Path, target: Path) -> None:
    """Copy files one after the other, whatever becomes of them meanwhile."""
    target.mkdir(parents=True)
    for file in list(source.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(file, target)
