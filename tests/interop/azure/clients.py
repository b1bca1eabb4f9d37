"""Azure's clients, each a process, with which the features are tried; and brokers for them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ferrymq.testing import LocalBroker
from tests.broker.tls.pki import Pki
from tests.interop.azure.cases import FEATURES, Family, Feature, entities
from tests.interop.features.client_process import ROOT, ClientProcess, Outcome

HERE: Final = Path(__file__).parent
_NODE_CLIENT: Final = ROOT / "tests/interop/features/client.js"
_NODE_CASES: Final = {"service-bus": "service_bus.js", "event-hubs": "event_hubs.js"}
ENVIRONMENTS: Final = ROOT / "build/azure"

LARGEST_MESSAGE: Final = 1_048_576

KEY: Final = "c2VjcmV0IG9mIHRoZSBvd25lcg=="
LISTEN_KEY: Final = "c2VjcmV0IG9mIGEgcmVhZGVy"
KEYS: Final = [
    {"name": "owner", "primary": KEY, "may": "*", "where": "*"},
    {"name": "reader", "primary": LISTEN_KEY, "may": ["receive", "browse"], "where": "*"},
]


@dataclass(frozen=True)
class Client:
    """One SDK in one version: `flavour` is `sync`, `aio` or `node`."""

    key: str
    package: str
    version: str
    flavour: str
    family: Family
    older: bool = False
    """Whether it has an environment of its own, made when it is used first."""

    always_tls: bool = False
    """Whether it does not know connection strings of the emulator, so that it always uses TLS."""

    @property
    def title(self) -> str:
        """The head of its column."""
        flavour = {"sync": ", blocking", "aio": ", asyncio"}.get(self.flavour, "")
        return f"{self.package} {self.version}{flavour}"

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features that are tried with it."""
        return tuple(each for each in FEATURES if each.family == self.family)

    def missing(self) -> str:
        """Return why the client cannot be run here; empty if it can."""
        if self.flavour != "node":
            return "" if self.version else "it is not installed"
        if shutil.which("node") is None:
            return "Node is missing"
        there = (HERE / "node_modules" / self.package).is_dir()
        return "" if there else "its packages are missing: make node-modules"

    def takes_long(self, feature: Feature) -> bool:
        """Return whether `make test` does without the feature: opening and closing a link takes
        the SDKs for Python seconds, in which they sleep."""
        return self.older or (self.flavour != "node" and not feature.quick)

    def command(self) -> list[str]:
        """Return the command that starts it; make its environment if it has one."""
        if self.flavour == "node":
            return ["node", str(_NODE_CLIENT), str(HERE / _NODE_CASES[self.family])]
        python = sys.executable
        if self.older:
            python = str(_environment(self.package, self.version))
        return [python, "-m", "tests.interop.azure.python_client", self.family, self.flavour]


def _environment(package: str, version: str) -> Path:
    """Return the Python of an environment that has the version; make it if it is not there."""
    folder = ENVIRONMENTS / f"{package}=={version}"
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        needed = [f"{package}=={version}", "aiohttp", "websocket-client"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *needed], check=True)
    return python


_SERVICE_BUS: Final = "azure-servicebus"
_EVENT_HUBS: Final = "azure-eventhub"


