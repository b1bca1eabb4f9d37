"""The error messages of write tasks, with remedies."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.task_identity import TaskIdentity

if TYPE_CHECKING:
    from ferrymq import AmqpError, LinkDetached, LocalProtocolError, ManagementError
    from ferrymq_types.transport import Error

# The most rejected rows that an error names.
_SHOWN: Final = 10
_SMALLER: Final = (
    "Give tasks fewer rows (repartition, or maxOffsetsPerTrigger of the source), or raise"
    " transaction-work and transaction-bytes under [limits] of the broker"
)
_NOTHING: Final = "Nothing of the task is written"


def refused_row(work: TaskIdentity, address: str, row: int, error: Error | None) -> AmqpWriteError:
    """Return the error for a message that was not accepted in a transaction."""
    return AmqpWriteError(f"{work}: row {row} for {address!r}: {_text(error)}. {_NOTHING}")


def refused_rows(
    work: TaskIdentity, address: str, errors: Mapping[int, AmqpError]
) -> AmqpWriteError:
    """Return the error for messages that were not accepted without a transaction, by their rows."""
    shown = "; ".join(f"row {row}: {error}" for row, error in list(errors.items())[:_SHOWN])
    more = len(errors) - _SHOWN
    return AmqpWriteError(
        f"{work}: {len(errors)} rows for {address!r} were not accepted: {shown}"
        f"{f'; and {more} more' if more > 0 else ''}. The others are written, and will be again if"
        " Spark repeats the task"
    )


def too_large(work: TaskIdentity, address: str, row: int, size: int, limit: int) -> AmqpWriteError:
    """Return the error for a message that is larger than the node allows."""
    return AmqpWriteError(
        f"{work}: row {row} for {address!r}: amqp:link:message-size-exceeded: a message of {size}"
        f" bytes, and at most {limit} are taken (max-message-size of the broker). {_NOTHING}"
    )


def unattached(work: TaskIdentity, address: str, error: LinkDetached) -> AmqpWriteError:
    """Return the error for an address that refuses a link."""
    from ferrymq.partitioning import PARTITIONS_ON

    info = None if error.error is None else error.error.info
    if info is not None and PARTITIONS_ON in info:
        if address == work.target:
            remedy = "They were on one broker when the batch was planned: run it again"
        else:
            remedy = "Rows get there only if the option 'address' names the stream, not a column"
        return AmqpWriteError(
            f"{work}: the partitions of {address!r} are on several brokers. {remedy}. {_NOTHING}"
        )
    return AmqpWriteError(f"{work}: {address!r} takes no messages: {error}. {_NOTHING}")


def on_another_broker(
    work: TaskIdentity, address: str, error: LocalProtocolError
) -> AmqpWriteError:
    """Return the error for a partition to which a link is redirected: a transaction is on one
    broker."""
    return AmqpWriteError(
        f"{work}: {address!r} is on another broker than the transaction: {error}. {_NOTHING}. Is it"
        " a partition of a stream on several brokers? Then let the option 'address' name the stream"
    )


def no_transactions(work: TaskIdentity, place: str, error: AmqpError) -> AmqpWriteError:
    """Return the error for a broker without transactions."""
    return AmqpWriteError(
        f"{work}: {place} has no transactions: {error}. {_NOTHING}. Give the option 'delivery' ="
        " at-least-once"
    )


def rolled_back(work: TaskIdentity, error: Error | None, otherwise: object) -> AmqpWriteError:
    """Return the error for a transaction that could not be committed."""
    if error is None:
        return AmqpWriteError(f"{work}: {otherwise}. {_NOTHING}")
    info = error.info or {}
    if error.condition == "ferrymq:fence-width":
        return AmqpWriteError(other_width(work, info.get("width")))
    if "limit" in info:
        return AmqpWriteError(f"{work}: {_text(error)}. {_SMALLER}. {_NOTHING}")
    if error.condition == "amqp:transaction:timeout":
        return AmqpWriteError(
            f"{work}: {_text(error)}. {_SMALLER.split(',')[0]}), or raise transaction-timeout under"
            f" [limits] of the broker. {_NOTHING}"
        )
    if error.condition == "amqp:resource-limit-exceeded" and "fences" in str(error.description):
        return AmqpWriteError(
            f"{work}: {_text(error)}. Delete the fences of queries and jobs that have ended, with"
            f" ferrymq admin, or raise [nodes] limit of the broker. {_NOTHING}"
        )
    return AmqpWriteError(f"{work}: {_text(error)}. {_NOTHING}")


def other_width(work: TaskIdentity, width: object) -> str:
    """Return the message for a batch that was committed by another number of tasks."""
    return (
        f"{work}: the batch has been written, or begun, by {width} tasks, and now there are"
        f" {work.width}. Rows would be split in another way: restore the partitioning, with"
        f" repartition({width}) and the option 'tasks' = {width}, until the batch is done"
    )


def other_count(work: TaskIdentity, found: int) -> str:
    """Return the message for a batch whose number of tasks differs from the option 'tasks'."""
    return (
        f"batch {work.sequence} of {work.group!r} was written by {found} tasks, and the option"
        f" 'tasks' says {work.width}: restore the partitioning with repartition({work.width}), or"
        f" give the option 'tasks' = {found}"
    )


def other_brokers(work: TaskIdentity) -> AmqpWriteError:
    """Return the error for a batch that was begun with another list of brokers."""
    return AmqpWriteError(
        f"batch {work.sequence} of {work.group!r} was begun with other brokers than those that the"
        " option 'url' leads to now, or with other partitions on them, and rows are divided among"
        f" these. {_NOTHING} this time. Restore the option 'url', or the partitions-on of the"
        " stream, as it was until the batch is done, and change it after that. If a broker of the"
        " batch is gone for good, delete the query's fences on the other brokers"
        f" (ferrymq admin delete fence {work.group}): then rows of this batch may be there twice"
    )


def behind(work: TaskIdentity, last: int) -> AmqpWriteError:
    """Return the error for a batch that is older than the last one at the target."""
    if not work.of_query:
        return AmqpWriteError(
            f"{work}: {last} is the last 'txnVersion' that {work.group!r} has written to"
            f" {work.target!r}, and {work.sequence} is lower. {_NOTHING}. Give the rows a higher"
            " 'txnVersion', or another 'txnAppId'"
        )
    return AmqpWriteError(
        f"{work}: {work.target!r} has batch {last} of this query already, so its checkpoint is"
        " older than what has been written: has it been restored from a copy, or is the query"
        f" running twice? {_NOTHING}. Spark would not read again what it read then, so rows may be"
        " there already, or not: compare the target with the source. To continue from the"
        " checkpoint, with duplicate rows, delete the fences of the query: ferrymq admin delete"
        f" fence {work.group}. To continue after the rows that are there, start with a new"
        " checkpoint and the option 'startingOffsets'"
    )


def other_content(work: TaskIdentity, error: object) -> AmqpWriteError:
    """Return the error for work that has been committed with other rows."""
    again = (
        "the source is not the same, the query was changed, or its checkpoint has been restored"
        if work.of_query
        else "this is other work under the same 'txnAppId' and 'txnVersion'"
    )
    return AmqpWriteError(
        f"{work}: it has been written to {work.target!r} before, with other rows than now:"
        f" {error}. {_NOTHING} this time. Either {again}; or the rows differ in each run, as with"
        " rand(), uuid() or the time of day. If they do, and the rows written first are to stay,"
        " give the option 'deterministic' = false: then a batch is identified by its number"
        " alone"
    )


def unanswered(work: TaskIdentity, refused: ManagementError) -> AmqpWriteError:
    """Return the error for a fence that the broker does not report."""
    reason = f"{refused.description} ({refused.status})"
    if refused.status == HTTPStatus.FORBIDDEN:
        return AmqpWriteError(
            f"{work}: the broker does not report the last batch: {reason}. To write exactly"
            f" once, a user needs the right to send to {work.target!r}, or to the fences '$fence/*'"
        )
    return AmqpWriteError(
        f"{work}: the broker does not report the last batch: {reason}. Is it older than this"
        " package? It must support fences with a target"
    )


def _text(error: Error | None) -> str:
    if error is None:
        return "not accepted, and no reason given"
    if error.description is None:
        return str(error.condition)
    hint = ""
    if "x-opt-partition " in error.description:
        hint = ". The column 'partition' chooses it; drop the column, and the broker chooses"
    return f"{error.condition}: {error.description}{hint}"
