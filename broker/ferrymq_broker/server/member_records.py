"""The records of a member: they follow the journal while it stands by, and snapshots are made of
them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from ferrymq_broker.config.model import Config
from ferrymq_broker.event_log import log
from ferrymq_broker.replication.errors import ReplicationError
from ferrymq_broker.replication.follower import JournalFollower
from ferrymq_broker.replication.member_files import MemberDirectory
from ferrymq_broker.replication.shared_journal import Done, SharedJournal
from ferrymq_broker.replication.snapshot_policy import (
    LeaderSource,
    SnapshotOptions,
    SnapshotPolicy,
)
from ferrymq_broker.replication.snapshots import Snapshots
from ferrymq_broker.replication.waiting import Later, ask
from ferrymq_broker.server.member_view import MemberView
from ferrymq_broker.server.storage import store_options
from ferrymq_broker.store.durable_store import DurableStore
from ferrymq_broker.store.executor import LoopExecutor

# Seconds until the journal is asked again after it could not be reached.
_RETRY: Final = 0.2


class MemberRecords:
    """The records of a member that stands by, and its snapshots.

    `failed` is called with an error that a standby cannot live with. All members of a cluster find
    its id in the journal, so nothing is opened before the journal has been reached.
    """

    def __init__(
        self,
        config: Config,
        journal: SharedJournal,
        view: MemberView,
        later: Later,
        failed: Callable[[Exception], None],
    ) -> None:
        self._config = config
        self._journal = journal
        self._view = view
        self._later = later
        self._failed = failed
        self._follower: JournalFollower | None = None
        self._policy: SnapshotPolicy | None = None
        # The executor for copies, which take long.
        self._copier: LoopExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        # Set when the follower is there, and when it has caught up.
        self._woken = asyncio.Event()

    @property
    def applied(self) -> int:
        """The last batch in the records."""
        return 0 if self._follower is None else self._follower.position.number

    def start(self) -> None:
        """Begin to follow the journal."""
        self._task = asyncio.get_running_loop().create_task(self._begin())

    async def catch_up(self, is_over: Callable[[], bool]) -> bool:
        """Bring the records to the end of the journal. Return whether they are there: not if a
        person has to mend something, or if `is_over` returns true before. The caller has the
        lease."""
        asked = False
        ends: list[Exception | None] = []
        while not ends and not is_over():
            if self._follower is not None and not asked:
                try:
                    self._view.figures = figures = await ask(self._journal.figures)
                except ReplicationError as error:
                    log.warning("the journal cannot be read", reason=str(error))
                else:
                    asked = True
                    self._follower.catch_up(figures.last, self._on_end(ends))
            self._woken.clear()
            if not ends:
                cancel = self._later(_RETRY, self._woken.set)
                await self._woken.wait()
                cancel()
        if not ends or ends[0] is not None:
            if ends:
                log.error("this member cannot become the leader", reason=str(ends[0]))
            return False
        return True

    def _on_end(self, ends: list[Exception | None]) -> Done[None]:
        def done(result: Exception | None) -> None:
            ends.append(result)
            self._woken.set()

        return done

    async def end_following(self) -> None:
        """Close the records properly. Raises `StoreError`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        if self._policy is not None:
            await self._policy.stop()
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    def lead(self, store: DurableStore) -> None:
        """Make snapshots of the leader's store if no standby does."""
        assert self._policy is not None
        self._policy.source = LeaderSource(store)
        self._policy.start()

    async def stop(self) -> None:
        """End everything. Raises `StoreError`."""
        try:
            await self.end_following()
        finally:
            if self._copier is not None:
                self._copier.drain()
                self._copier.close()
                self._copier = None

    async def _begin(self) -> None:
        """Open the records when the id of the cluster is known."""
        view = self._view
        told = ""
        while not view.cluster:
            try:
                view.figures = await ask(self._journal.figures)
            except ReplicationError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("the journal cannot be read", reason=told)
                pause = asyncio.Event()
                self._later(_RETRY, pause.set)
                await pause.wait()
        config = self._config
        settings = config.replication
        assert config.store.path is not None
        loop = asyncio.get_running_loop()
        self._copier = LoopExecutor(loop)
        files = MemberDirectory(config.store.path, view.cluster, store_options(config.store))
        directory = settings.snapshot_directory
        self._policy = SnapshotPolicy(
            Snapshots(self._journal, self._copier, directory),
            files,
            self._copier,
            settings.name,
            SnapshotOptions(
                settings.snapshot_after, settings.snapshots, settings.keep_journal / 1000
            ),
            time.time,
            view.note_growth,
        )
        executor = LoopExecutor(loop)
        self._follower = follower = JournalFollower(
            files, Snapshots(self._journal, executor, directory), executor, self._failed
        )
        self._policy.source = follower
        self._policy.start()
        follower.start()
        self._woken.set()
