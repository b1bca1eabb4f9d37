"""Clocks that are set while processes run: the time of day is shifted, and no other clock."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("stepped_clock.c")
# For `cc`, which has to be there for the compiled build too.
_COMPILER: Final = "cc"


def why_no_clocks() -> str | None:
    """Why clocks cannot be set; None if they can."""
    return None if shutil.which(_COMPILER) else "there is no C compiler for the library of clocks"


class ClockLibrary:
    """The library that processes with a clock of their own have to load, built in a folder, which
    is for the clocks too. The user of the database has to be able to read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "stepped_clock.so"
        options = ["-shared", "-fPIC", "-O2", "-Wall", "-o", str(self._path)]
        subprocess.run([_COMPILER, *options, str(_SOURCE), "-ldl"], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process whose clock may be set."""
        return {"LD_PRELOAD": str(self._path)}


class SteppedClock:
    """The time of day of some processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0.0)
        # Everybody may read it: the servers of the database run as another user.
        path.chmod(0o644)

    @property
    def environment(self) -> dict[str, str]:
        """What a process with this clock has in its environment, beside the library."""
        return {"FERRYMQ_TEST_CLOCK": str(self._path)}

    def set(self, seconds: float) -> None:
        """Shift the time by so many seconds from the true one."""
        # Written in place: the processes have mapped the file.
        with self._path.open("r+b" if self._path.exists() else "w+b", buffering=0) as file:
            file.write(struct.pack("=q", round(seconds * 1e9)))
