"""Known brokers: how they differ from what the client would expect of any peer.

Each row of `KNOWN` says how a broker is recognised, which versions it is about, the facts, and
where the knowledge comes from. A peer that no row fits has the facts that `Peer` has by default.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ferrymq_types.transport import Open

POSITION: Final = "ferrymq:position"
"""ferrymq's filter for a position in a stream."""

RABBITMQ_POSITION: Final = "rabbitmq:stream-offset-spec"
"""RabbitMQ's filter for a position in a stream."""

RABBITMQ_MANAGEMENT: Final = "ferrymq.rabbitmq.management"
"""Module with the management of RabbitMQ since version 4."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Facts about the peer of a connection.

    `name` and `version` are those of its product, empty if the peer does not state them.
    """

    name: str = ""
    version: str = ""
    ends_sessions: bool = False
    """Whether a refused link, transfer or outcome ends the session, with every other link on it."""
    cancels_with_session: bool = False
    """Whether a detached receiver is still given messages, until its session ends."""
    forgets_begins: bool = False
    """Whether a begin may stay unanswered that comes on a channel right behind the ends of the
    session before."""
    resumes: bool = True
    """Whether links can be resumed with their unsettled deliveries."""
    lacks: tuple[tuple[str, str], ...] = ()
    """Things that the broker does not have, each as a part of the text of the error that says so,
    and a name."""
    refuses_transfers: tuple[str, ...] = ()
    """Parts of error texts that are about a message that was sent, not about a link."""
    refuses_outcomes: tuple[str, ...] = ()
    """Parts of error texts that are about the outcome of a message that was received."""
    unknown_outcomes: tuple[str, ...] = ()
    """Outcomes that the broker cannot read, although the sources that it attaches list them."""
    keeps_copies: bool = False
    """Whether messages stay in the node if the distribution-mode is *copy* (AMQP 1.0 §3.5.7)."""
    removes_when_sent: bool = False
    """Whether a message that was sent does not come back, whatever its outcome."""
    returns: str = ""
    """Effect on messages that are given back, if that matters."""
    managed_by: str = ""
    """Name of what manages the broker, if it has no node ``$management``; empty if it may have
    one."""
    drains: bool = True
    """Whether it answers a drain (AMQP 1.0 §2.6.7)."""
    applies: tuple[str, ...] | None = None
    """Beginnings of the names of the filters that the broker applies; None if its answer tells."""
    instead: str = ""
    """Advice: what to use in place of other filters."""
    position: str | None = POSITION
    """The filter that says where to begin in a stream; None if there is none."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip() or "the peer"

    def lack(self, description: str | None) -> str:
        """Return what to append to an error with this description: what the broker does not have;
        empty if nothing is known."""
        for part, thing in self.lacks:
            if description is not None and part in description:
                return f": {self} has no {thing}"
        return ""


# The max-frame-size of an open that states none (AMQP 1.0 §2.7.1).
_NO_LIMIT: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class KnownPeer:
    """Row of the table: the peers that it is about, and their facts.

    A peer is recognised by `product` in the properties of its open; by its container-id, which
    others may have too, only if the open says nothing else: no properties, capabilities and
    max-frame-size. The row is about the versions from `since` on and before `before`. `source` says
    where the knowledge comes from.
    """

    facts: Peer
    source: str
    product: str | None = None
    container_id: str | None = None
    since: tuple[int, ...] = ()
    before: tuple[int, ...] | None = None

    def fits(self, open: Open) -> bool:
        """Return whether the row is about the peer with this open."""
        product = _text(open, "product")
        if self.product is not None:
            version = _numbers(_text(open, "version"))
            return (
                product == self.product
                and self.since <= version
                and (self.before is None or version < self.before)
            )
        plain = not open.properties and not open.offered_capabilities
        return plain and open.max_frame_size == _NO_LIMIT and self.container_id == open.container_id


# The platform that such a broker states begins with this.
_FERRYMQ: Final = "ferrymq/"

_RABBITMQ_LACKS: Final = (
    ("Dynamic sources not supported", "dynamic nodes"),
    ("Dynamic targets not supported", "dynamic nodes"),
    ("Transactions not supported", "transactions"),
    ("Link recovery not supported", "resumption of links"),
)

_RABBITMQ_RETURNS: Final = "a quorum queue counts each as a delivery, up to its delivery-limit"
_RABBITMQ_INSTEAD: Final = (
    "streams have rabbitmq:stream-filter, queues have no filters: bind a queue to an exchange"
)

_RABBITMQ_4: Final = Peer(
    "RabbitMQ",
    ends_sessions=True,
    forgets_begins=True,
    resumes=False,
    lacks=_RABBITMQ_LACKS,
    refuses_transfers=("user_id property set to", "failed_to_parse_constructor"),
    returns=_RABBITMQ_RETURNS,
    applies=("rabbitmq:",),
    instead=_RABBITMQ_INSTEAD,
    managed_by=RABBITMQ_MANAGEMENT,
    position=RABBITMQ_POSITION,
)

KNOWN: Final = (
    KnownPeer(
        Peer("ferrymq", keeps_copies=True),
        "this project",
        product="ferrymq",
    ),
    KnownPeer(
        _RABBITMQ_4,
        "seen with 4.0.5 on 2026-11-26",
        product="RabbitMQ",
        since=(4,),
        before=(4, 1),
    ),
    KnownPeer(
        replace(_RABBITMQ_4, applies=("rabbitmq:", "amqp:", "sql-filter")),
        "its documents: 4.1 filters streams by properties, 4.2 by SQL; not tried",
        product="RabbitMQ",
        since=(4, 1),
    ),
    KnownPeer(
        Peer(
            "RabbitMQ",
            ends_sessions=True,
            forgets_begins=True,
            cancels_with_session=True,
            resumes=False,
            lacks=_RABBITMQ_LACKS,
            refuses_transfers=("user_id property set to",),
            refuses_outcomes=("Unrecognised state",),
            unknown_outcomes=("amqp:modified:list",),
            returns=_RABBITMQ_RETURNS,
            drains=False,
            applies=(),
            instead="this version applies no filters",
            managed_by="its command rabbitmqctl or its HTTP API",
            position=None,
        ),
        "seen with 3.10.8 and its plugin rabbitmq_amqp1_0 on 2026-11-26",
        product="RabbitMQ",
        before=(4,),
    ),
    KnownPeer(
        Peer("ActiveMQ", keeps_copies=True),
        "seen with 5.17.2 on 2026-11-23; its product from its source",
        product="ActiveMQ",
    ),
    KnownPeer(
        Peer("ActiveMQ Artemis", keeps_copies=True),
        "its documents, its product from its source; not tried",
        product="apache-activemq-artemis",
    ),
    KnownPeer(
        Peer(
            "Proton's example broker",
            removes_when_sent=True,
            drains=False,
            applies=(),
            instead="this broker applies no filters",
            position=None,
        ),
        "seen with 0.37 on 2026-11-26",
        container_id="broker",
    ),
)
"""The known brokers; of several rows that fit, the first applies."""


def recognise(open: Open) -> Peer:
    """Return what is known about the peer with this open."""
    name, version = _text(open, "product"), _text(open, "version")
    for known in KNOWN:
        if known.fits(open):
            facts = replace(known.facts, version=version)
            if _text(open, "platform").startswith(_FERRYMQ):
                # A broker of this project that serves clients of another broker: it has its own
                # management as well.
                facts = replace(facts, managed_by="")
            return facts
    return Peer(name, version)


def _text(open: Open, key: str) -> str:
    value = (open.properties or {}).get(key)
    return value if isinstance(value, str) else ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
