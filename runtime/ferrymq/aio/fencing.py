"""Reading the fence of a writer from a broker of ferrymq (see `ferrymq.fence`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq.errors import (
    ConnectionClosed,
    FenceMismatch,
    FencePassed,
    ManagementError,
    PeerError,
    TransactionError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from ferrymq.fence import Committed, Digest, Fence

if TYPE_CHECKING:
    from ferrymq.aio.connection import Connection
    from ferrymq_types.transport import Error

PASSED: Final = "ferrymq:fence-passed"
OTHER_CONTENT: Final = "ferrymq:fence-content"

# The shortest pause after a refusal, in seconds.
_LEAST_PAUSE: Final = 0.1
_FORBIDDEN: Final = "amqp:unauthorized-access"
# The status of a response, as in HTTP.
_NOT_FOUND: Final = 404


async def read_fence(
    connection: Connection, group: str, member: str, target: str
) -> Committed | None:
    """Return the last work that a member has committed at a target; None if there is none.

    Raises `TransactionError` if the peer does not know fences, and what ended the connection.
    """
    arguments = {"group": group, "member": member}
    if target:
        arguments["target"] = target
    async with connection.session() as session:
        management = await session.management()
        try:
            response = await management.request(
                "READ", "org.ferrymq.fence", properties=arguments, timeout=None
            )
        except ManagementError as error:
            if error.status == _NOT_FOUND:
                return None
            raise _untold(f"{error.status} {error.description}") from error
    body = response.body
    sequence = body.get("sequence") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(sequence, int):
        raise _untold("the response has no sequence")
    width, rows, digest = (body.get(key) for key in ("width", "rows", "digest"))
    return Committed(
        int(sequence),
        int(width) if isinstance(width, int) else 0,
        str(body.get("target") or ""),
        (
            Digest(int(rows), bytes.fromhex(digest))
            if isinstance(rows, int) and isinstance(digest, str)
            else None
        ),
    )


def _untold(reason: str) -> TransactionError:
    return TransactionError(f"the peer does not say how far the fence is: {reason}")


async def was_committed(connection: Connection, fence: Fence, digest: Digest | None) -> bool | None:
    """Return whether a transaction with the fence, whose answer was lost, was committed.

    Waits until the connection is restored. Asks again, after a pause of the reconnect policy, if it
    is lost meanwhile or the peer refuses the links of the request, within the connection's timeout,
    because a refusal may be temporary. Returns None if the connection is not restored.

    Raises `FencePassed` if its member has committed a later sequence meanwhile, `FenceMismatch` if
    other content was committed under this fence, and `TransactionInDoubt` if the peer does not
    answer.
    """
    recovery = connection.recovery
    if recovery is None:
        return None
    policy = recovery.policy
    pauses = policy.pauses()
    patience = connection.within("default")
    while not connection.closed:
        try:
            found = await read_fence(connection, fence.group, fence.member, fence.target)
        except (PeerError, TransactionError) as error:
            pause = next(pauses, None)
            final = isinstance(error, TransactionError) or error.condition == _FORBIDDEN
            if (
                not isinstance(error, ConnectionClosed)
                and patience is not None
                and pause is not None
            ):
                patience -= max(pause, _LEAST_PAUSE)
                final = final or patience <= 0
            if final or pause is None:
                raise TransactionInDoubt(
                    f"the answer to the commit was lost, so it was done or not, and the peer did "
                    f"not tell the fence: {error}",
                    error.error,
                ) from error
            await policy.sleep(pause)
            continue
        if found is None or found.sequence < fence.sequence:
            return False
        who = f"member {fence.member!r} of {fence.group!r}"
        if found.sequence > fence.sequence:
            raise FencePassed(f"{who} is further", found.sequence)
        if digest is not None and found.digest is not None and digest != found.digest:
            raise FenceMismatch(f"{who} has committed {found.digest}, and this is {digest}")
        return True
    return None


def refusal(error: Error) -> TransactionRolledBack | None:
    """Return the error of a discharge that was rejected because of its fence; None for other
    reasons."""
    text = f"{error.condition}: {error.description}"
    if error.condition == OTHER_CONTENT:
        return FenceMismatch(text, error)
    if error.condition != PASSED:
        return None
    sequence = None if error.info is None else error.info.get("sequence")
    return FencePassed(text, sequence if isinstance(sequence, int) else -1, error)
