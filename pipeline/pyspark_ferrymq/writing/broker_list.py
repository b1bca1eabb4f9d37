"""The list of brokers of a batch, which must not change until the batch is done.

Rows are divided among the brokers. With other brokers, they are divided in another way: rows that
one broker has would be written to another one too. So before anything of a batch is written, each
broker of the list commits a fence of the member `LIST`, with a digest of the list. A task that
finds another digest, or a batch that was begun without such a fence, writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.batch_fences import read_fence
from pyspark_ferrymq.writing.error_messages import behind, other_brokers
from pyspark_ferrymq.writing.options import SinkOptions
from pyspark_ferrymq.writing.retry import Outage, retrying, was_lost
from pyspark_ferrymq.writing.task_identity import LIST, TaskIdentity

if TYPE_CHECKING:
    from ferrymq import Digest
    from ferrymq.blocking import ManagementClient
    from pyspark_ferrymq.worker_connections import WorkerConnection


def digest_of(brokers: Sequence[str]) -> Digest:
    """Return the digest of a list of brokers: their number, and 16 bytes of the SHA-256 of the
    sorted ids with line breaks between them."""
    from ferrymq import Digest

    text = "\n".join(sorted(brokers))
    return Digest(len(brokers), sha256(text.encode()).digest()[:16])


def record_brokers(targets: Sequence[SinkOptions], works: Sequence[TaskIdentity]) -> None:
    """Record at all brokers the list of brokers of a batch, or check the one that is there.

    All brokers are asked before the first of them records anything. Raises `AmqpWriteError` if the
    batch was begun with another list.
    """
    digest = digest_of([work.broker for work in works])
    records = [
        _ListRecord(options, work, digest) for options, work in zip(targets, works, strict=True)
    ]
    for record in [one for one in records if not one.over_connection(one.is_there)]:
        record.over_connection(record.commit)


class _ListRecord:
    """The fence of the member `LIST` at one broker."""

    def __init__(self, options: SinkOptions, work: TaskIdentity, digest: Digest) -> None:
        self._options = options
        self._work = work
        self._digest = digest

    def over_connection(self, step: Callable[[WorkerConnection], bool]) -> bool:
        """Do a step over a connection, again if it is lost, and return its result."""
        work = self._work
        outage = Outage(f"{work}: its first step", self._options.retry_timeout)
        return retrying(self._options.connection, work.role, outage, step)

    def is_there(self, connection: WorkerConnection) -> bool:
        """Return whether the broker has the list of this batch.

        Raises `AmqpWriteError` if it has another one, or has begun the batch without a list.
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
        if found.digest != self._digest.value.hex() or found.rows != self._digest.rows:
            raise other_brokers(work)
        return True
