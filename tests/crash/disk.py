"""A disk that can lose its power: ext4 in a file, on a loop device.

The shutdown call without a flush of the journal is what a power cut is to the file system: nothing
is written from that moment on. What was synced is found after mounting it again, what was not is
gone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final, Self

# EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32), and EXT4_GOING_FLAGS_NOLOGFLUSH.
_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = struct.pack("I", 2)

TOOLS: Final = ("mkfs.ext4", "losetup", "mount", "umount")


class Disk:
    """A file system of `size` bytes of its own, mounted at `path` inside the block ``with``."""

    def __init__(self, folder: Path, size: int) -> None:
        self.path = folder / "disk"
        self._image = folder / "disk.img"
        self._size = size
        self._device = ""
        self._mounted = False

    def __enter__(self) -> Self:
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self._size)
        try:
            # No reserve for the administrator, who the broker is here; all inodes made at once, so
            # that the kernel does not write beside.
            options = "lazy_itable_init=0,lazy_journal_init=0"
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", options, str(self._image))
            self._device = _run("losetup", "--find", "--show", str(self._image))
            self.mount()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def mount(self) -> None:
        """Mount it, with what its journal has to say."""
        _run("mount", "-t", "ext4", self._device, str(self.path))
        self._mounted = True

    def cut(self) -> None:
        """Let the power go."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Unmount it; nobody may use it any longer."""
        _run("umount", str(self.path))
        self._mounted = False

    def close(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self._mounted and subprocess.run(["umount", str(self.path)], check=False).returncode:
            subprocess.run(["umount", "-l", str(self.path)], check=False)
        self._mounted = False
        if self._device:
            subprocess.run(["losetup", "--detach", self._device], check=False)
            self._device = ""
        self._image.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()
