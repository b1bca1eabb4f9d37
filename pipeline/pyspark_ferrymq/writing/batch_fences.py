"""Fences at the broker: the progress of a query or job, and the mark of a complete batch.

Each task has a fence of its own, for its target. When all tasks of a batch have committed, the
driver commits one more fence, for the member `WHOLE`, with the number of tasks: from then on the
batch is complete. If a batch was begun but is not complete, tasks that have committed do nothing,
and the others write their rows. That is correct only with the same number of tasks as before.

A fence has the digest of the rows it was committed with. The digest of a batch is the sum of the
digests of its tasks. Spark repeats only its last batch. A batch that is older than the last one, or
that has other rows than before, is not a repetition, and is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pyspark_ferrymq.data_loss import LOGGER
from pyspark_ferrymq.errors import AmqpSourceError, AmqpWriteError
from pyspark_ferrymq.writing.error_messages import (
    behind,
    other_brokers,
    other_content,
    other_count,
    other_width,
    unanswered,
)
from pyspark_ferrymq.writing.retry import Outage, retrying, was_lost
from pyspark_ferrymq.writing.task_identity import LIST, WHOLE, TaskIdentity, WrittenRows

if TYPE_CHECKING:
    from ferrymq import Digest, Fence
    from ferrymq.blocking import ManagementClient
    from ferrymq.fence import Algorithm
    from pyspark_ferrymq.worker_connections import WorkerConnection
    from pyspark_ferrymq.writing.options import SinkOptions

_TYPE: Final = "org.ferrymq.fence"
# How many members above the current number of tasks are checked, because a batch may have been
# begun by more tasks.
_BEYOND: Final = 64


@dataclass(frozen=True, slots=True)
class FenceState:
    """The last commit of a member. A fence of an older release has an empty `target` and no
    `digest`; rows that may differ from one attempt to the next have no digest either."""

    sequence: int
    width: int
    target: str
    rows: int | None
    digest: str | None

    def is_of(self, written: WrittenRows) -> bool:
        """Return whether this is the commit of the rows that a task has written."""
        if self.digest is None or written.digest is None:
            return self.digest is None and written.digest is None
        return self.rows == written.rows and self.digest == written.digest.hex()

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of the digest: older releases have written SHA-256."""
        from ferrymq import Digest

        return Digest(0, bytes.fromhex(self.digest or "")).algorithm


class FenceClient:
    """The fences of one piece of work. `done` is the fence by which the work was committed, that of
    the `whole` batch or its own; None if it was not committed.

    Raises `AmqpWriteError` if the broker has no fences, has a later batch, or has this batch with
    another number of tasks.
    """

    def __init__(
        self, connection: WorkerConnection, options: SinkOptions, work: TaskIdentity
    ) -> None:
        settings = options.connection
        if connection.connection.remote_properties.get("product") != "ferrymq":
            raise AmqpWriteError(
                f"{settings.place} is not a ferrymq broker and has no fences, which writing exactly"
                " once needs; give the option 'delivery' = at-least-once, or"
                " transactional"
            )
        self._management = connection.management()
        self._deterministic = options.deterministic
        self._work = work
        mine = [work.member] if work.partition >= 0 else []
        found = self._read([LIST, WHOLE, *mine])
        begun = found.get(LIST)
        if not work.broker and begun is not None and begun.sequence == work.sequence:
            # Other brokers have a part of the rows of this batch.
            raise other_brokers(work)
        self.done = self._committed(found.get(WHOLE))
        self.whole = self.done is not None
        if self.done is None:
            self.done = self._committed(found.get(work.member))

    @property
    def comparable(self) -> bool:
        """Whether the rows of the work must equal the committed rows."""
        return self._deterministic and self.done is not None and self.done.digest is not None

    def repeat(self, member: str, digest: Digest | None) -> int:
        """Tell the broker that the work was repeated, and return how many rows are skipped.

        Raises `AmqpWriteError` if the rows differ from the committed ones.
        """
        work, done = self._work, self.done
        assert done is not None
        arguments = self._arguments(member) | {"sequence": done.sequence}
        if digest is not None:
            arguments |= {"rows": digest.rows, "digest": digest.value}
        from ferrymq import ManagementError

        try:
            self._management.request("REPEAT", _TYPE, body=arguments)
        except ManagementError as refused:
            if refused.status == HTTPStatus.CONFLICT:
                raise other_content(work, refused.description) from None
            raise unanswered(work, refused) from None
        skipped = done.rows or 0
        of = f"{work.group!r} at {work.target!r}"
        which = f"batch {work.sequence} of {of}" if member == WHOLE else str(work)
        LOGGER.warning(
            "%s was committed before%s: it is not written again",
            which,
            f", with {skipped} rows" if done.rows is not None else "",
        )
        return skipped

    def check_beyond(self, tasks: int) -> None:
        """Raise `AmqpWriteError` if the batch was begun by more tasks than there are now."""
        work = self._work
        for member, found in self._read(map(str, range(tasks, tasks + _BEYOND))).items():
            if found.sequence >= work.sequence:
                raise AmqpWriteError(
                    f"batch {work.sequence} of {work.group!r} was begun with at least"
                    f" {int(member) + 1} tasks, and now there were {tasks}: rows may be missing and"
                    " others be there twice. Compare the target with the source, and keep the"
                    " partitioning of a query while a batch is under way"
                )

    def _committed(self, found: FenceState | None) -> FenceState | None:
        """Return a member's fence if it says that the work is committed, else None."""
        work = self._work
        if found is None or found.sequence < work.sequence:
            return None
        if found.sequence > work.sequence and found.target:
            raise behind(work, found.sequence)
        if found.sequence == work.sequence and found.width and work.width:
            if found.width != work.width:
                raise AmqpWriteError(other_width(work, found.width))
        return found

    def _read(self, members: Iterable[str]) -> dict[str, FenceState]:
        """Return the fences of those of the members that have one."""
        from ferrymq import ManagementError

        work = self._work
        arguments = {"group": work.group, "target": work.target, "members": list(members)}
        try:
            answer = self._management.request("MEMBERS", _TYPE, body=arguments).body
        except ManagementError as refused:
            raise unanswered(work, refused) from None
        fences = answer.get("fences") if isinstance(answer, dict) else None
        if not isinstance(fences, list):
            raise AmqpSourceError(f"the broker answers {answer} for the fences of {work.group!r}")
        return {str(one["member"]): _state(one, work) for one in fences}

    def _arguments(self, member: str) -> dict[str, object]:
        return {"group": self._work.group, "member": member, "target": self._work.target}


