"""Proton's example broker in C++, compiled from the sources that Debian's package has.

Debian has the example in libqpid-proton11-dev-examples, what it is compiled with in
libqpid-proton-cpp12-dev.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.brokers.process import ForeignBroker, ForeignProcess

_SOURCE = Path("/usr/share/proton/examples/cpp/broker.cpp")
_HEADER = Path("/usr/include/proton/container.hpp")


def missing() -> str:
    """Return what is not installed; empty if nothing is."""
    if not _SOURCE.exists():
        return "libqpid-proton11-dev-examples is not installed"
    if not _HEADER.exists():
        return "libqpid-proton-cpp12-dev is not installed"
    return "" if shutil.which("g++") else "there is no g++"


def version() -> str:
    """Return the version of the library, from its headers."""
    numbers = dict.fromkeys(("MAJOR", "MINOR"), "?")
    for line in (_HEADER.parent / "version.h").read_text("utf-8").splitlines():
        for part in numbers:
            if line.startswith(f"#define PN_VERSION_{part} "):
                numbers[part] = line.split()[2]
    return ".".join(numbers.values())


class ProtonBroker(ForeignBroker):
    """The broker on a free port of loopback; `start` after `kill` uses the same one."""

    def __init__(self) -> None:
        self.version = version()
        self.port = 0
        self._process = ForeignProcess(r"broker listening on (\d+)")
        super().__init__("proton-broker-", self._process)

    def _compile(self) -> Path:
        program = self._folder / "broker"
        command = ["g++", "-std=c++11", "-pthread", f"-I{_SOURCE.parent}", str(_SOURCE)]
        command += ["-o", str(program), "-lqpid-proton-cpp", "-lqpid-proton"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"it does not compile\n{done.stderr[-4000:]}"
        return program

    def start(self) -> None:
        """Start the broker and return when it listens. It stores nothing."""
        program = self._folder / "broker"
        if not program.exists():
            self._compile()
        self._process.start(
            [str(program), "-a", f"127.0.0.1:{self.port}"], os.environ, self._folder
        )
        assert self._process.match is not None
        self.port = int(self._process.match[1])
        self.expect_loopback()
