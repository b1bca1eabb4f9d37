"""How a broker with workers ends, as a whole or a process of it, and how it fails to start."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ferrymq import Message, blocking
from ferrymq.errors import ConnectionClosed
from tests.broker.test_process import run, serve
from tests.broker.test_stored_process import stored
from tests.broker.workers.several import HOSTS, TENANT, WorkerBroker, opening, wait_until
from tests.raw.client import Client
from tests.raw.frames import AMQP_HEADER
from tests.raw.process import PATIENCE
from tests.support.forking import FerrymqProcess
from tests.support.lanes import amount

pytestmark = pytest.mark.crash

CONFIG = f"""
workers = 2
{{more}}
[shutdown]
drain-timeout = "1h"
[[listener]]
url = "amqp://127.0.0.1:0"
[[listener]]
url = "amqp://127.0.0.1:0"
[[queue]]
name = "orders"
{TENANT}
[[virtual-host.queue]]
name = "orders"
"""


def write_config(folder: Path, more: str = "") -> Path:
    """The file of a broker with two workers, which has a store if `more` says so."""
    path = folder / "ferrymq.toml"
    path.write_text(CONFIG.format(more=more))
    return path


@contextmanager
def serving(config: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The broker, and the URLs of its virtual hosts at the first listener."""
    with serve("--config", str(config)) as (process, lines):
        assert lines[-1] == "ready", process.communicate()[1]
        port = lines[0].rpartition(":")[2]
        yield process, [f"amqp://127.0.0.1:{port}?hostname={name}" for name in HOSTS]


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of the workers."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(each) for each in path.read_text().split()]


def ended(pids: list[int]) -> bool:
    """Whether none of the processes is there any more."""
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def log_after(process: subprocess.Popen[str]) -> str:
    """What the broker has logged, at its end."""
    return process.communicate(timeout=PATIENCE)[1]


def test_each_listener_has_its_own_port(tmp_path: Path) -> None:
    with serve("--config", str(write_config(tmp_path))) as (process, lines):
        assert len(lines) == 3 and lines[-1] == "ready"
        ports = {re.fullmatch(r"listening amqp://127\.0\.0\.1:(\d+)", each) for each in lines[:2]}
        assert len(ports) == 2 and None not in ports
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving(write_config(tmp_path)) as (process, urls):
        connections = [blocking.connect(url) for url in urls * 2]
        pids = workers_of(process)
        process.send_signal(number)
        for connection in connections:
            with pytest.raises(ConnectionClosed, match="forced"):
                connection.wait_closed(timeout=PATIENCE)
        log = log_after(process)
        assert process.returncode == 0
        assert ended(pids)
        assert log.count("] stopping ") == 2 and "error" not in log


