"""RabbitMQ: of this system, or of a Debian in a folder, with a name service of its own.

Nothing of the system's own RabbitMQ takes part: no configuration, no state, no cookie, no name
service. Everything listens on loopback only, which each start checks.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.broker.tls.pki import Pki
from tests.interop.brokers.process import ForeignBroker, ForeignProcess, free_ports

_HOMES = "usr/lib/rabbitmq/lib"


def find_home(root: Path = Path("/")) -> Path | None:
    """Return the folder of the RabbitMQ in `root`, named after its version, if there is one."""
    found = sorted(root.joinpath(_HOMES).glob("rabbitmq_server-*"))
    return found[-1] if found else None


def version_of(home: Path) -> str:
    """Return the version that the name of RabbitMQ's folder has."""
    return home.name.rpartition("-")[2]


class RabbitMQ(ForeignBroker):
    """A RabbitMQ with the definitions given, as RabbitMQ's own JSON; `root` is where its system is.

    The user of ANONYMOUS is guest, whose password is guest.
    """

    def __init__(self, definitions: Mapping[str, object], root: Path = Path("/")) -> None:
        home = find_home(root)
        assert home is not None, f"no RabbitMQ in {root}"
        self._root = root
        self._inside = Path("/") / home.relative_to(root)
        self.version = version_of(home)
        self._major = int(self.version.partition(".")[0])
        self._server = ForeignProcess(r"Server startup complete|completed with \d+ plugins")
        self._epmd = ForeignProcess(r"epmd running")
        super().__init__("rabbitmq-", self._server, self._epmd, parent=root / "tmp")
        self.port, self.tls_port, self._distribution, self._names = free_ports(4)
        self._configure(definitions)

    @property
    def pki(self) -> Pki:
        """The certificates of its TLS listener."""
        return self._pki

    def _within(self, path: Path) -> str:
        """A path as the processes see it."""
        return str(Path("/") / path.relative_to(self._root))

    def _configure(self, definitions: Mapping[str, object]) -> None:
        folder = self._folder
        folder.chmod(0o755)
        certificates = folder / "pki"
        certificates.mkdir()
        self._pki = Pki(certificates)
        (folder / "definitions.json").write_text(json.dumps(definitions), "utf-8")
        plugins = "rabbitmq_amqp1_0" if self._major < 4 else ""
        (folder / "enabled_plugins").write_text(f"[{plugins}].\n", "utf-8")
        lines = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "listeners.ssl.1": f"127.0.0.1:{self.tls_port}",
            "ssl_options.cacertfile": self._within(self._pki.path("ca")),
            "ssl_options.certfile": self._within(self._pki.path("server")),
            "ssl_options.keyfile": self._within(self._pki.path("server-key")),
            "ssl_options.verify": "verify_none",
            "load_definitions": self._within(folder / "definitions.json"),
            "auth_mechanisms.1": "PLAIN",
            "auth_mechanisms.2": "AMQPLAIN",
            "auth_mechanisms.3": "ANONYMOUS",
            "heartbeat": "0",
            # Memory and disk of this machine are not what is tested.
            "disk_free_limit.absolute": "1MB",
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
        }
        if self._major < 4:
            lines["amqp1_0.default_user"] = "guest"
            lines.pop("auth_mechanisms.3")
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (folder / "rabbitmq.conf").write_text(text, "utf-8")
        (folder / "no.conf").write_text("", "utf-8")

    def _environment(self) -> dict[str, str]:
        inside = self._within(self._folder)
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": inside,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names),
            # The script becomes the Erlang machine, whose id is then the process's.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"ferrymq-{os.getpid()}-{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": f"{inside}/no.conf",
            "RABBITMQ_CONFIG_FILE": f"{inside}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{inside}/no.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{inside}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{inside}/data",
            "RABBITMQ_LOG_BASE": f"{inside}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": f"{inside}/pid",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{inside}/generated",
        }

    def _command(self, *command: str) -> Sequence[str]:
        return command if self._root == Path("/") else ["chroot", str(self._root), *command]

    def start(self) -> None:
        """Start RabbitMQ, and its name service if it does not run yet; return when it is ready."""
        environment = self._environment()
        if not self._epmd.log:
            epmd = self._command("epmd", "-address", "127.0.0.1", "-port", str(self._names), "-d")
            self._epmd.start(epmd, environment, self._folder)
        self._server.start(
            self._command(f"{self._inside}/sbin/rabbitmq-server"), environment, self._folder
        )
        self.expect_loopback()

    def control(self, *command: str) -> str:
        """Run a command of `rabbitmqctl`, and return what it prints."""
        script = self._command(f"{self._inside}/sbin/rabbitmqctl", *command)
        done = subprocess.run(
            script, env=self._environment(), cwd=self._folder, capture_output=True, check=True
        )
        return done.stdout.decode()

    def export_definitions(self) -> str:
        """Return what ``rabbitmqctl export_definitions`` writes."""
        text = self.control("export_definitions", "-")
        return text[text.index("{") :]
