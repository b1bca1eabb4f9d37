"""A newcomer who does what the tutorial says, in an environment with nothing but ferrymq in it.

Everything is done as it is written, but for the port of the broker, and the source that is
installed: it is a wheel of the checkout, and pip is that of this environment.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAVED: Final = re.compile(r"[Ss]ave this as `([\w.]+)`")
MAKE: Final = "python3 -m venv shop"
INSTALL: Final = "FERRYMQ_PURE=1 shop/bin/pip install '.[broker]'"
# Seconds: for what takes long on a busy machine, and the silence after which a worker is done.
LONGEST: Final = 120.0
SILENCE: Final = 4.0


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout, interpreted, with the tools of this environment."""
    environment = {**os.environ, "FERRYMQ_PURE": "1"}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


class Newcomer:
    """Two terminals in one folder: the first has the broker, the second everything else."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place = place
        self.wheel = wheel
        self.folder = place
        self.port = 0
        self.broker: subprocess.Popen[str] | None = None
        self.printed: list[str] = []
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FERRYMQ_", "PYTHON", "VIRTUAL_ENV"))
        }

    def follow(self, page: Path) -> None:
        """Do what a page says, block by block."""
        text = page.read_text("utf-8")
        end = 0
        for block in BLOCK.finditer(text):
            said, end = text[end : block.start()], block.end()
            if "Stop the broker" in said:
                self.stop_broker()
            language, code = block.groups()
            if language == "sh":
                self.shell(code)
            elif language != "console":
                names = SAVED.findall(said)
                assert names, f"where to save this? {code}"
                self.save(names[-1], code)

    def save(self, name: str, text: str) -> None:
        """Write a file of the page."""
        (self.folder / name).write_text(
            text.replace("amqp://localhost", f"amqp://localhost:{self.port}"), "utf-8"
        )

    def shell(self, code: str) -> None:
        """Type in the lines of a block."""
        for line in code.splitlines():
            if line == MAKE:
                self.run(f"{line} --without-pip")
            elif line == INSTALL:
                # The same, without the time that building takes.
                pip = f"{sys.executable} -m pip --python shop/bin/python"
                self.run(f"{pip} install --quiet '{self.wheel}[broker]'")
            elif line == "cd shop":
                self.folder = self.place / "shop"
            elif line == ". bin/activate":
                self.environment["PATH"] = f"{self.folder / 'bin'}:{self.environment['PATH']}"
            elif line.startswith("ferrymq serve"):
                self.serve(line)
            elif self.is_endless(line):
                self.run_until_quiet(line)
            else:
                self.run(line)

    def is_endless(self, line: str) -> bool:
        """Whether a line starts a worker, which the reader ends with Ctrl-C."""
        found = re.fullmatch(r"python (\w+\.py)", line)
        if found is None:
            return False
        program = (self.folder / found[1]).read_text("utf-8")
        return "async for " in program or "Worker(" in program

    def run(self, line: str) -> None:
        """Run a command to its end."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
        killed = "kill -9" in line
        assert killed or done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        self.printed += done.stdout.splitlines()

    def run_until_quiet(self, line: str) -> None:
        """Run a worker until it prints no more, and end it with Ctrl-C."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        reading = threading.Thread(target=lambda: [lines.put(one) for one in process.stdout or ()])
        reading.start()
        try:
            wait = LONGEST
            while True:
                self.printed.append(lines.get(timeout=wait).rstrip("\n"))
                wait = SILENCE
        except queue.Empty:
            process.send_signal(signal.SIGINT)
        finally:
            try:
                process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                process.kill()
            reading.join()

    def serve(self, line: str) -> None:
        """Start the broker in the first terminal, and wait until it is ready."""
        assert self.broker is None
        command = f"exec {line} --listen amqp://127.0.0.1:{self.port}"
        self.broker = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.broker.stdout is not None
        for said in self.broker.stdout:
            if said.startswith("listening amqp://"):
                self.port = int(said.rpartition(":")[2])
                self.environment["FERRYMQ_URL"] = f"amqp://localhost:{self.port}"
            if said == "ready\n":
                return
        raise AssertionError("the broker did not start")

    def stop_broker(self) -> None:
        """Press Ctrl-C in the first terminal."""
        if self.broker is not None:
            self.broker.send_signal(signal.SIGINT)
            self.broker.communicate(timeout=LONGEST)
            self.broker = None

    def waits(self, address: str) -> list[str]:
        """The messages that wait in a queue."""
        began = len(self.printed)
        self.run(f"ferrymq receive {address} --browse --timeout 1")
        found = self.printed[began:]
        del self.printed[began:]
        return found
