"""Passes of the broker's event loop, measured within its process by a small library."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_COUNTERS: Final = struct.Struct("=QQQ")
_PAGE: Final = 4096


def build_library(folder: Path) -> Path | None:
    """Build the library for LD_PRELOAD from `passes.c`; return None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "passes.so"
    source = Path(__file__).with_name("passes.c")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return None if built.returncode else library


class Passes:
    """The counters of one broker's event loop, in a file that the broker maps too."""

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(bytes(_PAGE))
        self.environment = {"LD_PRELOAD": str(library), "STANDSTILL_PASSES": str(file)}
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _PAGE)

    def reset(self) -> None:
        """Start counting again."""
        _COUNTERS.pack_into(self._map, 0, 0, 0, 0)

    def longest(self) -> float:
        """Return the longest pass since `reset`, in seconds of processor time."""
        return float(_COUNTERS.unpack_from(self._map, 0)[0]) / 1e9

    def count(self) -> int:
        """Return the number of passes since `reset`."""
        return int(_COUNTERS.unpack_from(self._map, 0)[1])

    def long_ones(self) -> int:
        """Return the number of passes that took 20 ms or more."""
        return int(_COUNTERS.unpack_from(self._map, 0)[2])

    def close(self) -> None:
        """Close the file."""
        self._map.close()
