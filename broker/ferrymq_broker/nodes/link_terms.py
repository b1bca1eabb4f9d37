"""The terms of a link: what it asks of a node, and what the node grants it (AMQP 1.0 §3.5).

The connection fills in what the client asks for, from its attach. The node fills in what it grants,
and the answer to the attach is made from that. So the answer always says what was really granted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.filters.filter_set import FilterSet
    from ferrymq_types.messaging import Source, Target


@final
class Party:
    """The party at the other end of a link, and its rights. Its numbers are unique in the
    broker."""

    __slots__ = ("connection", "session", "container_id", "user", "peer", "access")

    def __init__(
        self,
        connection: i64,
        session: i64,
        container_id: str,
        user: str | None,
        peer: str,
        access: ConnectionAccess,
    ) -> None:
        self.connection: i64 = connection
        self.session: i64 = session
        self.container_id: str = container_id
        # The authenticated user; None if the client is anonymous.
        self.user: str | None = user
        self.peer: str = peer
        self.access: ConnectionAccess = access


@final
class SourceTerms:
    """The terms of a link that takes messages from a node.

    Asked: `part` (``ADDRESS::PART``), `distribution_mode` (None leaves the choice to the node), the
    `filters` for its messages, `durable`, `timeout` (seconds) and `expiry_policy` of the terminus,
    `priority` among the consumers of a queue (higher first), `exclusive` use, the capabilities and
    properties, and `target_address`, `paired` and `max_message_size` (0: any) of the attach. All
    these are in the broker's terms; `asked` and `asked_properties` are what came. `patience` is how
    long, in milliseconds, the attach may wait for a session.

    Granted: the fields of the same names with `granted_` before them. At first they grant nothing
    beyond the minimum, and `granted_mode` is move. The node sets `browses` if the link takes
    nothing out of the node that it consumes from, and `session` to the id of the session that was
    claimed for the link. A subscriber is granted copy and does not browse, because the queue behind
    its subscription is its own.
    """

    __slots__ = (
        "party",
        "link_name",
        "part",
        "distribution_mode",
        "filters",
        "durable",
        "expiry_policy",
        "timeout",
        "priority",
        "exclusive",
        "capabilities",
        "properties",
        "target_address",
        "paired",
        "max_message_size",
        "asked",
        "asked_properties",
        "patience",
        "session",
        "browses",
        "made",
        "granted_mode",
        "granted_durable",
        "granted_expiry_policy",
        "granted_timeout",
        "granted_priority",
        "granted_exclusive",
        "granted_capabilities",
        "granted_properties",
    )

    def __init__(self, party: Party, link_name: str, part: str, filters: FilterSet) -> None:
        self.party: Party = party
        self.link_name: str = link_name
        self.part: str = part
        self.filters: FilterSet = filters
        self.distribution_mode: str | None = None
        self.durable: i64 = 0
        self.expiry_policy: str = "session-end"
        self.timeout: i64 = 0
        self.priority: i64 = 0
        self.exclusive: bool = False
        self.capabilities: list[str] = []
        self.properties: dict[str, object] = {}
        self.target_address: str | None = None
        self.paired: bool = False
        self.max_message_size: int = 0
        self.asked: Source | None = None
        self.asked_properties: dict[str, object] = {}
        self.patience: i64 = 0
        self.session: str = ""
        self.browses: bool = False
        # Whether the subscription was made for this link.
        self.made: bool = False
        self.granted_mode: str = "move"
        self.granted_durable: i64 = 0
        self.granted_expiry_policy: str = "link-detach"
        self.granted_timeout: i64 = 0
        self.granted_priority: i64 = 0
        self.granted_exclusive: bool = False
        self.granted_capabilities: list[str] = []
        self.granted_properties: dict[str, object] = {}


@final
class TargetTerms:
    """The terms of a link that brings messages to a node.

    The fields are those of `SourceTerms`; `source_address` is that of the attach.
    """

    __slots__ = (
        "party",
        "link_name",
        "part",
        "capabilities",
        "properties",
        "source_address",
        "paired",
        "asked",
        "asked_properties",
        "granted_capabilities",
        "granted_properties",
    )

    def __init__(self, party: Party, link_name: str, part: str) -> None:
        self.party: Party = party
        self.link_name: str = link_name
        self.part: str = part
        self.capabilities: list[str] = []
        self.properties: dict[str, object] = {}
        self.source_address: str | None = None
        self.paired: bool = False
        self.asked: Target | None = None
        self.asked_properties: dict[str, object] = {}
        self.granted_capabilities: list[str] = []
        self.granted_properties: dict[str, object] = {}
