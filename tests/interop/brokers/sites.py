"""Brokers that the cases run on: where they listen, who may log in, how they are restarted.

A `Site` hides from a case how a broker writes addresses, and nothing else.
"""

from __future__ import annotations

import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ferrymq.url import parse_url
from tests.broker.tls.pki import Pki
from tests.interop.brokers import proton_broker
from tests.interop.brokers.process import ForeignBroker, ForeignProcess, free_ports
from tests.interop.brokers.proton_broker import ProtonBroker
from tests.interop.brokers.rabbitmq import RabbitMQ, find_home, version_of

ROOT: Final = Path(__file__).resolve().parents[3]
TRIXIE: Final = ROOT / "build/foreign/trixie"
PASSWORD: Final = "open sesame"
OPEN_QUEUE: Final = "open"
OTHER_HOST: Final = "other"


class Site(ABC):
    """A running broker: user alice may do everything, bob uses only the queue ``open``."""

    key: str
    version: str
    port: int
    tls_port: int = 0
    pki: Pki | None = None
    users: bool = True
    stores: bool = True
    other_host: str | None = None

    def url(self, user: str | None = "alice", password: str = PASSWORD, tls: bool = False) -> str:
        """The URL of the broker, with the credentials where it knows users."""
        scheme, port = ("amqps", self.tls_port) if tls else ("amqp", self.port)
        login = f"{user}:{quote(password)}@" if user is not None and self.users else ""
        return f"{scheme}://{login}127.0.0.1:{port}"

    @abstractmethod
    def queue(self, name: str) -> str:
        """Return the address of a queue, which exists or comes to exist."""

    def stream(self, name: str) -> str:
        """Return the address of a stream; of a queue where there are no streams."""
        return self.queue(name)

    def missing(self) -> str:
        """Return the address of something that does not exist, and is not made."""
        return self.queue("missing")

    def exchange(self, name: str, key: str) -> str:
        """Return the address of an exchange with a routing key, where there are exchanges."""
        raise AssertionError("the broker has no exchanges of RabbitMQ")

    @property
    @abstractmethod
    def log(self) -> str:
        """The output of the broker so far."""

    @abstractmethod
    def start(self) -> None:
        """Start the broker, on the ports that it had before."""

    @abstractmethod
    def kill(self) -> None:
        """End the broker as a crash would."""

    def ensure(self) -> None:  # noqa: B027
        """Start the broker again if it has ended by itself, where this happens."""

    @abstractmethod
    def close(self) -> None:
        """End the broker and remove its files."""

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _definitions(queues: Iterable[str], streams: Iterable[str]) -> dict[str, object]:
    """Return the users, the virtual hosts and the queues for RabbitMQ."""

    def rights(user: str, host: str, configure: str, write: str, read: str) -> dict[str, str]:
        return {
            "user": user,
            "vhost": host,
            "configure": configure,
            "write": write,
            "read": read,
        }

    def node(name: str, kind: str, host: str = "/") -> dict[str, object]:
        return {
            "name": name,
            "vhost": host,
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": kind},
        }

    everything = (".*", ".*", ".*")
    return {
        "users": [
            {"name": "guest", "password": "guest", "tags": ["administrator"]},
            {"name": "alice", "password": PASSWORD, "tags": ["administrator"]},
            {"name": "bob", "password": PASSWORD, "tags": []},
        ],
        "vhosts": [{"name": "/"}, {"name": OTHER_HOST}],
        "permissions": [
            rights("guest", "/", *everything),
            rights("alice", "/", *everything),
            rights("alice", OTHER_HOST, *everything),
            rights("bob", "/", "", f"^({OPEN_QUEUE}|amq\\.default)$", f"^{OPEN_QUEUE}$"),
        ],
        "queues": [
            *(node(name, "classic") for name in (*queues, OPEN_QUEUE, "a queue/with %")),
            *(node(name, "stream") for name in streams),
            node("elsewhere", "classic", OTHER_HOST),
        ],
    }


class ForeignSite(Site):
    """A broker that the run has started."""

    def __init__(self, key: str, version: str, broker: ForeignBroker) -> None:
        self.key = key
        self.version = version
        self._broker = broker
        broker.open()
        self.port = broker.port

    @property
    def log(self) -> str:
        """The output of the broker so far."""
        return self._broker.log

    def start(self) -> None:
        """Start the broker again, with what it has stored."""
        self._broker.start()

    def kill(self) -> None:
        """End the broker as a crash would."""
        self._broker.kill()

    def close(self) -> None:
        """End the broker and remove its files."""
        self._broker.close()


class RabbitSite(ForeignSite):
    """RabbitMQ: version 4 with addresses of version 2, earlier ones with those of its plugin."""

    other_host = f"vhost:{OTHER_HOST}"

    def __init__(self, key: str, root: Path, queues: Iterable[str], streams: Iterable[str]) -> None:
        self.rabbitmq = broker = RabbitMQ(_definitions(queues, streams), root)
        self.tls_port, self.pki = broker.tls_port, broker.pki
        self._v2 = int(broker.version.partition(".")[0]) >= 4
        self._prefix = "/queues/" if self._v2 else "/amq/queue/"
        super().__init__(key, broker.version, broker)

    def queue(self, name: str) -> str:
        """Return the address of a queue of the definitions."""
        # Version 3 decodes the slash, and nothing else.
        encoded = quote(name, safe="") if self._v2 else name.replace("/", "%2F")
        return self._prefix + encoded

    def exchange(self, name: str, key: str) -> str:
        """Return the address of an exchange with a routing key."""
        return f"/{'exchanges' if self._v2 else 'exchange'}/{name}/{key}"

    def missing(self) -> str:
        """Return the address of an exchange: a sender to a queue is granted by version 3."""
        return "/exchanges/missing" if self._v2 else "/exchange/missing"


