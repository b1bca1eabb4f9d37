"""The memory that the broker can use: of the machine, or of its control group."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# Assumed if the size of the memory cannot be read.
FALLBACK: Final = 1024**3


def available_memory(root: Path = Path("/")) -> int:
    """Return the lower of the machine's memory and the limits of our control groups, in bytes."""
    limits = [*_machine(root), *_groups(root)]
    return min(limits, default=FALLBACK)


def _machine(root: Path) -> list[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemTotal":
            return _numbers(amount.removesuffix("kB"), 1024)
    return []


def _groups(root: Path) -> list[int]:
    """Return the limits of our control group and of those above it: version 2 or 1."""
    found: list[int] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be that of the host; the group is then the root of the tree.
        group = base
        found += _numbers(_read(group / name), 1)
        for part in path.strip("/").split("/"):
            if part in ("", ".", ".."):
                continue
            group = group / part
            found += _numbers(_read(group / name), 1)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _numbers(text: str, unit: int) -> list[int]:
    """Return the number in the text, if there is one: a group without a limit has ``max``."""
    digits = text.strip()
    return [int(digits) * unit] if digits.isascii() and digits.isdigit() else []
