"""Clients of AMQP 0-9-1, each a process, and the brokers on which the features are tried."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Protocol

from ferrymq.testing import InjectedFault, LocalBroker
from tests.interop.amqp_0_9_1.features import FEATURES, Family, Feature
from tests.interop.brokers.sites import (
    OTHER_HOST,
    PASSWORD,
    FerrymqSite,
    RabbitSite,
    Site,
    rabbit_root,
)
from tests.interop.features.client_process import ROOT, ClientProcess, Outcome

HERE: Final = Path(__file__).parent
C_PROGRAM: Final = ROOT / "build/interop/librabbitmq_client"
_NODE_CLIENT: Final = ROOT / "tests/interop/features/client.js"

_PERSONALITY: Final = """
[personality]
name = "rabbitmq"
[[virtual-host]]
name = "other"
[[virtual-host.rule]]
who = "user:alice"
may = "*"
where = ["*", "$*", "dynamic.*"]
"""


@dataclass(frozen=True)
class Client:
    """A client: `program` starts it, `lacks` says why it cannot be run here."""

    key: str
    package: str
    version: str
    program: Callable[[], list[str]]
    lacks: Callable[[], str]
    note: str = ""
    family: Family = "clients"

    @property
    def title(self) -> str:
        """The head of its column."""
        return f"{self.package} {self.version}{self.note}"

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that are tried with it."""
        return tuple(each for each in FEATURES if each.family == self.family)

    def missing(self) -> str:
        """Return why the client cannot be run here; empty if it can."""
        return self.lacks()


def _python(
    key: str, package: str, cases: str, note: str = "", family: Family = "clients"
) -> Client:
    found = importlib.util.find_spec(package.replace("-", "_")) is not None
    version = metadata.version(package) if found else ""
    return Client(
        key,
        package,
        version,
        lambda: [sys.executable, "-m", "tests.interop.amqp_0_9_1.python_client", cases],
        lambda: "" if found else "it is not installed",
        note,
        family,
    )


