"""A round: one data directory, many deaths, and then the ledger is read."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ferrymq import AmqpError
from tests.crash.checks import check
from tests.crash.draining import drain
from tests.crash.history import Violation
from tests.crash.ledger import summary
from tests.crash.play import cast, playing, prepare
from tests.crash.processes import NotReady
from tests.crash.stage import Stage

# From a broker that lives, under load, to one that lives again.
Death: TypeAlias = Callable[[Stage], Awaitable[None]]

# A round that takes longer than this for each life hangs.
_LONGEST = 20.0


@dataclass
class Result:
    """What a round has shown: nothing, or violations, and then its `folder` is kept."""

    seed: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    seconds: float = 0.0
    # Of fail-overs: what was done, and the milliseconds for which clients had no service.
    outages: list[tuple[str, int]] = field(default_factory=list)

    def describe(self, limit: int = 10) -> str:
        """The violations, for a person."""
        lines = [f"  {v.rule}: {v.what}" for v in self.violations[:limit]]
        more = len(self.violations) - limit
        if more > 0:
            lines.append(f"  and {more} more")
        return "\n".join([f"seed {self.seed}, kept in {self.folder}", *lines])


async def play_round(stage: Stage, deaths: Sequence[Death]) -> Result:
    """Let clients work while the broker dies and comes back, then look at everything twice, with
    a kill in between, and judge."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(_LONGEST * (len(deaths) + 5)):
            await stage.start()
            await prepare(stage)
            async with playing(cast(stage)):
                for death in deaths:
                    await death(stage)
                await asyncio.sleep(0.05)
            await drain(stage)
            await stage.end("killed")
            await stage.start()
            await drain(stage)
    except NotReady as error:
        stage.wrong(f"the broker did not start: {error}")
    except AmqpError as error:
        stage.wrong(f"the round was broken off: {error!r}")
    except TimeoutError as error:
        stage.wrong(f"the round came to no end: {error!r}")
    finally:
        if stage.life is not None:
            await stage.end("over")
        stage.ledger.close()
    result = Result(stage.seed, stage.folder)
    result.violations = check(stage.ledger.entries)
    result.counts.update(summary(stage.ledger.entries))
    result.seconds = loop.time() - began
    return result


def tidy(result: Result) -> Result:
    """Remove the folder of a round in which nothing was wrong."""
    if not result.violations:
        shutil.rmtree(result.folder)
    return result
