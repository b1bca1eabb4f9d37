"""Inputs that reach something: kept in the repository, a file a target, and as files while a run
goes on.

A file is one input after the other, each behind its length in four bytes. What was found once has
a name and a file of its own, in `findings/TARGET/`, and is never thrown away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_HERE = Path(__file__).resolve().parent
FOLDER = _HERE / "corpus"
FINDINGS = _HERE / "findings"

# An input that is longer is not kept: what it shows a shorter one can show.
LONGEST = 16384


def kept(target: str) -> list[bytes]:
    """The inputs of the repository for a target, the shortest first."""
    path = FOLDER / f"{target}.corpus"
    return unpack(path.read_bytes()) if path.exists() else []


def findings(target: str) -> dict[str, bytes]:
    """What was found once, by its name."""
    folder = FINDINGS / target
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*")) if path.is_file()}


def keep(target: str, inputs: Iterable[bytes]) -> Path:
    """Make these the inputs of the repository for a target."""
    path = FOLDER / f"{target}.corpus"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack(inputs))
    return path


def pack(inputs: Iterable[bytes]) -> bytes:
    """Inputs as they stand in a file: each once, the shortest first."""
    ordered = sorted(set(inputs), key=lambda data: (len(data), data))
    return b"".join([len(data).to_bytes(4, "big") + data for data in ordered])


def unpack(packed: bytes) -> list[bytes]:
    """The inputs of a file. Raises ValueError for one that is cut off."""
    inputs = []
    at = 0
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise ValueError(f"the corpus is cut off at byte {at}")
        inputs.append(packed[at + 4 : end])
        at = end
    return inputs


def spread(folder: Path, inputs: Iterable[bytes]) -> None:
    """Write inputs as files, named by their content, as libFuzzer does."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        path = folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()
        if not path.exists():
            path.write_bytes(data)


def collect(folder: Path) -> list[bytes]:
    """The inputs in a folder."""
    if not folder.is_dir():
        return []
    return [path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()]
