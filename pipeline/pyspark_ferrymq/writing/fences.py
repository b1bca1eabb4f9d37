"""Asking the broker how far a query or job has got, and telling it that a batch is whole.

Each task has a fence of its own. When all tasks of a batch have committed, the driver commits one
more, for the member `WHOLE`, with the number of tasks: from then on the batch is done, whoever
asks. Of a batch that was begun and is not whole, tasks that have committed do nothing, and the
others do their part; that is right only if there are as many tasks as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpSourceError, AmqpWriteError
from pyspark_ferrymq.management import NOT_FOUND, AmqpRefusedError, Management
from pyspark_ferrymq.options import ConnectionSettings
from pyspark_ferrymq.writing.work import WHOLE, Work, Written

if TYPE_CHECKING:
    from ferrymq import Fence
    from ferrymq.blocking import Connection

_TYPE: Final = "org.ferrymq.fence"
# How many members beyond those there are the driver looks for, of a batch that was begun before.
_BEYOND: Final = 64


class Fences:
    """The fences of one broker. Raises `AmqpWriteError` if it has none."""

    def __init__(self, connection: Connection, settings: ConnectionSettings) -> None:
        if connection.remote_properties.get("product") != "ferrymq":
            raise AmqpWriteError(
                f"{settings.place} is no ferrymq broker and knows no fences, without which nothing"
                " is written exactly once; give the option 'delivery' = at-least-once, or"
                " transactional"
            )
        self._management = Management(connection, settings.timeout)

    def done(self, work: Work) -> bool:
        """Whether the rows of the work are there, of this attempt or an earlier one.

        Raises `AmqpWriteError` if the work was shared out otherwise then.
        """
        for member in (WHOLE, work.member):
            found = self._read(work.group, member)
            if found is not None and found[0] >= work.sequence:
                _check_width(work, found)
                return True
        return False

    def check_beyond(self, work: Work, tasks: int) -> None:
        """Raise `AmqpWriteError` if the batch was begun by more tasks than there are."""
        for partition in range(tasks, tasks + _BEYOND):
            found = self._read(work.group, str(partition))
            if found is not None and found[0] >= work.sequence:
                raise AmqpWriteError(
                    f"batch {work.sequence} of {work.group!r} was begun with at least"
                    f" {partition + 1} tasks, and now there were {tasks}: rows may be missing and"
                    " others be there twice. Compare the target with the source, and keep the"
                    " partitioning of a query while a batch is under way"
                )

    def _read(self, group: str, member: str) -> tuple[int, int] | None:
        """Sequence and width of what a member has committed last."""
        try:
            answer = self._management.ask(
                "READ", _TYPE, arguments={"group": group, "member": member}
            )
        except AmqpRefusedError as refused:
            if refused.status == NOT_FOUND:
                return None
            raise AmqpWriteError(
                f"the broker does not say how far {group!r} has got: {refused}. Who writes exactly"
                f" once needs the right to send to the fence {group!r}"
            ) from None
        sequence, width = answer.get("sequence"), answer.get("width")
        if not isinstance(sequence, int) or not isinstance(width, int):
            raise AmqpSourceError(f"the broker answers {answer} for the fence of {group!r}")
        return int(sequence), int(width)


def fence_of(work: Work) -> Fence:
    """The fence of a task's transaction."""
    from ferrymq import Fence

    return Fence(work.group, work.member, work.sequence, work.width)


def finish(settings: ConnectionSettings, messages: Sequence[Written | None]) -> None:
    """All tasks of a batch have committed: say so at the broker. In the driver.

    Raises `AmqpWriteError` if there were more or fewer than there should be.
    """
    from ferrymq import AmqpError, Fence, FencePassed
    from pyspark_ferrymq.writing.task import connected

    written = [message for message in messages if message is not None]
    if not written:
        return
    work = written[0].work
    with connected(settings, f"driver/{work.sequence}") as connection:
        if any(message.repeated for message in written):
            fences = Fences(connection, settings)
            if fences.done(replace(work, partition=-1, width=0)):
                return
            fences.check_beyond(work, len(written))
        elif not any(message.rows for message in written):
            # Spark writes a batch without partitions in one task. Nothing has been shared out.
            _record(connection, Fence(work.group, WHOLE, work.sequence))
            return
        elif work.width and work.width != len(written):
            # All of it is there. The next time it may be shared out as it was, or as was said.
            _record(connection, Fence(work.group, WHOLE, work.sequence))
            raise AmqpWriteError(_other_count(work, len(written)))
        if work.width and work.width != len(written):
            raise AmqpWriteError(
                f"{_other_count(work, len(written))}. It was begun before: rows may be missing and"
                " others be there twice"
            )
        try:
            _record(connection, Fence(work.group, WHOLE, work.sequence, len(written)))
        except FencePassed:
            return
        except AmqpError as error:
            raise AmqpWriteError(
                f"batch {work.sequence} of {work.group!r} is written, and the broker could not be"
                f" told so: {error}"
            ) from None


def _record(connection: Connection, fence: Fence) -> None:
    with connection.transaction(fence=fence):
        pass


def _other_count(work: Work, found: int) -> str:
    return (
        f"batch {work.sequence} of {work.group!r} was written by {found} tasks, and the option"
        f" 'tasks' says {work.width}: restore the partitioning with repartition({work.width}), or"
        f" give the option 'tasks' = {found}"
    )


def _check_width(work: Work, found: tuple[int, int]) -> None:
    sequence, width = found
    if sequence == work.sequence and width and work.width and width != work.width:
        raise AmqpWriteError(other_width(work, width))


def other_width(work: Work, width: object) -> str:
    """The message for a batch that has been committed by another number of tasks."""
    return (
        f"{work}: the batch has been written, or begun, by {width} tasks, and now there are"
        f" {work.width}. It would be shared out otherwise: restore the partitioning, with"
        f" repartition({width}) and the option 'tasks' = {width}, until the batch is done"
    )
