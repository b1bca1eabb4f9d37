"""Proton's example broker in C++, compiled from the sources that Debian's package has.

Debian has the example in libqpid-proton11-dev-examples, what it is compiled with in
libqpid-proton-cpp12-dev.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.interop.brokers.process import ForeignProcess, listening_beyond_loopback

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


class ProtonBroker:
    """The broker on a free port of loopback; `start` after `kill` uses the same one."""

    def __init__(self) -> None:
        self.version = version()
        self.port = 0
        self._directory = tempfile.TemporaryDirectory(prefix="proton-broker-")
        self._folder = Path(self._directory.name)
        self._process = ForeignProcess(r"broker listening on (\d+)")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._process.log

    @property
    def running(self) -> bool:
        """Whether it runs: some requests end it."""
        return self._process.running

    def _compile(self) -> Path:
        program = self._folder / "broker"
        command = ["g++", "-std=c++11", "-pthread", f"-I{_SOURCE.parent}", str(_SOURCE)]
        command += ["-o", str(program), "-lqpid-proton-cpp", "-lqpid-proton"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"it does not compile\n{done.stderr[-4000:]}"
        return program

    def start(self) -> None:
        """Start it and return when it listens."""
        program = self._folder / "broker"
        if not program.exists():
            self._compile()
        self._process.start(
            [str(program), "-a", f"127.0.0.1:{self.port}"], os.environ, self._folder
        )
        assert self._process.match is not None
        self.port = int(self._process.match[1])
        beyond = listening_beyond_loopback(self._process.pid)
        assert not beyond, f"it listens for strangers: {beyond}"

    def kill(self) -> None:
        """End it; it stores nothing."""
        self._process.kill()

    def __enter__(self) -> ProtonBroker:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.kill()
        finally:
            self._directory.cleanup()