def _debian(package: str) -> str:
    """Return the version of a package of Debian without Debian's part; empty if it is missing."""
    if shutil.which("dpkg-query") is None:
        return ""
    command = ["dpkg-query", "--show", "--showformat=${Version}", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.partition("-")[0].partition("+")[0] if done.returncode == 0 else ""


def compile_c() -> None:
    """Compile the program with librabbitmq, if it is not there or older than its source."""
    source = HERE / "librabbitmq_client.c"
    if not C_PROGRAM.exists() or C_PROGRAM.stat().st_mtime < source.stat().st_mtime:
        C_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        made = C_PROGRAM.with_suffix(".new")
        flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"]
        command = ["gcc", *flags, "-o", str(made), str(source), "-lrabbitmq"]
        subprocess.run(command, check=True)
        made.replace(C_PROGRAM)


def _c() -> list[str]:
    compile_c()
    return [str(C_PROGRAM)]


def _of_debian(name: str, package: str, tool: str, program: Callable[[], list[str]]) -> Client:
    version = _debian(package)
    there = bool(version) and shutil.which(tool) is not None
    reason = "" if there else f"{package} is not installed"
    return Client(name.lower(), name, version, program, lambda: reason)


def _node_missing() -> str:
    if shutil.which("node") is None:
        return "Node is missing"
    there = (HERE / "node_modules/amqplib").is_dir()
    return "" if there else "its package is missing: make node-modules"


_AMQPLIB: Final = json.loads((HERE / "package.json").read_text("utf-8"))["dependencies"]["amqplib"]

_ALL: Final = (
    _python("pika", "pika", "pika", ", blocking"),
    _python("pika-select", "pika", "pika_select", ", by callbacks"),
    _python("aio-pika", "aio-pika", "aio_pika"),
    _python("kombu", "kombu", "kombu"),
    Client(
        "amqplib",
        "amqplib",
        _AMQPLIB,
        lambda: ["node", str(_NODE_CLIENT), str(HERE / "amqplib.js")],
        _node_missing,
    ),
    _of_debian(
        "php-amqplib", "php-amqplib", "php", lambda: ["php", str(HERE / "php_amqplib_client.php")]
    ),
    _of_debian("Bunny", "ruby-bunny", "ruby", lambda: ["ruby", str(HERE / "bunny_client.rb")]),
    _of_debian("librabbitmq", "librabbitmq-dev", "gcc", _c),
    _of_debian(
        "amqp-tools",
        "amqp-tools",
        "amqp-publish",
        lambda: [sys.executable, "-m", "tests.interop.amqp_0_9_1.python_client", "amqp_tools"],
    ),
    _python("celery", "celery", "celery", "", "celery"),
)
CLIENTS: Final = {client.key: client for client in _ALL}


class BrokerUnderTest(Protocol):
    """A broker that the features are tried on."""

    site: Site
    amqp_1_0_address: str

    def restarted(self) -> Site:
        """Return the broker that a case may end and start again."""

    def alarmed(self) -> int:
        """Return the port of the broker whose alarm can be set."""

    def set_alarm(self, on: bool) -> None:
        """Set or end the alarm."""

    def close(self) -> None:
        """End the broker."""


class FerrymqUnderTest:
    """The broker of this project; another one in this process has the alarm."""

    amqp_1_0_address = "/queues/{}"

    def __init__(self) -> None:
        self.site: Site = self._start()
        self._faults: list[InjectedFault] = []

    @cached_property
    def _restarted(self) -> Site:
        return self._start()

    @staticmethod
    def _start() -> Site:
        return FerrymqSite("ferrymq", [], _PERSONALITY)

    def restarted(self) -> Site:
        """Return a broker that nobody else uses."""
        return self._restarted

    @cached_property
    def _local(self) -> LocalBroker:
        broker = LocalBroker(config={"personality": {"name": "rabbitmq"}})
        broker.start()
        return broker

    def alarmed(self) -> int:
        """Return the port of the broker whose alarm can be set."""
        return self._local.port

    def set_alarm(self, on: bool) -> None:
        """Set or end the alarm of a full disk."""
        if on:
            self._faults.append(self._local.faults.fill_disk())
        else:
            self._faults.pop().cancel()

    def close(self) -> None:
        """End all of them."""
        for name in ("_local", "_restarted"):
            if name in self.__dict__:
                getattr(self, name).close()
        self.site.close()


class RabbitmqUnderTest:
    """RabbitMQ 3, as an oracle for the cases themselves."""

    amqp_1_0_address = "/amq/queue/{}"

    def __init__(self) -> None:
        root = rabbit_root("3")
        assert root is not None, "rabbitmq-server 3 is not installed"
        self._rabbit = RabbitSite("rabbitmq-3", root, [], [])
        self.site: Site = self._rabbit

    def restarted(self) -> Site:
        """Return the broker."""
        return self.site

    def alarmed(self) -> int:
        """Return the port of the broker."""
        return self.site.port

    def set_alarm(self, on: bool) -> None:
        """Set or end the alarm of too much memory."""
        self._rabbit.rabbitmq.control("set_vm_memory_high_watermark", "0.000001" if on else "0.4")

    def close(self) -> None:
        """End the broker."""
        self.site.close()


BROKERS: Final[dict[str, Callable[[], BrokerUnderTest]]] = {
    "ferrymq": FerrymqUnderTest,
    "rabbitmq": RabbitmqUnderTest,
}


class Runner:
    """A client in a process, on a broker that other clients may use at the same time."""

    def __init__(self, client: Client, broker: BrokerUnderTest) -> None:
        self._client = client
        self._broker = broker
        self._exit = ExitStack()

    def __enter__(self) -> Runner:
        folder = self._exit.enter_context(tempfile.TemporaryDirectory(prefix="ferrymq-0-9-1-"))
        self._process = ClientProcess(self._client.program, {"TMPDIR": folder}, Path(folder))
        self._exit.callback(self._process.end)
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def play(self, feature: Feature) -> Outcome:
        """Try a feature, and return what came of it."""
        return self._process.play(self._question(feature), self._answer)

    def _answer(self, asked: dict[str, Any]) -> None:
        if "restart" in asked:
            site = self._broker.restarted()
            site.kill()
            site.start()
        else:
            self._broker.set_alarm(asked["alarm"])

    def _question(self, feature: Feature) -> dict[str, Any]:
        site = self._broker.restarted() if feature.restarts else self._broker.site
        assert site.pki is not None
        return {
            "case": feature.name,
            "entity": f"{self._client.key}.{feature.name}",
            "host": "127.0.0.1",
            "port": self._broker.alarmed() if feature.alarm else site.port,
            "tls_port": site.tls_port,
            "authority": str(site.pki.path("ca")),
            "user": "alice",
            "password": PASSWORD,
            "guest": "bob",
            "other_host": OTHER_HOST,
            "amqp_1_0": site.url(),
            "address": self._broker.amqp_1_0_address,
        }
