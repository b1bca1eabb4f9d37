"""The trees that are measured: the files that a benchmark process imports.

The loops that drive the codec and the engine are compiled in one group with them, like the engine's
own modules: only then does a call from a loop cost as much as a call within the engine. That group
is a separate tree, `build/bench`, because the tree for users does not contain the benchmarks. The
broker under test runs from `build/compiled`, exactly as `make run` starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import hatch_build

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ("generated", "runtime", "broker", ".")
_FIND: Final = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"
LOOPS: Final = "bench/loops/*.py"


class Trees:
    """The import paths of benchmark processes, and messages about their builds.

    `loops` is for processes that measure or drive, `broker` for the broker under test;
    `messages` has a line about each build. `pure` is true if nothing is compiled. Without `loops`,
    the loops are not built.
    """

    def __init__(self, *, pure: bool, loops: bool = True) -> None:
        self.messages: list[str] = []
        self.pure = pure or hatch_build.why_not() is not None
        sources = [str((ROOT / folder).resolve()) for folder in SOURCES]
        self.loops: list[str] = sources
        self.broker: list[str] = sources
        if not self.pure:
            if loops:
                self.loops = [str(self._build("bench", loops_config()))]
            self.broker = [str(self._build("compiled", hatch_build.Config.read(ROOT)))]

    @classmethod
    def at(cls, path: list[str]) -> Trees:
        """Return the trees of a process that runs from `path`, which is built already."""
        made = cls(pure=True)
        made.loops = made.broker = path
        made.pure = made.broker_variant() == "pure"
        return made

    def broker_variant(self) -> str:
        """Return the variant of the broker under test: `compiled` or `pure`."""
        return variant_on(self.broker, "ferrymq_broker.nodes.queues.queue")

    def _build(self, name: str, config: hatch_build.Config) -> Path:
        out = ROOT / "build" / name
        self.messages.append(hatch_build.build_tree(config, out))
        # Resolve the link, so that a build in the meantime does not change the measured code.
        return out.resolve()


def loops_config() -> hatch_build.Config:
    """Return the project's build without the broker, plus the loops."""
    config = hatch_build.Config.read(ROOT)
    packages = [name for name in config.packages if not name.startswith("broker/")]
    include = [glob for glob in config.include if not glob.startswith("broker/")]
    return config._replace(
        packages=(*packages, "bench"), include=(*include, LOOPS), hot=(*config.hot, LOOPS)
    )


def variant_on(path: list[str], module: str) -> str:
    """Return the variant of a module in a process that imports from `path`."""
    found = subprocess.run(
        [sys.executable, "-P", "-c", _FIND, module],
        env=environment(path),
        capture_output=True,
        text=True,
        check=True,
    )
    return "pure" if found.stdout.strip().endswith(".py") else "compiled"


def command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module only from the given tree."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment(path: list[str]) -> dict[str, str]:
    """Return the environment of a process that imports from `path` first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"}
