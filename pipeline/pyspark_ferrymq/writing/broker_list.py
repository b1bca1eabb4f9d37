"""The list of brokers of a batch, which must not change until the batch is done.

Rows are divided among the brokers. With other brokers, they are divided in another way: rows that
one broker has would be written to another one too. So before anything of a batch is written, each
broker of the list commits a fence of the member `LIST`, with a digest of the list. A task that
finds another digest, or a batch that was begun without such a fence, writes nothing.

If the partitions of the stream are on several brokers, the list has the broker of each partition.
With another number of partitions, rows are divided in another way, too. If partitions were added
since the batch was begun, its tasks go on without them: the fence has the number that there were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.batch_fences import FenceState, read_fence
from pyspark_ferrymq.writing.error_messages import behind, other_brokers
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.retry import Outage, retrying, was_lost
from pyspark_ferrymq.writing.targets import SinkTargets
from pyspark_ferrymq.writing.task_identity import LIST, TaskIdentity

if TYPE_CHECKING:
    from ferrymq import Digest
    from ferrymq.blocking import ManagementClient
    from pyspark_ferrymq.worker_connections import WorkerConnection


def digest_of(targets: SinkTargets) -> Digest:
    """Return the digest of a list of brokers: the number of lines, and 16 bytes of the SHA-256 of
    the lines with line breaks between them.

    The lines are the sorted ids of the brokers. If the partitions of the stream are on several
    brokers, they are the partitions with the ids of their brokers, as in ``3 ID``.
    """
    from ferrymq import Digest

    ids = [options.connection.broker for options in targets.brokers]
    lines = sorted(ids)
    if targets.owners:
        lines = [f"{number} {ids[index]}" for number, index in enumerate(targets.owners)]
    return Digest(len(lines), sha256("\n".join(lines).encode()).digest()[:16])


def record_brokers(targets: SinkTargets, work: TaskIdentity) -> SinkTargets:
    """Record at all brokers the list of brokers of a batch, or check the one that is there. Return
    the targets that the batch was begun with.

    All brokers are asked before the first of them records anything. Raises `AmqpWriteError` if the
    batch was begun with another list.
    """
    try:
        _record(targets, work)
    except _FewerPartitions as earlier:
        targets = targets.of_first(earlier.partitions)
        _record(targets, work)
    return targets


def _record(targets: SinkTargets, work: TaskIdentity) -> None:
    records = [
        _ListRecord(options, replace(work, broker=options.connection.broker), targets)
        for options in targets.brokers
    ]
    for record in [one for one in records if not one.over_connection(one.is_there)]:
        record.over_connection(record.commit)


class _FewerPartitions(Exception):
    """A batch was begun when the stream had only its first partitions."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.partitions = partitions


class _ListRecord:
    """The fence of the member `LIST` at one broker."""

    def __init__(self, options: SinkOptions, work: TaskIdentity, targets: SinkTargets) -> None:
        self._options = options
        self._work = work
        self._targets = targets
        self._digest = digest_of(targets)

    def over_connection(self, step: Callable[[WorkerConnection], bool]) -> bool:
        """Do a step over a connection, again if it is lost, and return its result."""
        work = self._work
        outage = Outage(f"{work}: its first step", self._options.retry_timeout)
        return retrying(self._options.connection, work.role, outage, step)

    def is_there(self, connection: WorkerConnection) -> bool:
        """Return whether the broker has the list of this batch.

        Raises `AmqpWriteError` if it has another one, or has begun the batch without a list, and
        `_FewerPartitions`.
        """
        management = connection.management()
        if self._is_recorded(management):
            return True
        group = {"group": self._work.group, "target": self._work.target}
        latest = read_fence(management, self._work, "LATEST", group)
        if latest is None or latest.sequence < self._work.sequence:
            return False
        # Another task may have recorded the list in the meantime, and committed.
        if self._is_recorded(management):
            return True
        if latest.sequence > self._work.sequence:
            raise behind(self._work, latest.sequence)
        raise other_brokers(self._work)

    def commit(self, connection: WorkerConnection) -> bool:
        """Record the list. Raises `AmqpWriteError` if another one is there now."""
        from ferrymq import AmqpError, Fence, FenceMismatch, FencePassed

        work = self._work
        fence = Fence(work.group, LIST, work.sequence, 0, work.target)
        try:
            connection.connection.transaction(fence=fence).commit(digest=self._digest)
        except FenceMismatch:
            raise other_brokers(work) from None
        except FencePassed as passed:
            # Another task was faster.
            if passed.sequence > work.sequence:
                raise behind(work, passed.sequence) from None
        except AmqpError as error:
            if was_lost(error):
                raise
            raise AmqpWriteError(f"{work}: the list of brokers is not recorded: {error}") from None
        return True

    def _is_recorded(self, management: ManagementClient) -> bool:
        work = self._work
        key = {"group": work.group, "member": LIST, "target": work.target}
        found = read_fence(management, work, "READ", key)
        if found is None or found.sequence < work.sequence:
            return False
        if found.sequence > work.sequence:
            raise behind(work, found.sequence)
        if _is_of(found, self._digest):
            return True
        if self._targets.owners and found.rows is not None and found.rows < self._digest.rows:
            if _is_of(found, digest_of(self._targets.of_first(found.rows))):
                raise _FewerPartitions(found.rows)
        raise other_brokers(work)


def _is_of(found: FenceState, digest: Digest) -> bool:
    return found.digest == digest.value.hex() and found.rows == digest.rows
