"""A reader who does what README.md says.

Commands are run as they are written, except for places: the environment is that of the tests, and
brokers listen on free ports of this machine.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PASSWORD: Final = "open sesame"
# What takes long, or what other tests are about: it is not run.
ELSEWHERE: Final = re.compile(r"make test$|(\.venv/bin/)?pip install ")
FERRYMQ: Final = (sys.executable, "-m", "ferrymq_broker")
# Spark and Java on a busy machine.
LONGEST: Final = 600.0


class Reader:
    """Somebody who types in what README.md says, in a directory of his own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.brokers: list[subprocess.Popen[str]] = []
        self.url = ""
        self.secured = ""
        self.files = 0
        self.output: list[str] = []
        self.environment = {
            name: value
            for name, value in os.environ.items()
            # The environment is not activated: what runs as python3 has none of our packages.
            if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
        }
        self.environment |= {
            "PATH": f"{self.bare_python()}:{os.environ['PATH']}",
            "FERRYMQ_PASSWORD": PASSWORD,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    def bare_python(self) -> Path:
        """A folder whose python3 knows the standard library alone."""
        folder = self.place / "bin"
        folder.mkdir()
        base = Path(sys.base_prefix, "bin", "python3")
        (folder / "python3").write_text(f'#!/bin/sh\nexec "{base}" -S "$@"\n')
        (folder / "python3").chmod(0o755)
        return folder

    def toml(self, text: str) -> None:
        assert 'url = "amqps://0.0.0.0:5671"' in text
        text = text.replace("0.0.0.0:5671", "127.0.0.1:0")
        (self.place / "broker.toml").write_text(text)

    def python(self, text: str) -> None:
        compile(text, "README.md", "exec")
        self.files += 1
        path = self.place / f"snippet{self.files}.py"
        path.write_text(text.replace("amqp://localhost", self.url))
        self.run([sys.executable, str(path)])

    def sh(self, text: str) -> None:
        for line in text.splitlines():
            command = line.partition("#")[0].strip()
            if not command or ELSEWHERE.match(command):
                continue
            if command.startswith("make run"):
                self.serve(shlex.split(command.partition("ARGS=")[2] or "''")[0].split())
                continue
            words = shlex.split(command.replace("amqps://localhost", self.secured))
            assert words[0] == ".venv/bin/ferrymq", command
            if words[1:3] == ["user", "add"]:
                words.append("--password-stdin")
            self.run([*FERRYMQ, *words[1:]])

    def serve(self, arguments: list[str]) -> None:
        """Start a broker; one without users takes the place of the one before."""
        if "--config" not in arguments:
            self.stop()
            arguments = [*arguments, "--listen", "amqp://127.0.0.1:0"]
        with (self.place / "broker.log").open("ab") as log:
            broker = subprocess.Popen(
                [*FERRYMQ, "serve", *arguments],
                cwd=self.place,
                env={**self.environment, "PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.brokers.append(broker)
        assert broker.stdout is not None
        for line in broker.stdout:
            listening = re.match(r"listening (amqps?)://127\.0\.0\.1:(\d+)$", line)
            if listening is None:
                assert line == "ready\n", line
                return
            if listening[1] == "amqps":
                self.secured = f"amqps://localhost:{listening[2]}"
            else:
                self.url = f"amqp://localhost:{listening[2]}"
                self.environment["FERRYMQ_URL"] = self.url
        raise AssertionError((self.place / "broker.log").read_text("utf-8"))

    def run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.place,
            env=self.environment,
            input=f"{PASSWORD}\n",
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
        told = f"{shlex.join(command)}\n{done.stdout}\n{done.stderr[-4000:]}"
        assert done.returncode == 0, told
        self.output.append(done.stdout)

    def stop(self) -> None:
        """End the brokers as Ctrl-C does."""
        for broker in self.brokers:
            broker.send_signal(signal.SIGINT)
            broker.communicate(timeout=LONGEST)
        self.brokers.clear()


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the code blocks of a page, each with its language."""
    return BLOCK.findall(text)


def follow(text: str, place: Path) -> str:
    """Do what a page says, block by block, and return what was printed."""
    reader = Reader(place)
    try:
        for language, code in blocks(text):
            {"sh": reader.sh, "python": reader.python, "toml": reader.toml}[language](code)
    finally:
        reader.stop()
    return "".join(reader.output)
