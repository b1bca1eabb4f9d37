"""A run: one directory, one ledger, one port, and the broker that lives and dies there."""

from __future__ import annotations

from pathlib import Path

import ferrymq
from ferrymq import ReconnectPolicy
from ferrymq.aio.opening import Opening
from ferrymq.engine.pairing import LINK_PAIR
from tests.crash.client_side import ClientSide
from tests.crash.layout import CONFIG, SEGMENT_BYTES
from tests.crash.processes import START, Life, NotReady, Starter, free_port


class Stage(ClientSide):
    """Everything a run has whose clients are served by one broker."""

    def __init__(
        self,
        starter: Starter,
        seed: int,
        folder: Path,
        *,
        data: Path | None = None,
        memory: bool = False,
        environment: dict[str, str] | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int = 0,
        idle_time_out: float = 60,
        credit: int = 1000,
    ) -> None:
        super().__init__(seed, folder, idle_time_out)
        self.data = data or folder / "data"
        self.port = free_port()
        self.environment = dict(environment or {})
        self.log = folder / "broker.log"
        self.life: Life | None = None
        self._memory = memory
        self._starter = starter
        self._config = folder / "broker.toml"
        self._config.write_text(
            CONFIG.format(
                segment_bytes=segment_bytes,
                max_bytes=max_bytes,
                idle_time_out=idle_time_out,
                credit=credit,
            )
        )

    # -- the broker ----------------------------------------------------------------------------

    def begin(self, strace: list[str] | None = None) -> Life:
        """Start the broker, without waiting until it is ready."""
        assert self.life is None
        where = ["--memory"] if self._memory else ["--data", str(self.data)]
        listen = f"amqp://127.0.0.1:{self.port}"
        arguments = ["serve", *where, "--listen", listen, "--config", str(self._config)]
        self.life = self._starter.start(arguments, self.log, self.environment, strace)
        return self.life

    async def start(self, strace: list[str] | None = None, timeout: float = START) -> Life:
        """Start the broker and let clients connect. Raises `NotReady`."""
        life = self.begin(strace)
        try:
            await life.ready(timeout)
        except NotReady:
            await self.end("ended while starting")
            raise
        self.ledger.write("lives", seconds=round(life.start_time, 4))
        self.up.set()
        return life

    async def end(self, how: str) -> int:
        """SIGKILL, if it has not ended by itself; its status."""
        life = self.life
        assert life is not None
        self.up.clear()
        await life.kill()
        self.life = None
        self.ledger.write("dies", how=how)
        self.look_for_shame(life.said())
        assert life.status is not None
        return life.status

    # -- clients -------------------------------------------------------------------------------

    @property
    def service(self) -> object | None:
        return self.life if self.up.is_set() else None

    def connect(
        self, name: str, reconnect: bool | ReconnectPolicy = False
    ) -> Opening[ferrymq.Connection]:
        """A connection of a container of this name."""
        return ferrymq.connect(
            f"amqp://127.0.0.1:{self.port}",
            container_id=name,
            desired_capabilities=[LINK_PAIR],
            idle_time_out=self.idle_time_out,
            close_timeout=2,
            reconnect=reconnect,
        )