class ProtonSite(ForeignSite):
    """Proton's example broker: it makes each queue that is used, knows no users, stores nothing."""

    users = False
    stores = False

    def __init__(self, key: str) -> None:
        broker = ProtonBroker()
        super().__init__(key, broker.version, broker)

    def queue(self, name: str) -> str:
        """Return the name."""
        return name

    def ensure(self) -> None:
        """Start the broker again if a case has crashed it."""
        if not self._broker.running:
            self._broker.kill()
            self._broker.start()


_FERRYMQ = """
[store]
path = "{folder}/store"
[tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[security]
anonymous = true
[security.users]
alice = "{password}"
bob = "{password}"
[[queue]]
name = "open"
[[rule]]
who = "user:bob"
may = ["send", "receive"]
where = "open"
[[rule]]
who = "user:bob"
may-not = "*"
where = "*"
[[rule]]
who = ["user:alice", "anonymous"]
may = "*"
where = ["*", "$*", "dynamic.*"]
"""


class FerrymqSite(Site):
    """The broker of this project, with a store, users, TLS and the streams that cases name.

    `more` is the rest of the configuration.
    """

    def __init__(self, key: str, streams: Iterable[str], more: str = "") -> None:
        self.key = key
        self.version = "here"
        self._directory = tempfile.TemporaryDirectory(prefix="ferrymq-site-")
        self._folder = Path(self._directory.name)
        self.pki = Pki(self._folder)
        text = _FERRYMQ.format(folder=self._folder, password=PASSWORD)
        text += "".join(f'[[stream]]\nname = "{name}"\n' for name in streams)
        (self._folder / "ferrymq.toml").write_text(text + more, "utf-8")
        self.port, self.tls_port = free_ports(2)
        self._process = ForeignProcess(r"^ready$")
        self.start()

    def queue(self, name: str) -> str:
        """Return the name: the broker makes the queue."""
        return name

    def missing(self) -> str:
        """Return an address that no queue can have."""
        return "$missing"

    @property
    def log(self) -> str:
        """The output of the broker so far."""
        return self._process.log

    def start(self) -> None:
        """Start the broker, with what its store has."""
        command = [sys.executable, "-m", "ferrymq_broker", "serve", "--config"]
        command += [str(self._folder / "ferrymq.toml")]
        command += ["--listen", f"amqp://127.0.0.1:{self.port}"]
        command += ["--listen", f"amqps://127.0.0.1:{self.tls_port}"]
        self._process.start(command, {**os.environ, "PYTHONUNBUFFERED": "1"}, self._folder)

    def kill(self) -> None:
        """End the broker as a crash would."""
        self._process.kill()

    def close(self) -> None:
        """End the broker and remove its files."""
        try:
            self._process.kill()
        finally:
            self._directory.cleanup()


class RunningSite(Site):
    """A broker that runs already, at this URL. `pattern` makes the address of a queue of its name;
    the broker makes queues, or has those of the cases."""

    version = "at a URL"

    def __init__(self, url: str, pattern: str) -> None:
        self.key = "url"
        self._url = parse_url(url)
        self._pattern = pattern
        self.port = self._url.port
        self.users = self._url.username is not None

    def url(self, user: str | None = "alice", password: str = PASSWORD, tls: bool = False) -> str:
        """The URL, with its user in place of alice."""
        assert user != "bob", "the run knows one user of the broker"
        assert not tls, "the run knows no other URL of the broker"
        here = self._url
        login = ""
        if user is not None and self.users:
            given = here.password if password == PASSWORD else password
            login = f"{quote(str(here.username))}:{quote(given or '')}@"
        return f"{here.scheme}://{login}{here.host}:{here.port}"

    def queue(self, name: str) -> str:
        """Return the address that the pattern makes."""
        return self._pattern.replace("{}", name)

    @property
    def log(self) -> str:
        """Nothing: somebody else has started the broker."""
        return ""

    def start(self) -> None:
        """Refuse to: somebody else has started the broker."""
        raise AssertionError("the run does not restart a broker that it has not started")

    kill = start

    def close(self) -> None:
        """Leave the broker as it is."""


@dataclass(frozen=True)
class Known:
    """A broker that the cases may run on: why it cannot be here, if so, and how it is started."""

    title: str
    missing: Callable[[], str]
    start: Callable[[str, list[str], list[str]], Site]
    foreign: bool = False
    """Whether it is not installed in this system, so that only `make foreign` has it."""


def rabbit_root(major: str) -> Path | None:
    """Return where a RabbitMQ of the version is: in this system, or in what `make foreign` got."""
    for root in (Path("/"), TRIXIE):
        home = find_home(root)
        if home is not None and version_of(home).partition(".")[0] == major:
            return root
    return None


def _rabbit(title: str, major: str, lack: str) -> Known:
    """Return a RabbitMQ, which `lack` says how to get."""
    foreign = major == "4" and rabbit_root(major) != Path("/")

    def start(key: str, queues: list[str], streams: list[str]) -> Site:
        root = rabbit_root(major)
        assert root is not None
        return RabbitSite(key, root, queues, streams)

    return Known(title, lambda: "" if rabbit_root(major) else lack, start, foreign)


KNOWN: Final = {
    "ferrymq": Known("ferrymq", lambda: "", lambda key, _, streams: FerrymqSite(key, streams)),
    "rabbitmq-3": _rabbit("RabbitMQ 3", "3", "rabbitmq-server 3 is not installed"),
    "rabbitmq-4": _rabbit("RabbitMQ 4", "4", "run: make foreign"),
    "proton": Known(
        "Proton's example broker", proton_broker.missing, lambda key, *_: ProtonSite(key)
    ),
}
