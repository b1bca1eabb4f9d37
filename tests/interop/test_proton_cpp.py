"""Proton's examples in C++, compiled from the sources that Debian's package has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ferrymq import Message, blocking
from tests.interop.broker_process import BrokerProcess
from tests.interop.brokers.proton_broker import missing

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

SOURCES = Path("/usr/share/proton/examples/cpp")
EXAMPLES = (
    "client",
    "helloworld",
    "queue_browser",
    "selected_recv",
    "server",
    "simple_recv",
    "simple_send",
)
# Seconds. Generous, for busy machines; nothing waits this long if all is well.
PATIENCE = 60


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled examples."""
    folder = tmp_path_factory.mktemp("cpp")

    def compile(name: str) -> None:
        command = ["g++", "-std=c++11", "-pthread", f"-I{SOURCES}", str(SOURCES / f"{name}.cpp")]
        command += ["-o", str(folder / name), "-lqpid-proton-cpp", "-lqpid-proton"]
        subprocess.run(command, check=True, capture_output=True)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(compile, EXAMPLES))
    return folder


Run = Callable[..., str]


@pytest.fixture
def run(programs: Path) -> Run:
    def run(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(programs / name), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout

    return run


@pytest.fixture
def started(programs: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start examples that never end by themselves."""
    running: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["stdbuf", "-oL", str(programs / name), *arguments], stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.terminate()
        process.communicate()


def test_messages_and_their_outcomes(broker: BrokerProcess, address: str, run: Run) -> None:
    url = f"{broker.url}/{address}"
    assert "all messages confirmed" in run("simple_send", "-a", url, "-m", "20")
    received = run("simple_recv", "-a", url, "-m", "20")
    assert received.count('"sequence"') == 20


def test_one_link_in_each_direction(broker: BrokerProcess, address: str, run: Run) -> None:
    assert run("helloworld", broker.url, address) == "Hello World!\n"


def test_requests_with_a_dynamic_reply_to(
    broker: BrokerProcess,
    address: str,
    run: Run,
    started: Callable[..., subprocess.Popen[str]],
) -> None:
    server = started("server", broker.url, address)
    assert server.stdout is not None
    line = server.stdout.readline()
    assert "Server connected" in line
    answers = run("client", "-a", f"{broker.url}/{address}")
    assert "TWAS BRILLIG" in answers and answers.count("=>") == 4


def test_a_selector_and_a_browser(
    broker: BrokerProcess, address: str, started: Callable[..., subprocess.Popen[str]]
) -> None:
    with blocking.connect(broker.url) as connection:
        connection.sender(address).send_many(
            [
                Message(body=colour, application_properties={"colour": colour})
                for colour in ("red", "green", "blue")
            ]
        )
        browser = started("queue_browser", broker.url, address)
        assert browser.stdout is not None
        assert [browser.stdout.readline() for _ in range(3)] == ["red\n", "green\n", "blue\n"]
        selected = started("selected_recv", broker.url, address)
        assert selected.stdout is not None
        assert selected.stdout.readline() == "green\n"
