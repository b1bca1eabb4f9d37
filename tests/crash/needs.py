"""What these tests need of the machine, and why it may not be there."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.crash.disk import TOOLS, Disk
from tests.support.postgresql import find_programs


@functools.cache
def why_not(what: str) -> str | None:
    """Why there is no ``strace`` or no ``postgresql``, there are no ``disks``; None if there
    are."""
    return {"strace": _no_strace, "disks": _no_disks, "postgresql": _no_postgresql}[what]()


def _no_postgresql() -> str | None:
    return None if find_programs() is not None else "PostgreSQL is not installed"


def _no_strace() -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(
        ["strace", "-o", "/dev/null", "-e", "inject=?pwritev2:signal=KILL:when=9", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"strace cannot trace: {done.stderr.strip()}" if done.returncode else None


def _no_disks() -> str | None:
    if os.geteuid() != 0:
        return "only root may mount file systems"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Disk(Path(folder), 32 << 20) as disk:
                disk.cut()
        except OSError as error:
            return f"no file system on a loop device: {error}"
    return None
