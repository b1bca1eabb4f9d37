"""`ferrymq serve` with a store: what outlives the process, and how it ends when it must."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.test_process import COMMAND, port_in, run, serve

# Writes to the journal fail once the file that FAIL names is there.
FAILING_DISK = """
import os
import ferrymq_broker.store.disk as disk

write = disk.RealFile.write

def fragile(self, position, parts, sync=True):
    if os.path.exists(os.environ["FAIL"]):
        raise OSError(5, "Input/output error")
    write(self, position, parts, sync)

disk.RealFile.write = fragile
"""


@contextmanager
def stored(data: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running broker with a store, and its URL."""
    with serve("--listen", "amqp://127.0.0.1:0", "--data", str(data), *more) as (process, lines):
        yield process, f"amqp://127.0.0.1:{port_in(lines[0])}"


def send(url: str, *bodies: str) -> None:
    assert run("send", "--url", url, "q", *bodies, "--durable").returncode == 0


def receive(url: str, count: int) -> list[str]:
    return run("receive", "--url", url, "q", "-n", str(count)).stdout.split()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.spec("3.2.1")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_outlives_the_process(data: Path, number: signal.Signals) -> None:
    with stored(data) as (process, url):
        send(url, "one", "two", "three")
        assert receive(url, 1) == ["one"]
        process.send_signal(number)
        assert process.wait(10) == (-number if number == signal.SIGKILL else 0)
    # Closing in good order leaves nothing to recover.
    assert (data / "clean").exists() == (number == signal.SIGTERM)
    with stored(data) as (_, url):
        assert receive(url, 2) == ["two", "three"]


def test_memory_wins_over_the_configuration(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "ferrymq.toml"
    config.write_text(
        f'[[listener]]\nurl = "amqp://127.0.0.1:0"\n[store]\npath = "{data}"\n', "utf-8"
    )
    with serve("--config", str(config), "--memory"):
        assert not data.exists()
    with serve("--config", str(config)):
        assert data.exists()
    other = tmp_path / "other"
    with serve("--config", str(config), "--data", str(other)):
        assert other.exists()


def test_capture_takes_the_store_of_the_command_line(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(
        '[[listener]]\nurl = "amqp://127.0.0.1:0"\n'
        f'[capture]\ndirectory = "{tmp_path / "captured"}"\n'
        '[[stream]]\nname = "orders"\ncapture = true\n'
    )
    with serve("--config", str(config), "--data", str(data)) as (_, lines):
        assert lines[-1] == "ready"
    assert data.is_dir()
    for options in ([], ["--memory"]):
        said = one_line(run("serve", "--config", str(config), *options))
        assert "set [store] path, or serve with --data" in said


def test_nothing_but_the_announcements_is_printed(data: Path) -> None:
    with serve("--listen", "amqp://127.0.0.1:0", "--data", str(data)) as (process, lines):
        assert lines[0].startswith("listening ") and lines[1:] == ["ready"]
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=10)
        assert output == ""
        assert "recovered" in errors
        assert re.search(r"started +build=(compiled|interpreted) version=\d", errors)


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """What a broker says that cannot start."""
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("ferrymq: ")
    return result.stderr


def serve_in_vain(data: Path) -> str:
    return one_line(run("serve", "--listen", "amqp://127.0.0.1:0", "--data", str(data)))


def test_a_store_in_use_is_told_in_a_line(data: Path) -> None:
    with stored(data) as (process, _):
        said = serve_in_vain(data)
        assert str(data) in said and str(process.pid) in said


def test_a_newer_store_is_told_in_a_line(data: Path) -> None:
    with stored(data):
        pass
    format = data / "format"
    format.write_text(format.read_text().replace("format: 2", "format: 3"))
    assert "format 3" in serve_in_vain(data)


def test_a_damaged_store_is_told_in_a_line(data: Path) -> None:
    with stored(data) as (process, url):
        send(url, "precious")
        process.send_signal(signal.SIGTERM)
        process.wait(10)
    file = data / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"precious", b"previous"))
    assert str(file) in serve_in_vain(data)


def test_a_directory_that_cannot_be_written_is_told_in_a_line(data: Path) -> None:
    data.touch()
    assert "cannot be used: File exists" in serve_in_vain(data)
    assert "cannot be used: Not a directory" in serve_in_vain(data / "inside")


def test_a_disk_that_fails_ends_the_process_at_once(data: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAILING_DISK)
    fail = tmp_path / "fail"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    process = subprocess.Popen(
        [*COMMAND, "serve", "--listen", "amqp://127.0.0.1:0", "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "FAIL": str(fail)},
    )
    try:
        assert process.stdout is not None
        url = f"amqp://127.0.0.1:{port_in(process.stdout.readline().strip())}"
        assert process.stdout.readline() == "ready\n"
        send(url, "kept")
        fail.touch()
        sent = run("send", "--url", url, "q", "lost", "--durable")
        assert sent.returncode == 1
        _, errors = process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 70
    critical = [line for line in errors.splitlines() if "critical" in line]
    assert len(critical) == 1
    assert str(data) in critical[0] and "Input/output error" in critical[0]
    assert "Traceback" not in errors
    with stored(data) as (_, url):
        assert receive(url, 1) == ["kept"]
        assert receive_none(url)


def receive_none(url: str) -> bool:
    return run("receive", "--url", url, "q", "--timeout", "0").stdout == ""


def test_a_port_in_use_leaves_the_store_closed(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"amqp://127.0.0.1:{taken.getsockname()[1]}"
        result = run("serve", "--listen", listen, "--data", str(data))
    assert result.returncode == 1 and "in use" in result.stderr
    assert (data / "clean").exists()
