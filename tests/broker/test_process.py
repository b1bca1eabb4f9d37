"""The broker as a process: `ferrymq serve` from start to end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from proton import Message, ProtonException
from proton.utils import BlockingConnection, ConnectionClosed

import ferrymq_codec.reader
from tests.support.forking import FerrymqProcess

COMMAND = [sys.executable, "-m", "ferrymq_broker"]


@contextmanager
def serve(
    *arguments: str, started: bool = False
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A running broker and what it printed up to `ready`; a fork unless it is to be `started`."""
    process = FerrymqProcess(
        ["serve", *arguments],
        started,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "ready":
                break
        yield process, lines
    finally:
        process.kill()
        process.communicate()


def run(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    pipe = subprocess.PIPE
    how = None if stdin is None else pipe
    with FerrymqProcess(arguments, stdin=how, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            output, errors = process.communicate(stdin, timeout=60)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess([*arguments], process.returncode, output, errors)


def port_in(line: str) -> int:
    match = re.fullmatch(r"listening amqp://127\.0\.0\.1:(\d+)", line)
    assert match is not None, line
    return int(match[1])


def test_it_prints_where_it_listens_and_then_ready() -> None:
    listen = ["--listen", "amqp://127.0.0.1:0"]
    with serve(*listen, *listen, started=True) as (_, lines):
        assert len(lines) == 3 and lines[2] == "ready"
        ports = [port_in(line) for line in lines[:2]]
        assert 0 not in ports and ports[0] != ports[1]
        for port in ports:
            socket.create_connection(("127.0.0.1", port)).close()


def test_it_prints_where_monitoring_may_ask() -> None:
    arguments = ["--listen", "amqp://127.0.0.1:0", "--http", "http://127.0.0.1:0"]
    with serve(*arguments) as (_, lines):
        word, url = lines[1].split()
        assert word == "monitoring"
        with urllib.request.urlopen(url + "/readyz", timeout=10) as answer:
            assert json.load(answer) == {"ready": True, "reason": "", "alarms": []}


@pytest.mark.interop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_closes_connections_and_ends_it(number: signal.Signals) -> None:
    listen = ["--listen", "amqp://127.0.0.1:0"]
    with serve(*listen, "--memory", started=True) as (process, lines):
        connection = BlockingConnection(f"127.0.0.1:{port_in(lines[0])}", timeout=10)
        sender = connection.create_sender("q")
        sender.send(Message(body="kept until the end"))
        process.send_signal(number)
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                connection.container.process()
        assert "amqp:connection:forced" in str(caught.value)
        assert process.wait(timeout=10) == 0


def test_a_port_in_use_is_told_in_a_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("serve", "--listen", f"amqp://127.0.0.1:{taken.getsockname()[1]}")
    assert result.returncode == 1
    assert "in use" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--listen", "nonsense"], 2, "amqp://HOST:PORT"),
        (["--listen", "amqp://0.0.0.0:0"], 1, "open to other machines"),
        (["--data", "/dev/null/store"], 1, "Not a directory"),
        (["--data", "/dev/null"], 1, "cannot be used: File exists"),
        (["--data", "somewhere", "--memory"], 2, "exclude each other"),
        (["--config", "missing.toml"], 1, "No such file"),
        (["--log-level", "loud"], 2, "loud"),
        (["--log-format", "xml"], 2, "xml"),
    ],
)
def test_wrong_options_are_told_without_a_traceback(
    arguments: list[str], status: int, message: str
) -> None:
    result = run("serve", *arguments)
    assert result.returncode == status
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr


def test_the_configuration_file_counts(tmp_path: Path) -> None:
    config = tmp_path / "ferrymq.toml"
    config.write_text(
        '[[listener]]\nurl = "amqp://127.0.0.1:0"\n'
        '[security.users]\nalice = "sesame"\n'
        '[log]\nformat = "json"\n'
    )
    with serve("--config", str(config)) as (process, lines):
        port = port_in(lines[0])
        url = f"amqp://alice:sesame@127.0.0.1:{port}"
        connection = BlockingConnection(url, timeout=10, allowed_mechs="PLAIN")
        connection.close()
        with pytest.raises(ProtonException):
            BlockingConnection(
                f"amqp://127.0.0.1:{port}", timeout=10, allowed_mechs="ANONYMOUS"
            ).close()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
        events = [json.loads(line)["event"] for line in errors.splitlines()]
        assert "connection opened" in events
        assert "sesame" not in errors


@pytest.mark.parametrize("abstract", [False, True], ids=["file", "abstract"])
def test_the_service_manager_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, abstract: bool
) -> None:
    address = f"@ferrymq-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind("\0" + address[1:] if abstract else address)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        with serve("--listen", "amqp://127.0.0.1:0") as (process, _):
            assert manager.recv(100) == b"READY=1"
            process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait() == 0


def test_the_version() -> None:
    pattern = r"ferrymq \d+\.\d+\.\d+\S* \((compiled|interpreted)\)\n"
    said = re.fullmatch(pattern, run("--version").stdout)
    assert said is not None
    file = ferrymq_codec.reader.__file__
    assert said[1] == ("interpreted" if file.endswith(".py") else "compiled")


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    """The types, the engine and the clients need none of what the broker needs."""
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('typer', 'pydantic'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    result = subprocess.run(
        [*COMMAND, "serve"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
    )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "pip install 'ferrymq[broker]'" in result.stderr
