"""A member of a run's cluster: a broker process with its own folder, ports and way to clients."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final

from tests.crash.failovers.database import CLUSTER
from tests.crash.failovers.tcp_proxy import TcpProxy
from tests.crash.processes import START, Life, NotReady, Starter

# Short, so that a round is short. In seconds.
LEASE: Final = 2.0
# In so many seconds without the leader, another member takes the lease.
TAKEOVER: Final = LEASE + 1.0
# A leader that cannot reach the database for so long gives up.
STEP_DOWN: Final = 8.0

REPLICATION: Final = """
[replication]
engine = "postgresql"
url = "{url}"
cluster = "{cluster}"
name = "{name}"
lease = "{lease}ms"
step-down-after = "{step_down}ms"
acknowledge = "{acknowledge}"
snapshot-after = "{snapshot_after}"
"""


class BrokerMember:
    """One member, whose process lives and dies. `clients` is the way of clients to it."""

    def __init__(
        self, name: str, folder: Path, starter: Starter, environment: dict[str, str], port: int
    ) -> None:
        self.name = name
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "broker.log"
        self.port = port
        self.http_port = 0
        self.clients = TcpProxy(port)
        self.environment = environment
        self.life: Life | None = None
        # Whether its process is stopped by SIGSTOP.
        self.is_stopped = False
        self._starter = starter
        self._config = folder / "broker.toml"

    async def prepare(self, config: str, http_port: int, url: str, **settings: object) -> None:
        """Write the configuration, and open the way of clients."""
        self.folder.mkdir()
        self.http_port = http_port
        await self.clients.start()
        own = REPLICATION.format(
            url=url,
            cluster=CLUSTER,
            name=self.name,
            lease=round(LEASE * 1000),
            step_down=round(STEP_DOWN * 1000),
            **settings,
        )
        advertise = f'advertise = "amqp://127.0.0.1:{self.clients.port}"\n'
        self._config.write_text(advertise + config + own)

    def begin(self) -> Life:
        """Start the process, without waiting until it is ready."""
        assert self.life is None
        arguments = ["serve", "--data", str(self.data), "--config", str(self._config)]
        arguments += ["--listen", f"amqp://127.0.0.1:{self.port}"]
        arguments += ["--http", f"http://127.0.0.1:{self.http_port}"]
        self.life = self._starter.start(arguments, self.log, self.environment)
        return self.life

    async def start(self, timeout: float = START) -> None:
        """Start the process and wait until it is a standby at least. Raises `NotReady`."""
        await self.begin().ready(timeout)

    def stop(self) -> None:
        """SIGSTOP."""
        assert self.life is not None
        self.life.signal(signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.life is not None:
            self.life.signal(signal.SIGCONT)
        self.is_stopped = False

    async def kill(self) -> str:
        """SIGKILL, if it has not ended; return what it has said in this life."""
        life, self.life = self.life, None
        self.is_stopped = False
        if life is None:
            return ""
        await life.kill()
        return life.said()

    async def terminate(self) -> tuple[int, str]:
        """SIGTERM; return the status and what it has said in this life."""
        life, self.life = self.life, None
        assert life is not None
        life.signal(signal.SIGTERM)
        try:
            status = await life.ended()
        except TimeoutError:
            await life.kill()
            raise NotReady(f"{self.name} did not end: {life.said()[-2000:]}") from None
        return status, life.said()

    async def serves(self) -> bool:
        """Whether it says that it is a leader that serves clients."""
        if self.life is None or self.life.status is not None or self.is_stopped:
            return False
        return await self.get("/readyz") == 200

    async def get(self, path: str) -> int:
        """The status of an HTTP answer; 0 if there is none within a second."""
        try:
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    line = await reader.readline()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return 0
        words = line.split()
        return int(words[1]) if len(words) > 1 else 0
