"""The generator as users have it: the wheel with the extra `codegen`, in a new environment.

The test generates and runs the examples of the page about types of your own.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ferrymq.blocking.portal import Portal
from ferrymq_broker.config import Config
from ferrymq_broker.server import BrokerServer

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import sys
from hatchling.builders.wheel import WheelBuilder
print(*WheelBuilder({root!r}).build(directory=sys.argv[1], versions=["standard"]))
"""
PAGE = (ROOT / "docs" / "client" / "own-types.md").read_text("utf-8")
(SPEC,) = re.findall(r"^```xml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PROGRAM, CLIENT = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(COMMAND,) = re.findall(r"^ferrymq (generate .*)$", PAGE, re.MULTILINE)
DESCRIBES = re.findall(r"^ferrymq (describe .*)$", PAGE, re.MULTILINE)
WRONG = "from shop_types.orders import OrderLine\nOrderLine(article=b'tea')\n"


@dataclass
class Installation:
    """An environment with the wheel and the packages that an extra of it asks for, no others."""

    bin: Path
    folder: Path

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in a folder that is no checkout."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FERRY"))}
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env={**environment, "PYTHONPATH": "src", "COLUMNS": "100", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )


def required(extra: str) -> set[str]:
    """The distributions that the extra of ferrymq asks for, at any remove."""
    found: set[str] = set()
    todo = [("ferrymq", extra)]
    while todo:
        name, wanted = todo.pop()
        for text in importlib.metadata.requires(name) or []:
            asked = Requirement(text)
            if asked.marker is None or asked.marker.evaluate({"extra": wanted}):
                if asked.name not in found:
                    todo += [(asked.name, each) for each in ("", *asked.extras)]
                found.add(asked.name)
    return found


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel is installed by pip. The packages it asks for are those of this environment: no
    network is needed."""
    folder = tmp_path_factory.mktemp("installed")
    built = subprocess.run(
        [sys.executable, "-c", BUILD.format(root=str(ROOT)), str(folder)],
        env={**os.environ, "FERRYMQ_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in required("codegen"):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}:
            here = packages / top
            if not here.exists():
                here.symlink_to(Path(str(distribution.locate_file(top))))
    (folder / "shop.xml").write_text(SPEC, "utf-8")
    (folder / "program.py").write_text(PROGRAM, "utf-8")
    (folder / "client.py").write_text(CLIENT, "utf-8")
    (folder / "wrong.py").write_text(WRONG, "utf-8")
    return Installation(environment / "bin", folder)


@pytest.fixture(scope="module")
def generated(installation: Installation) -> Installation:
    done = installation.run("ferrymq", *COMMAND.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "src/shop_types: 7 files of the package shop_types\n"
    return installation


def test_a_value_is_the_same_after_the_wire(generated: Installation) -> None:
    done = generated.run("python", "program.py")
    assert (done.returncode, done.stdout) == (0, "the same after the wire\n"), done.stderr


def test_a_client_has_values_of_the_classes(generated: Installation) -> None:
    program = generated.folder / "connected.py"
    config = Config.model_validate({"listener": [{"url": "amqp://127.0.0.1:0"}]})
    portal = Portal("broker")
    server = portal.run(BrokerServer(config).__aenter__)
    try:
        program.write_text(CLIENT.replace("amqp://localhost", server.url), "utf-8")
        done = generated.run("python", program.name)
    finally:
        portal.run(lambda: server.__aexit__(None, None, None))
        portal.stop()
    assert done.stdout == "[OrderLine(article='tea', count=1)]\n", done.stderr


def test_mypy_accepts_the_package_and_its_use(generated: Installation) -> None:
    def mypy(*files: str) -> list[str]:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
                *("--python-executable", str(generated.bin / "python"), "--cache-dir=cache"),
                *("--no-error-summary", *files),
            ],
            cwd=generated.folder,
            env={**os.environ, "MYPYPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.splitlines()

    assert mypy("src/shop_types", "program.py", "client.py") == []
    assert ["arg-type" in line for line in mypy("wrong.py")] == [True]


def test_check_finds_what_the_xml_does_not_say(generated: Installation) -> None:
    arguments = (*COMMAND.split(), "--check")
    assert generated.run("ferrymq", *arguments).returncode == 0
    path = generated.folder / "src" / "shop_types" / "orders.py"
    text = path.read_text("utf-8")
    path.write_text(text + "# by hand\n", "utf-8")
    try:
        done = generated.run("ferrymq", *arguments)
    finally:
        path.write_text(text, "utf-8")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "src/shop_types/orders.py: differs"


def test_mistakes_are_named_with_their_lines(generated: Installation) -> None:
    wrong = SPEC.replace('name="order-line" class', 'name="error" class')
    (generated.folder / "wrong.xml").write_text(wrong, "utf-8")
    done = generated.run("ferrymq", "generate", "wrong.xml", "--package", "wrong_types")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == 'wrong.xml:9: field lines has type "order-line", an unknown type'
    assert second.startswith("wrong.xml:13: type error is already defined at ferrymq_types, tra")
    assert not (generated.folder / "wrong_types").exists()


def test_describe_knows_the_types(generated: Installation) -> None:
    done = generated.run("ferrymq", "describe", "order", "--types", "shop_types")
    assert done.returncode == 0, done.stderr
    assert "descriptor  shop:order:list (0xacdc00000001)" in done.stdout.splitlines()
    for command in DESCRIBES:
        assert generated.run("ferrymq", *command.split()).returncode == 0


def test_the_pages_about_the_types_and_diff_come_along(generated: Installation) -> None:
    done = generated.run("python", "-m", "ferrymq_codegen", "reference", "--out", "pages")
    assert (done.returncode, done.stdout) == (0, "pages: 7 pages\n"), done.stderr


def test_commands_of_the_broker_say_what_they_miss(installation: Installation) -> None:
    done = installation.run("ferrymq", "serve")
    assert done.returncode == 1
    assert "is missing; pip install 'ferrymq[broker]'\n" in done.stderr
    assert len(done.stderr.splitlines()) == 1
