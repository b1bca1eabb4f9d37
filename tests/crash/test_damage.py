"""Damaged files: found and named, or harmless; never a message that is another one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.damage import Damage, Finding, batches, damages, examine
from tests.crash.processes import Starter
from tests.crash.specimen import make_specimen

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
async def test_damage_is_named_or_harmless(starter: Starter, folder: Path, closed: bool) -> None:
    specimen = await make_specimen(starter, folder, 1, closed=closed)
    wrong: list[Finding] = []
    verdicts: Counter[str] = Counter()
    for number, damage in enumerate(damages(specimen.folder, 1, 40)):
        place = folder / f"copy-{number}"
        place.mkdir()
        finding = await examine(starter, specimen, damage, place)
        verdicts[finding.verdict] += 1
        if finding.verdict == "wrong":
            wrong.append(finding)
    assert not wrong, "\n".join(map(str, wrong))
    # Something was damaged that mattered, and something that did not.
    assert verdicts["refused"] > 5 and verdicts["exact"] > 0


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