def read_fence(
    management: ManagementClient,
    work: TaskIdentity,
    operation: str,
    arguments: Mapping[str, object],
) -> FenceState | None:
    """Ask for a fence with READ or LATEST; return None if there is none."""
    from ferrymq import ManagementError

    try:
        response = management.request(operation, _TYPE, body=arguments)
    except ManagementError as refused:
        if refused.status == HTTPStatus.NOT_FOUND:
            return None
        raise unanswered(work, refused) from None
    return _state(response.body if isinstance(response.body, dict) else {}, work)


def _state(answer: Mapping[str, Any], work: TaskIdentity) -> FenceState:
    sequence, width, rows, digest = (
        answer.get(key) for key in ("sequence", "width", "rows", "digest")
    )
    if not isinstance(sequence, int) or not isinstance(width, int):
        raise AmqpSourceError(f"the broker answers {answer} for the fence of {work.group!r}")
    return FenceState(
        int(sequence),
        int(width),
        str(answer.get("target") or ""),
        int(rows) if isinstance(rows, int) else None,
        digest if isinstance(digest, str) else None,
    )


def fence_of(work: TaskIdentity) -> Fence:
    """Return the fence of a task's transaction."""
    from ferrymq import Fence

    return Fence(work.group, work.member, work.sequence, work.width, work.target)


def finish(options: SinkOptions, messages: Sequence[WrittenRows | None]) -> None:
    """Record at the broker that all tasks of a batch have committed; runs in the driver.

    Raises `AmqpWriteError` if the number of tasks is wrong, or if a batch that was written before
    has other rows now.
    """
    written = [message for message in messages if message is not None]
    if not written:
        return
    work = written[0].work
    at = f" at the broker {work.broker!r}" if work.broker else ""
    batch = f"batch {work.sequence} of {work.group!r}{at}"
    outage = Outage(f"{batch}: its last step", options.retry_timeout)
    retrying(
        options.connection,
        work.role,
        outage,
        lambda connection: _finish(connection, options, written),
    )


def _finish(
    connection: WorkerConnection, options: SinkOptions, written: Sequence[WrittenRows]
) -> None:
    from dataclasses import replace

    work = replace(written[0].work, partition=-1)
    tasks = len(written)
    digest = _sum(written)
    if any(message.repeated for message in written):
        # A complete batch stays complete, whatever number of tasks has written it.
        fences = FenceClient(connection, options, replace(work, width=0))
        if fences.whole:
            fences.repeat(WHOLE, digest if fences.comparable else None)
            return
        fences.check_beyond(tasks)
    elif not any(message.rows for message in written):
        # Spark writes a batch without partitions in one task; the number of tasks means nothing.
        _record(connection, work, 0, digest)
        return
    elif work.width and work.width != tasks:
        # All rows are written. A repetition may use the old number of tasks, or that in the option.
        _record(connection, work, 0, digest)
        raise AmqpWriteError(other_count(work, tasks))
    if work.width and work.width != tasks:
        raise AmqpWriteError(
            f"{other_count(work, tasks)}. It was begun before: rows may be missing and others be"
            " there twice"
        )
    _record(connection, work, tasks, digest)


def _sum(written: Sequence[WrittenRows]) -> Digest | None:
    """Return the digest of all rows of a batch; None if the digest of a task is unknown, or those
    of tasks cannot be added."""
    from ferrymq import Digest

    total: Digest | None = None
    for message in written:
        if message.digest is None:
            return None
        rows = message.skipped if message.repeated else message.rows
        digest = Digest(rows, message.digest)
        if total is None:
            total = digest
        elif total.algorithm == digest.algorithm:
            total.merge(digest)
        else:
            # Another release has written a part of the batch.
            return None
    return total


def _record(
    connection: WorkerConnection, work: TaskIdentity, tasks: int, digest: Digest | None
) -> None:
    """Commit the fence of the complete batch."""
    from ferrymq import AmqpError, Fence, FenceMismatch, FencePassed

    fence = Fence(work.group, WHOLE, work.sequence, tasks, work.target)
    try:
        connection.connection.transaction(fence=fence).commit(digest=digest)
    except FencePassed as passed:
        # The fence was recorded before: by this driver, which got no answer, or by an earlier
        # driver.
        if passed.sequence > work.sequence:
            raise behind(work, passed.sequence) from None
    except FenceMismatch as error:
        raise other_content(work, error) from None
    except AmqpError as error:
        if was_lost(error):
            raise
        raise AmqpWriteError(
            f"batch {work.sequence} of {work.group!r} is written, but the broker does not have"
            f" its fence: {error}"
        ) from None
