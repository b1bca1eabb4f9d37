"""Asking a broker of ferrymq how far a writer has got (see `ferrymq.fence`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ferrymq.errors import FencePassed, PeerError, TransactionError, TransactionRolledBack
from ferrymq.fence import Fence
from ferrymq.message import Message

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq_types.transport import Error

_MANAGEMENT: Final = "$management"
PASSED: Final = "ferrymq:fence-passed"

_OK: Final = 200
_NOT_FOUND: Final = 404


async def read_fence(connection: Connection, group: str, member: str) -> int | None:
    """The sequence that a member has committed last; None if there is none.

    Raises `TransactionError` if the peer does not know fences, and what ended the connection.
    """
    name = f"fence-{uuid4()}"
    async with connection.session() as session:
        answers = await session.receiver(_MANAGEMENT, name=name, credit=1)
        requests = await session.sender(_MANAGEMENT)
        request = Message(
            None,
            message_id=name,
            reply_to=name,
            application_properties={
                "operation": "READ",
                "type": "org.ferrymq.fence",
                "group": group,
                "member": member,
            },
        )
        await requests.send(request)
        delivery = await answers.receive()
        answer = delivery.message
        await delivery.accept()
    status = answer.application_properties.get("statusCode")
    if status == _NOT_FOUND:
        return None
    body = answer.body
    sequence = body.get("sequence") if isinstance(body, dict) else None
    if status != _OK or not isinstance(sequence, int):
        reason = answer.application_properties.get("statusDescription")
        raise TransactionError(f"the peer does not say how far the fence is: {status} {reason}")
    return sequence


async def was_committed(connection: Connection, fence: Fence) -> bool | None:
    """Whether a transaction with the fence was committed, of which no answer came.

    Waits until the connection is there again. None if it is not restored. Raises `FencePassed` if
    its member has gone on meanwhile.
    """
    while not connection.closed and connection.recovery is not None:
        try:
            sequence = await read_fence(connection, fence.group, fence.member)
        except PeerError:
            # Lost again, or for good.
            continue
        if sequence is None or sequence < fence.sequence:
            return False
        if sequence > fence.sequence:
            raise FencePassed(f"member {fence.member!r} of {fence.group!r} is further", sequence)
        return True
    return None


def refusal(error: Error) -> TransactionRolledBack | None:
    """What a discharge that was rejected because of its fence raises; None for other reasons."""
    if error.condition != PASSED:
        return None
    sequence = None if error.info is None else error.info.get("sequence")
    return FencePassed(
        f"{error.condition}: {error.description}",
        sequence if isinstance(sequence, int) else -1,
        error,
    )