def _installed(package: str) -> str:
    """Return the version of a package for Python; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


_OF_PYTHON: Final = {package: _installed(package) for package in (_SERVICE_BUS, _EVENT_HUBS)}
_OF_NODE: Final = json.loads((HERE / "package.json").read_text("utf-8"))["dependencies"]


def _node(key: str, package: str, family: Family) -> Client:
    return Client(key, package, _OF_NODE[package], "node", family)


_ALL: Final = (
    Client("servicebus", _SERVICE_BUS, _OF_PYTHON[_SERVICE_BUS], "sync", "service-bus"),
    Client("servicebus-aio", _SERVICE_BUS, _OF_PYTHON[_SERVICE_BUS], "aio", "service-bus"),
    _node("node-service-bus", "@azure/service-bus", "service-bus"),
    Client("servicebus==7.14.3", _SERVICE_BUS, "7.14.3", "sync", "service-bus", older=True),
    Client("servicebus==7.12.3", _SERVICE_BUS, "7.12.3", "sync", "service-bus", True, True),
    Client("eventhub", _EVENT_HUBS, _OF_PYTHON[_EVENT_HUBS], "sync", "event-hubs"),
    Client("eventhub-aio", _EVENT_HUBS, _OF_PYTHON[_EVENT_HUBS], "aio", "event-hubs"),
    _node("node-event-hubs", "@azure/event-hubs", "event-hubs"),
    Client("eventhub==5.12.2", _EVENT_HUBS, "5.12.2", "sync", "event-hubs", True, True),
)
CLIENTS: Final = {client.key: client for client in _ALL}


class Runner:
    """A client in a process, and the brokers that it needs: one open, one with TLS and keys.

    Their clocks stand still but for what the cases ask for, and are never behind real time when a
    case begins: SDKs compare the times of locks with their own clock.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client = client
        self._brokers: list[LocalBroker] = []
        self._folder = tempfile.TemporaryDirectory(prefix="ferrymq-azure-")
        authority = str(self._pki.path("ca"))
        environment = {
            "NODE_EXTRA_CA_CERTS": authority,
            # Older SDKs ignore `connection_verify` in administration.
            "REQUESTS_CA_BUNDLE": authority,
        }
        self._process = ClientProcess(client.command, environment, Path(self._folder.name))

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.end()
        for broker in self._brokers:
            broker.close()
        self._folder.cleanup()

    @cached_property
    def _open(self) -> LocalBroker:
        """The broker without TLS, for which every key is right."""
        return self._start(listener=[{"url": "amqp://127.0.0.1:0"}], guarded=False)

    @cached_property
    def _guarded(self) -> LocalBroker:
        """The broker with TLS and keys."""
        return self._start(
            listener=[{"url": "any://127.0.0.1:0"}],
            tls=self._pki.tls().model_dump(exclude_unset=True),
            security={"shared_access_key": KEYS},
            guarded=True,
        )

    @cached_property
    def _pki(self) -> Pki:
        return Pki(Path(self._folder.name))

    def _start(self, *, guarded: bool, **config: Any) -> LocalBroker:
        features = tuple(
            each for each in self.client.features if self._needs_guard(each) == guarded
        )
        broker = LocalBroker(
            config={
                "personality": entities(features),
                "limits": {"max-message-size": LARGEST_MESSAGE},
                **config,
            }
        )
        broker.start()
        self._brokers.append(broker)
        return broker

    def _needs_guard(self, feature: Feature) -> bool:
        return feature.guarded or self.client.always_tls

    def play(self, feature: Feature) -> Outcome:
        """Try a feature, and return what came of it."""
        broker = self._guarded if self._needs_guard(feature) else self._open
        behind = time.time() - broker.clock.now.timestamp()
        broker.clock.advance(max(0.0, behind))
        return self._process.play(
            self._question(feature, broker),
            lambda request: broker.clock.advance(request["advance"]),
        )

    def _question(self, feature: Feature, broker: LocalBroker) -> Mapping[str, Any]:
        text = (
            f"Endpoint=sb://localhost:{broker.port};SharedAccessKeyName={{}};SharedAccessKey={{}}"
        )
        question = {"case": feature.name, "now": broker.clock.now.timestamp()}
        if not self._needs_guard(feature):
            connection = text.format("any", "any") + ";UseDevelopmentEmulator=true;"
            return {**question, "connection": connection}
        return {
            **question,
            "connection": text.format("owner", KEY),
            "listen_only": text.format("reader", LISTEN_KEY),
            "endpoint": f"sb://localhost:{broker.port}",
            "authority": str(self._pki.path("ca")),
        }
