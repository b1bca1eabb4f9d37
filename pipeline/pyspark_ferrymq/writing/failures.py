"""What went wrong with the messages of a task, in words that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpWriteError
from pyspark_ferrymq.writing.fences import other_width
from pyspark_ferrymq.writing.work import Work

if TYPE_CHECKING:
    from ferrymq import AmqpError
    from ferrymq_types.transport import Error

# How many rejected rows an error names.
_SHOWN: Final = 10
_SMALLER: Final = (
    "Give tasks fewer rows (repartition, or maxOffsetsPerTrigger of the source), or raise"
    " transaction-work and transaction-bytes under [limits] of the broker"
)
_NOTHING: Final = "Nothing of the task is written"


def refused_row(work: Work, address: str, row: int, error: Error | None) -> AmqpWriteError:
    """One message was not accepted, in a transaction."""
    return AmqpWriteError(f"{work}: row {row} for {address!r}: {_text(error)}. {_NOTHING}")


def refused_rows(work: Work, address: str, errors: Mapping[int, AmqpError]) -> AmqpWriteError:
    """Messages were not accepted, outside of a transaction; `errors` are by their rows."""
    shown = "; ".join(f"row {row}: {error}" for row, error in list(errors.items())[:_SHOWN])
    more = len(errors) - _SHOWN
    return AmqpWriteError(
        f"{work}: {len(errors)} rows for {address!r} were not accepted: {shown}"
        f"{f'; and {more} more' if more > 0 else ''}. The others are written, and will be again if"
        " Spark repeats the task"
    )


def too_large(work: Work, address: str, row: int, size: int, limit: int) -> AmqpWriteError:
    """A message is larger than the node takes."""
    return AmqpWriteError(
        f"{work}: row {row} for {address!r}: amqp:link:message-size-exceeded: a message of {size}"
        f" bytes, and at most {limit} are taken (max-message-size of the broker). {_NOTHING}"
    )


def unattached(work: Work, address: str, error: AmqpError) -> AmqpWriteError:
    """There is no link to the address."""
    return AmqpWriteError(f"{work}: {address!r} takes no messages: {error}. {_NOTHING}")


def rolled_back(work: Work, error: Error | None, otherwise: object) -> AmqpWriteError:
    """The transaction could not be committed."""
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
            f"{work}: {_text(error)}. Delete those of queries and jobs that are over, with"
            f" ferrymq admin, or raise [nodes] limit of the broker. {_NOTHING}"
        )
    return AmqpWriteError(f"{work}: {_text(error)}. {_NOTHING}")


def _text(error: Error | None) -> str:
    if error is None:
        return "not accepted, and no reason given"
    if error.description is None:
        return str(error.condition)
    hint = ""
    if "x-opt-partition " in error.description:
        hint = ". The column 'partition' chooses it; drop the column, and the broker chooses"
    return f"{error.condition}: {error.description}{hint}"
