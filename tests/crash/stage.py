"""A run: one directory, one ledger, one port, and the broker that lives and dies there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import ferrymq
from ferrymq import Message, ReconnectPolicy
from ferrymq.aio.opening import Opening
from ferrymq.engine.pairing import LINK_PAIR
from tests.crash.content import WrongContent, identify, message
from tests.crash.layout import CONFIG, LAYOUT, SEGMENT_BYTES
from tests.crash.ledger import Ledger
from tests.crash.processes import START, Life, NotReady, Starter, free_port

# What a broker never says, whatever is done to it.
_SHAME = ("Traceback (most recent call last)", "amqp:internal-error", "Fatal Python error")


class Stage:
    """Everything the clients of a run share. `up` is set while there is a broker to connect to."""

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
        self.seed = seed
        self.folder = folder
        self.data = data or folder / "data"
        self.ledger = Ledger(folder / "ledger")
        self.ledger.write("opens", seed=seed, **LAYOUT)
        self.up = asyncio.Event()
        self.port = free_port()
        self.environment = dict(environment or {})
        self.log = folder / "broker.log"
        self.idle_time_out = idle_time_out
        # What messages look like; a run of one kind of fault may want others.
        self.largest = 20_000
        self.life: Life | None = None
        # Told of each connection that is lost while the broker lives.
        self.on_lost: Callable[[str], None] | None = None
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
        said = life.said()
        for shame in _SHAME:
            if shame in said:
                self.wrong(f"the broker said: {said[said.index(shame):][:2000]}")
        assert life.status is not None
        return life.status

    # -- clients -------------------------------------------------------------------------------

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

    def message(self, id: str, size: int, **fields: object) -> Message:
        """The message with this id."""
        return message(self.seed, id, size, **fields)

    def identify(self, received: Message) -> str | None:
        """Which message it is; None, and an entry in the ledger, if it is none of ours."""
        try:
            return identify(self.seed, received)
        except WrongContent as error:
            self.wrong(f"wrong content: {error}")
            return None

    def wrong(self, what: str) -> None:
        """Something happened that must not."""
        self.ledger.write("wrong", what=what)
