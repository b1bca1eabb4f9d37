"""The two brokers of the query: one alone, and one with a standby on PostgreSQL."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from ferrymq_broker.replication.postgresql.database_schema import initialise
from tests.crash.processes import free_port
from tests.interop.broker_process import PATIENCE, BrokerProcess
from tests.support.postgresql import PostgresqlPair

_STREAMS: Final = """
[[stream]]
name = "orders"
partitions = 2
[[stream]]
name = "copies"
partitions = 2
[store]
path = "{folder}"
"""
_REPLICATION: Final = """
[http]
url = "http://127.0.0.1:{http}"
[replication]
engine = "postgresql"
url = "{database}"
cluster = "kills"
name = "{name}"
lease = "1s"
step-down-after = "5s"
"""


class SingleBroker:
    """A broker with a store, which is started again when it was killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self._process = BrokerProcess(_STREAMS.format(folder=folder))
        self._process.port = port

    @property
    def urls(self) -> list[str]:
        """Where it listens."""
        return [self._process.url]

    @property
    def log(self) -> str:
        """Standard error of the broker so far."""
        return self._process.log

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._process.start()

    def kill(self) -> None:
        """SIGKILL, and start it again."""
        self._process.kill()
        self._process.start()

    def close(self) -> None:
        """End it."""
        self._process.kill()


class ReplicatedBroker:
    """A leader and a standby, with their database."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self._database = PostgresqlPair()
        self._folder = folder
        self._ports = ports
        self._members: list[_Member] = []

    @property
    def urls(self) -> list[str]:
        """Where the members listen."""
        return [member.process.url for member in self._members]

    @property
    def log(self) -> str:
        """Standard errors of the members so far."""
        return "\n".join(member.process.log for member in self._members)

    def start(self) -> None:
        """Start database and members, and wait until the first one serves."""
        self._database.start()
        initialise(self._database.url(), "kills", None)
        url = self._database.url()
        self._members = [
            _Member(self._folder, name, url, *self._ports[place : place + 2])
            for place, name in ((0, "one"), (2, "two"))
        ]
        for member in self._members:
            member.process.start()
        self._wait_for_leader(self._members)

    def kill(self) -> None:
        """SIGKILL to the leader; when the other one serves, it is started again."""
        leader = self._wait_for_leader(self._members)
        leader.process.kill()
        self._wait_for_leader([one for one in self._members if one is not leader])
        leader.process.start()

    def close(self) -> None:
        """End the members and the database."""
        for member in self._members:
            member.process.kill()
        self._database.close()

    @staticmethod
    def _wait_for_leader(members: list[_Member]) -> _Member:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for member in members:
                if member.serves():
                    return member
            threading.Event().wait(0.02)
        raise AssertionError("no member serves:\n" + "\n".join(m.process.log for m in members))


class _Member:
    def __init__(self, folder: Path, name: str, database: str, port: int, http: int) -> None:
        config = f'advertise = "amqp://127.0.0.1:{port}"\n'
        config += _STREAMS.format(folder=folder / name)
        config += _REPLICATION.format(http=http, database=database, name=name)
        self.process = BrokerProcess(config)
        self.process.port = port
        self._health = f"http://127.0.0.1:{http}/readyz"

    def serves(self) -> bool:
        """Whether it says that it leads and serves."""
        try:
            with urllib.request.urlopen(self._health, timeout=2):
                return True
        except OSError:
            return False


def broker_ports(count: int) -> list[int]:
    """Return ports for processes that are started again and again."""
    taken: list[int] = []
    for _ in range(count):
        taken.append(free_port(taken))
    return taken
