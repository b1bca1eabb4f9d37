"""A pair of links on the initiator's side (Link Pairing 1.0 §2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ferrymq.engine.pairing import LINK_PAIR, are_paired, paired_properties
from ferrymq.errors import LocalProtocolError, Scope
from ferrymq_types.messaging import Source, Target

if TYPE_CHECKING:
    from ferrymq.engine.connection import Connection
    from ferrymq.engine.delivery import OutgoingDelivery
    from ferrymq.engine.receiver import ReceiverLink
    from ferrymq.engine.sender import SenderLink
    from ferrymq.engine.session import Session


@final
class LinkPair:
    """Two links of one name: requests go out on `sender`, responses come in on `receiver`."""

    __slots__ = ("sender", "receiver")

    def __init__(self, sender: SenderLink, receiver: ReceiverLink) -> None:
        self.sender: SenderLink = sender
        self.receiver: ReceiverLink = receiver

    @property
    def paired(self) -> bool:
        """Whether all conditions of a pair hold: both are attached and mirror each other."""
        return are_paired(self.sender, self.receiver)

    def send(self, payload: bytes, *, settled: bool = False) -> OutgoingDelivery:
        """Send an encoded request. To get the response over the pair, its reply-to must be `ME`.

        Raises as `SenderLink.send` does, and `LocalProtocolError` when the response would have
        no credit, which has to be given first (§2.2.2).
        """
        if self.receiver.credit <= 0:
            raise LocalProtocolError(
                "amqp:link:transfer-limit-exceeded",
                f"there is no credit for a response on link {self.receiver.name!r}",
                Scope.LINK,
            )
        return self.sender.send(payload, settled=settled)

    def close(self) -> None:
        """Close both links."""
        self.sender.close()
        self.receiver.close()


def attach_pair(
    session: Session,
    name: str,
    *,
    address: str,
    reply_address: str,
    credit: int = 1,
    properties: dict[str, object] | None = None,
    pipelined: bool = False,
) -> LinkPair:
    """Attach both halves of a pair and give `credit` for responses.

    Requests go to `address`; `reply_address` is ours, and has no meaning for other nodes. With
    `pipelined`, requests may be sent at once, as many as there is credit for responses: only for a
    peer that is known to give credit as soon as a link is attached (§2.2.2).

    Raises `LocalProtocolError` when our open did not desire the capability `LINK_PAIR` or the
    peer's did not offer it (§2.1.1); before the peer's open, only `pipelined` may be used.
    """
    expect_pairing(session.connection, pipelined)
    ours = paired_properties(properties)
    sender = session.attach_sender(
        name,
        source=Source(address=reply_address),
        target=Target(address=address),
        properties=ours,
    )
    receiver = session.attach_receiver(
        name,
        source=Source(address=address),
        target=Target(address=reply_address),
        properties=ours,
    )
    receiver.set_credit(credit)
    if pipelined:
        sender.assume_credit(credit)
    return LinkPair(sender, receiver)


def expect_pairing(connection: Connection, pipelined: bool = False) -> None:
    """Raise `LocalProtocolError` unless both opens allow us to attach pairs (§2.1.1)."""
    if LINK_PAIR not in (connection.settings.desired_capabilities or ()):
        raise _not_possible(f"our open does not desire {LINK_PAIR}")
    remote = connection.remote_open
    if remote is None:
        if not pipelined:
            raise _not_possible(f"whether the peer offers {LINK_PAIR} is not known yet")
    elif LINK_PAIR not in (remote.offered_capabilities or ()):
        raise _not_possible(f"the peer does not offer {LINK_PAIR}")


def _not_possible(why: str) -> LocalProtocolError:
    return LocalProtocolError("amqp:not-allowed", f"no links can be paired: {why}", Scope.LINK)
