"""Questions that the workers of one broker ask each other, beside HTTP requests and metrics:
whether they are ready, what management shows of them, and to read again what all share."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.event_log import log
from ferrymq_broker.history.sampler import series_of
from ferrymq_broker.management.definitions import BrokerDefinitions, definitions_of_worker
from ferrymq_broker.management.history import samples
from ferrymq_broker.management.live import LiveKeepers
from ferrymq_broker.management.overview import figures_of
from ferrymq_broker.management.workers import DEFINITIONS, FIGURES, SAMPLES
from ferrymq_broker.monitoring.readiness import Readiness
from ferrymq_broker.server.workers.peers import Peers, WorkerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ferrymq_broker.config.apply.differences import Difference
    from ferrymq_broker.config.model import Config
    from ferrymq_broker.server.live_config import LiveConfig
    from ferrymq_broker.server.server import BrokerServer

_READY: Final = "ready"
_FOLLOW: Final = "follow"
_RELOAD: Final = "reload"
# Seconds for another worker to answer, and to describe all its nodes.
_PATIENCE: Final = 1.0
_LONG_PATIENCE: Final = 3.0


class WorkerAnswers:
    """The answers of one worker to the others."""

    def __init__(self, server: BrokerServer, peers: Peers) -> None:
        self._server = server
        self._peers = peers
        # The workers that did not answer when management asked them last.
        self._missing: set[int] = set()
        peers.answerers[_READY] = self._ready
        peers.answerers[_FOLLOW] = self._follow
        peers.answerers[_RELOAD] = self._reload
        peers.answerers[FIGURES] = self._figures
        peers.answerers[SAMPLES] = self._samples
        peers.answerers[DEFINITIONS] = self._definitions

    def files_changed(self) -> None:
        """Make the others read the files of users and of rules again."""
        self._peers.tell_all(_FOLLOW)

    async def readiness_of_others(self) -> tuple[Readiness, set[str]]:
        """Return whether all others are ready, and their alarms."""
        readiness = Readiness(True, "")
        alarms: set[str] = set()
        for number, answer in (await self._peers.ask_all(_READY, b"", _PATIENCE)).items():
            if isinstance(answer, WorkerError):
                readiness = Readiness(False, str(answer))
                continue
            ready, reason, theirs = json.loads(answer)
            alarms.update(theirs)
            if not ready:
                readiness = Readiness(False, f"worker {number}: {reason}")
        return readiness, alarms

    def ask(
        self, question: str, content: object = None, number: int | None = None
    ) -> PendingAnswers:
        """Ask the others a question of management. See `management.workers`."""
        numbers = self._peers.numbers if number is None else [number]
        encoded = json.dumps(content).encode()
        return PendingAnswers(
            {each: asyncio.ensure_future(self._ask(each, question, encoded)) for each in numbers}
        )

    @property
    def numbers(self) -> list[int]:
        """The numbers of the others."""
        return self._peers.numbers

    # -- inside --------------------------------------------------------------------------

    async def _ask(self, number: int, question: str, content: bytes) -> Any:
        """Return what a worker answers; None if it does not."""
        patience = _LONG_PATIENCE if question == DEFINITIONS else _PATIENCE
        try:
            answer = await self._peers.ask(number, question, content, patience)
        except WorkerError as error:
            if number not in self._missing:
                # Once, because consoles ask again and again.
                log.warning("a worker does not answer", worker=number, reason=str(error))
            self._missing.add(number)
            return None
        self._missing.discard(number)
        return json.loads(answer)

    async def _figures(self, content: bytes) -> bytes:
        return json.dumps(figures_of(self._server.broker)).encode()

    async def _samples(self, content: bytes) -> bytes:
        broker = self._server.broker
        if broker.history is None:
            return b"null"
        return json.dumps(
            samples(series_of(broker.history), json.loads(content), broker.agenda)
        ).encode()

    async def _definitions(self, content: bytes) -> bytes:
        server = self._server
        keepers = LiveKeepers(server.live, server.users, server.rules)
        found = BrokerDefinitions()
        part = definitions_of_worker(server.broker, keepers, json.loads(content), found)
        told = {"hosts": part.hosts, "personal": part.personal, "omitted": found.omitted}
        return json.dumps(told).encode()

    async def _ready(self, content: bytes) -> bytes:
        ready, reason = self._server.readiness
        return json.dumps([ready, reason, sorted(self._server.broker.alarms)]).encode()

    async def _follow(self, content: bytes) -> bytes:
        server = self._server
        server.admission.authenticators.refresh(force=True)
        server.broker.begin_pass(server.clock.now())
        try:
            server.rules.take(server.config)
        except ConfigError as error:
            log.error("the rules stay as they were", reason=str(error))
            raise WorkerError(str(error)) from None
        finally:
            server.broker.finish_pass()
        return b""

    async def _reload(self, content: bytes) -> bytes:
        server = self._server
        server.broker.begin_pass(server.clock.now())
        try:
            server.live.reload()
        except ConfigError as error:
            raise WorkerError(str(error)) from None
        finally:
            server.broker.finish_pass()
        return b""


class PendingAnswers:
    """Answers that come in, by the number of the worker. See `management.workers.Answers`."""

    def __init__(self, asked: dict[int, asyncio.Future[Any]]) -> None:
        self._asked = asked

    @property
    def over(self) -> bool:
        """Whether all have answered, or have taken too long."""
        return all(each.done() for each in self._asked.values())

    @property
    def found(self) -> dict[int, Any]:
        """The answers that there are."""
        return {
            number: each.result()
            for number, each in self._asked.items()
            if each.done() and each.result() is not None
        }


class SharedConfig:
    """The configuration of all workers. `live` is that of this one."""

    def __init__(self, live: LiveConfig, peers: Peers) -> None:
        self._live = live
        self._peers = peers

    @property
    def in_force(self) -> Config:
        """The configuration that is in force in this worker."""
        return self._live.in_force

    def compare(self) -> tuple[str, Sequence[Difference]]:
        """See `LiveConfig.compare`."""
        return self._live.compare()

    def reload(self) -> Sequence[Difference]:
        """Read all files again in this worker; if they are right, in the others, too. See
        `LiveConfig.reload`."""
        found = self._live.reload()
        self._peers.tell_all(_RELOAD)
        return found