def test_outcomes_are_waited_for_although_each_process_gets_the_signal(tmp_path: Path) -> None:
    """As from a terminal, or from systemd. Only a second one to the broker means haste."""
    with serving(write_config(tmp_path)) as (process, urls):
        connections = [blocking.connect(url) for url in urls]
        held = []
        for connection in connections:
            connection.sender("orders").send(Message(body=b"one"))
            held.append(connection.receiver("orders").receive(timeout=PATIENCE))
        for pid in [*workers_of(process), process.pid]:
            os.kill(pid, signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        for delivery in held:
            delivery.accept()
        for connection in connections:
            with pytest.raises(ConnectionClosed, match="forced"):
                connection.wait_closed(timeout=PATIENCE)
        assert "error" not in log_after(process)
        assert process.returncode == 0


def test_a_second_signal_means_haste(tmp_path: Path) -> None:
    with serving(write_config(tmp_path)) as (process, urls):
        connections = [blocking.connect(url) for url in urls]
        held = []
        for connection in connections:
            connection.sender("orders").send(Message(body=b"one"))
            held.append(connection.receiver("orders").receive(timeout=PATIENCE))
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        del held


def test_the_workers_end_with_the_supervisor(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = write_config(tmp_path, f'[store]\npath = "{data}"')
    with serving(config) as (process, urls):
        for url in urls:
            with blocking.connect(url) as connection:
                connection.sender("orders").send(Message(body=b"kept", durable=True))
        pids = workers_of(process)
        process.kill()
        wait_until(lambda: ended(pids), "the workers are still there")
        assert log_after(process).count("] stopping ") == 2
    with serving(config) as (process, urls):
        for url in urls:
            with blocking.connect(url) as connection:
                assert connection.receiver("orders").receive(timeout=PATIENCE).message.body


@pytest.mark.parametrize("why", ["locked", "damaged"])
def test_a_worker_that_cannot_start(tmp_path: Path, why: str) -> None:
    """The broker says so once and ends; the other worker has closed its store in good order."""
    data = tmp_path / "data"
    config = write_config(tmp_path, f'[store]\npath = "{data}"')
    with serving(config) as (process, urls):
        for url in urls:
            with blocking.connect(url) as connection:
                connection.sender("orders").send(Message(body=b"kept", durable=True))
        process.terminate()
        assert process.wait(PATIENCE) == 0
    saved = {path: path.read_bytes() for path in (data / "worker-1").iterdir() if path.is_file()}
    if why == "damaged":
        for path in saved:
            path.write_bytes(b"this is no store")
        result = run("serve", "--config", str(config))
        for path, content in saved.items():
            path.write_bytes(content)
    else:
        with stored(data / "worker-1"):
            result = run("serve", "--config", str(config))
    assert result.returncode == 1
    assert "worker 1" in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.count("ferrymq: ") == 1
    with serving(config) as (process, urls):
        for url in urls:
            with blocking.connect(url) as connection:
                assert connection.receiver("orders").receive(timeout=PATIENCE).message.body


def test_a_signal_while_it_starts(tmp_path: Path) -> None:
    """At any moment: it ends, and so do all workers that have begun."""
    dice = random.Random(1)
    config = write_config(tmp_path)
    for _ in range(amount(4, 30)):
        process = FerrymqProcess(
            ["serve", "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(dice.uniform(0, 0.3))
        pids = workers_of(process) if process.poll() is None else []
        process.terminate()
        log = log_after(process)
        # Before it handles signals they end it.
        assert process.returncode in (0, -signal.SIGTERM), log
        wait_until(lambda pids=pids: ended(pids), "a worker is still there")  # type: ignore[misc]
        assert "Traceback" not in log


def test_a_signal_while_a_worker_starts_again(tmp_path: Path) -> None:
    dice = random.Random(2)
    config = write_config(tmp_path)
    for _ in range(amount(3, 20)):
        with serving(config) as (process, _):
            os.kill(workers_of(process)[1], signal.SIGKILL)
            time.sleep(dice.uniform(0, 0.1))
            process.terminate()
            assert process.wait(PATIENCE) == 0


def test_an_address_in_use(tmp_path: Path) -> None:
    with serve("--listen", "amqp://127.0.0.1:0") as (_, lines):
        taken = lines[0].removeprefix("listening ")
        path = tmp_path / "ferrymq.toml"
        path.write_text(f'workers = 2\n[[listener]]\nurl = "{taken}"\n')
        result = run("serve", "--config", str(path))
    assert result.returncode == 1
    assert "in use" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("how", ["signal", "management"])
def test_all_workers_read_the_configuration_again(tmp_path: Path, how: str) -> None:
    """Also one that starts again later."""
    config = write_config(tmp_path)
    with serving(config) as (process, urls):
        with config.open("a") as file:
            file.write('[[virtual-host.queue]]\nname = "late"\n[[queue]]\nname = "late"\n')
        if how == "signal":
            process.send_signal(signal.SIGHUP)
        else:
            with blocking.connect(urls[0]) as connection, connection.management() as management:
                management.request("RELOAD", "broker", "broker")
        for url in urls:
            with blocking.connect(url) as connection:
                wait_until(lambda: "late" in names(connection), "the queue is not there")
        pid = workers_of(process)[1]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: ended([pid]), "the worker is still there")
        with blocking.connect(urls[1]) as connection:
            assert "late" in names(connection)
        process.terminate()
        assert log_after(process).count("] reloading ") == 2


def test_a_worker_that_starts_again_has_no_configuration_that_it_refused(tmp_path: Path) -> None:
    """The configuration that it accepted before counts, also if another worker accepted the later
    one."""
    config = write_config(tmp_path)
    before = config.read_text()
    with serving(config) as (process, urls):
        config.write_text(before + '[[virtual-host.queue]]\nname = "late"\n')
        process.send_signal(signal.SIGHUP)
        with blocking.connect(urls[1]) as connection:
            wait_until(lambda: "late" in names(connection), "the queue is not there")
        # Worker 1 has a queue of this name.
        more = '[[virtual-host.topic]]\nname = "late"\n[[queue]]\nname = "accepted"\n'
        config.write_text(before + more)
        process.send_signal(signal.SIGHUP)
        with blocking.connect(urls[0]) as connection:
            wait_until(lambda: "accepted" in names(connection), "worker 0 has refused it too")
        assert process.stderr is not None
        assert any("the settings stay as they were" in line for line in process.stderr)
        pid = workers_of(process)[1]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: ended([pid]), "the worker is still there")
        with blocking.connect(urls[1]) as connection, connection.management() as management:
            assert [each["type"] for each in management.query() if each["name"] == "late"] == [
                "org.ferrymq.queue"
            ]
        process.terminate()


def names(connection: blocking.Connection) -> set[str]:
    """The nodes of the client's virtual host."""
    with connection.management() as management:
        return {str(each["name"]) for each in management.query()}


def test_a_killed_worker_starts_again_and_the_other_goes_on() -> None:
    with WorkerBroker(f"[[queue]]\nname = 'orders'\n{TENANT}") as broker:
        with blocking.connect(broker.hostname_url(0)) as steady:
            sender = steady.sender("orders")
            lost = blocking.connect(broker.hostname_url(1))
            broker.kill_worker(1)
            sender.send("the other one is gone")
            broker.wait_for_worker(1)
            sender.send("it is back")
            with pytest.raises(Exception):  # noqa: B017 - any error tells that it is gone
                lost.wait_closed(timeout=PATIENCE)
            for acceptor in (0, 1):
                with (
                    broker.accepting(acceptor),
                    blocking.connect(broker.hostname_url(1)) as again,
                ):
                    again.sender("orders").send("here")
        assert "signal SIGKILL" in broker.log


def test_a_client_waits_while_a_worker_starts_again() -> None:
    """What comes for the worker meanwhile is kept for it."""
    with WorkerBroker(TENANT) as broker:
        os.kill(broker.pid, signal.SIGSTOP)
        broker.kill_worker(1)
        with Client(broker.port) as client:
            client.authenticate().send(AMQP_HEADER, opening(HOSTS[1]))
            assert client.take(8) == AMQP_HEADER
            os.kill(broker.pid, signal.SIGCONT)
            client.expect("open")
            broker.wait_for_worker(1)
            client.close()
