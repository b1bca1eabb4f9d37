"""How much memory there is for the broker: of the machine, or of the control group it runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# What is taken for granted where nothing can be found out.
FALLBACK: Final = 1024**3


def available_memory(root: Path = Path("/")) -> int:
    """Bytes: the least of the machine's memory and the limits of the control groups around us."""
    limits = [*_machine(root), *_groups(root)]
    return min(limits, default=FALLBACK)


def _machine(root: Path) -> list[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, amount = line.partition(":")
        if name == "MemTotal":
            return _numbers(amount.removesuffix("kB"), 1024)
    return []


def _groups(root: Path) -> list[int]:
    """The limits of our group and of all that it is in: version 2 of the interface, or 1."""
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
    """The number in the text, if it is one: a group without a limit says ``max``."""
    digits = text.strip()
    return [int(digits) * unit] if digits.isascii() and digits.isdigit() else []
