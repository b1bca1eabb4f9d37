"""The addresses of one virtual host.

An address is looked up as a node, then as an alias. If it is neither, an address of the form
``NODE::PART`` names a part of a node: a subscription of a topic, a partition of a stream, a key of
an exchange.

A node that does not exist is made if its name is declared, if a template matches the name, or if
`auto_create` is set. A declaration or a template decides the kind of the node. With only
`auto_create`, a link that asks for a topic (by the capability ``topic``) gets a topic if
`auto_create_topic` is set.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from ferrymq_broker.addresses.address_records import drop_alias, keep_node, put_alias, put_node
from ferrymq_broker.addresses.declared_nodes import CONFIGURATION, Declarations
from ferrymq_broker.addresses.node_factory import build
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import (
    BOUNDLESS,
    DELETE_ON_CLOSE,
    DELETE_ON_NO_LINKS,
    Agenda,
    Node,
    Space,
)
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.queues.sub_queues import expect_free_sub_queues
from ferrymq_broker.nodes.streams.spread import expect_placeable
from ferrymq_broker.values.names import DYNAMIC, MAX_ADDRESS_LENGTH, MAX_SUB_QUEUE, PART
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, StreamPolicy, TopicPolicy
from ferrymq_broker.values.rights import CREATE
from ferrymq_codec.scalars import UInt
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.access.rules import Rule
    from ferrymq_broker.timers import TimerHeap

# The most aliases that are followed, one to the next, for an address.
_MOST_ALIASES: Final = 16
# 144 random bits: a client cannot guess the address of another client's dynamic node.
_TOKEN_BYTES: Final = 18
# The most characters of an address that a personality translates: its work grows with them.
_MOST_TRANSLATED: Final = 16_384


@final
class AddressRedirect:
    """An address whose node is in another container (AMQP 1.0 §2.8.18)."""

    __slots__ = ("hostname", "network_host", "port", "address")

    def __init__(self, hostname: str, network_host: str, port: int, address: str) -> None:
        self.hostname: str = hostname
        self.network_host: str = network_host
        self.port: int = port
        self.address: str = address


@mypyc_attr(allow_interpreted_subclasses=True)
class Template:
    """A template for nodes that are made when a client names them."""

    __slots__ = ()

    def policy_for(self, address: str, capabilities: Sequence[str]) -> NodePolicy | None:
        """Return the policy of the node to make for this name; None if no node is to be made.

        `capabilities` are those of the terminus with the address, for templates that do not define
        the kind of node; ``topic`` is among them if the address names a part of the node.
        """
        return None


@final
class AddressSpace(Space):
    """The nodes of one virtual host, by address.

    `auto_create` is the policy of nodes that are made for names without a template; None if none
    are made. `auto_create_topic` is the policy if a link asks for a topic. `aliases` has addresses
    by alias, `redirects` the nodes that are in other containers. `declared` has the nodes that the
    configuration declares. The functions in `on_change` are called for every node that is added
    (True) or removed (False). `elsewhere` is the number of the worker process that serves the
    virtual host, -1 for this process.

    Nodes and aliases that are declared by management are stored. Aliases (`declared_aliases`) and
    redirects of the configuration are not stored, because each start reads them again.
    """

    __slots__ = (
        "nodes",
        "rules",
        "key_rules",
        "aliases",
        "redirects",
        "declared",
        "templates",
        "auto_create",
        "auto_create_topic",
        "on_change",
        "declared_aliases",
        "open_services",
        "owned",
        "elsewhere",
        "_alias_ids",
    )

    # Attributes of `Space` that the methods assign: their types for type checkers.
    services: int

    def __init__(self, name: str, agenda: Agenda, timers: TimerHeap, max_nodes: int) -> None:
        super().__init__(name, agenda, timers, max_nodes)
        self.nodes: dict[str, Node] = {}
        # The access rules of this virtual host.
        self.rules: list[Rule] = []
        # The own rules of shared access keys, by the ids of the keys. A rule is made when it is
        # needed, because entities may be declared later.
        self.key_rules: dict[str, Callable[[], Rule | None]] = {}
        self.aliases: dict[str, str] = {}
        self.redirects: dict[str, AddressRedirect] = {}
        self.declared: Declarations = Declarations()
        self.templates: list[Template] = []
        self.auto_create: NodePolicy | None = QueuePolicy()
        self.auto_create_topic: NodePolicy | None = TopicPolicy()
        self.on_change: list[Callable[[Node, bool], object]] = []
        self.declared_aliases: dict[str, str] = {}
        # The addresses of services that check rights for each request: every client may have a
        # link to them.
        self.open_services: set[str] = {"$management", "$cbs"}
        # The number of sub-queues, which belong to other nodes.
        self.owned: i64 = 0
        self.elsewhere: i64 = -1
        # The ids of the aliases' records, by alias.
        self._alias_ids: dict[str, int] = {}

    # -- access --------------------------------------------------------------------------

    def rules_for(self, identity: UserIdentity) -> list[Rule]:
        """Return the access rules, and the own rule of a shared access key after them."""
        make = self.key_rules.get(identity.key) if identity.key else None
        own = None if make is None else make()
        return self.rules if own is None else [*self.rules, own]

    def judged_for(self, address: str) -> str:
        """Return the entity whose rights count at an address: for a sub-queue its owner, for the
        management of an entity that entity, otherwise the address itself."""
        owner = self.owner_of(address)
        if owner:
            return owner
        personality = self.personality
        entity = "" if personality is None else personality.entity_of_service(address)
        return entity or address

    # -- looking up ----------------------------------------------------------------------

    def find(self, address: str) -> Node | None:
        """Return the node at an address, with aliases resolved; None if it does not exist."""
        node = self.nodes.get(address)
        if node is None and self.aliases:
            try:
                node = self.nodes.get(self._follow(address))
            except BrokerError:
                # The aliases form a loop.
                return None
        return node

    def passes(self, address: str, name: str) -> bool:
        """Return whether the alias `name` is used to resolve an address, or the node in an address
        with a part."""
        cut = address.rfind(PART)
        for start in (address, address[:cut]) if cut > 0 else (address,):
            place: str | None = start
            steps: i64 = 0
            while place is not None and steps <= _MOST_ALIASES:
                if place == name:
                    return True
                place = self.aliases.get(place)
                steps += 1
        return False

    def canonical(self, address: str) -> str:
        """Resolve all aliases in an address. The result is the address of a node, which need not
        exist, of a part of a node (``NODE::PART``), or of a redirect."""
        if not self.aliases or address in self.nodes:
            return address
        # An alias may stand for a part.
        address = self._follow(address)
        cut = address.rfind(PART)
        if cut > 0 and address not in self.nodes and address not in self.redirects:
            name = address[:cut]
            if name not in self.nodes:
                return f"{self._follow(name)}{address[cut:]}"
        return address

    def meant_by(self, named: str) -> str:
        """Return the address that a client means: the native address, with aliases resolved."""
        personality = self.personality
        if personality is None:
            return self.canonical(named)
        if len(named) > _MOST_TRANSLATED:
            raise BrokerError(
                "amqp:invalid-field",
                f"the address has {len(named)} characters; at most {_MOST_TRANSLATED} are allowed",
            )
        return self.canonical(personality.native(named))

    def _follow(self, name: str) -> str:
        """Follow an alias until its address is no alias."""
        steps: i64 = 0
        while steps < _MOST_ALIASES:
            target = self.aliases.get(name)
            if target is None or name in self.nodes:
                return name
            name = target
            steps += 1
        raise BrokerError("amqp:not-found", f"the alias {name[:200]!r} leads in a circle")

    def resolve(
        self, address: str, capabilities: Sequence[str] = (), access: ConnectionAccess | None = None
    ) -> tuple[Node, str]:
        """Return the node at an address, made if that is allowed, and the part that the address
        names.

        `capabilities` are those of the terminus; they decide the kind of a new node if no
        declaration and no template does. `access` decides whether a node may be made; None allows
        it. Raises `BrokerError` if there is no node, or if it is in another container.
        """
        node = self.nodes.get(address)
        if node is not None:
            return node, ""
        address = self.canonical(address)
        node = self.nodes.get(address)
        if node is not None:
            return node, ""
        cut = self._cut(address)
        if cut > 0 and address not in self.redirects:
            name = address[:cut]
            node = self.nodes.get(name)
            if node is None:
                node = self._make(name, True, capabilities, access)
            return node, address[cut + len(PART) :]
        return self._make(address, False, capabilities, access), ""

    def target(self, address: str, access: ConnectionAccess | None = None) -> Node:
        """Return the node that accepts messages sent to an address. Raises `BrokerError` if there
        is none."""
        node, part = self.resolve(address, (), access)
        return node.target(part)

    def existing_target(self, address: str) -> Node | None:
        """Return the target at an address as `target` does, but do not make a node. None if it does
        not exist."""
        return self.target(address) if self.has(address) else None

    def has(self, address: str) -> bool:
        """Return whether there is a node at an address, or a node of which the address names a
        part."""
        name = self.canonical(address)
        if name in self.nodes:
            return True
        cut = self._cut(name)
        return cut > 0 and name[:cut] in self.nodes

    def _cut(self, address: str) -> i64:
        """Return where the part of an address begins, with its separator; at most 0 without a part.

        A routing key may contain the separator, so the name is the longest one that a node has; if
        none has one, the separator is the last in the address.
        """
        last: i64 = address.rfind(PART)
        cut = last
        if cut > MAX_ADDRESS_LENGTH:
            # No node has a longer name, and a client may send an address of any length.
            cut = address.rfind(PART, 0, MAX_ADDRESS_LENGTH + len(PART))
        while cut > 0:
            if address[:cut] in self.nodes:
                return cut
            cut = address.rfind(PART, 0, cut)
        return last

    def _make(
        self,
        address: str,
        parted: bool,
        capabilities: Sequence[str],
        access: ConnectionAccess | None,
    ) -> Node:
        if not address:
            raise BrokerError("amqp:invalid-field", "the address is empty; it must name a node")
        redirect = self.redirects.get(address)
        if redirect is not None:
            raise BrokerError(
                "amqp:link:redirect",
                f"the node {address!r} is at {redirect.network_host}:{redirect.port}; connect "
                "there",
                {
                    "hostname": redirect.hostname,
                    "network-host": redirect.network_host,
                    "port": UInt(redirect.port),
                    "address": redirect.address,
                },
            )
        owner = "" if parted else self._future_owner_of(address)
        if owner:
            self._make(owner, False, (), access)
            node = self.nodes.get(address)
            if node is not None:
                return node
        policy: NodePolicy | None = None
        personality = self.personality
        served = personality is not None and personality.entity_of_service(address) != ""
        if not served and not address.startswith(("$", DYNAMIC)):
            policy = self.policy_for(address, capabilities, parted)
        if policy is None or (parted and isinstance(policy, QueuePolicy)):
            off = "" if self.auto_create is not None else ", and auto-create is off"
            raise BrokerError("amqp:not-found", f"there is no node {address[:200]!r}{off}")
        if access is not None:
            access.require(CREATE, address)
        return self.create(address, policy)

    def policy_for(
        self, address: str, capabilities: Sequence[str] = (), parted: bool = False
    ) -> NodePolicy | None:
        """Return the policy of the node that would be made for a name; None if none would be made.

        `parted` is whether a part of the node is meant: a queue has none.
        """
        declared = self.declared.policies.get(address)
        if declared is not None:
            return declared
        asked = (*capabilities, "topic") if parted else capabilities
        for template in self.templates:
            policy = template.policy_for(address, asked)
            if policy is not None:
                return policy
        if self.auto_create is not None and "topic" in capabilities:
            return self.auto_create_topic or self.auto_create
        return self.auto_create

    def owner_of(self, address: str) -> str:
        """See `Space.owner_of`."""
        node = self.nodes.get(address)
        if node is None:
            return self._future_owner_of(address)
        if isinstance(node, Queue) and node.owner_queue is not None:
            return node.owner_queue.address
        return ""

    def _future_owner_of(self, address: str) -> str:
        """Return the address of the queue that does not exist, but would be made with a sub-queue
        at this address; empty if there is none."""
        # A longer end is no name of a sub-queue.
        cut = address.find("/", max(1, len(address) - MAX_SUB_QUEUE - 1))
        while cut > 0:
            name = address[:cut]
            if name not in self.nodes and not name.startswith(("$", DYNAMIC)):
                policy = self.policy_for(name)
                if isinstance(policy, QueuePolicy) and address[cut + 1 :] in policy.sub_queues:
                    return name
            cut = address.find("/", cut + 1)
        return ""

    # -- adding and removing -------------------------------------------------------------

    def create(self, address: str, policy: NodePolicy, origin: str = "") -> Node:
        """Make a node. Its origin is `origin`, or the configuration if that declares the name.
        Raises `BrokerError` if the address is taken or not allowed, or if there are too many
        nodes."""
        if not address or len(address) > MAX_ADDRESS_LENGTH:
            raise BrokerError(
                "amqp:invalid-field",
                f"the address has {len(address)} characters; it must have 1 to "
                f"{MAX_ADDRESS_LENGTH}",
            )
        self._expect_room(address)
        if isinstance(policy, QueuePolicy):
            expect_free_sub_queues(self, address, policy)
        if isinstance(policy, StreamPolicy):
            expect_placeable(address, policy, self)
        node = build(self, address, policy)
        declared = self.declared
        node.declared = declared.keeps(address)
        node.origin = CONFIGURATION if address in declared.policies else origin
        self.add(node)
        if node.declared:
            declared.bind_again(self, node)
        return node

    def create_dynamic(self, policy: NodePolicy, lifetime: i64 = DELETE_ON_CLOSE) -> Node:
        """Make a node with an address that cannot be guessed (AMQP 1.0 §3.5.3)."""
        address = f"{DYNAMIC}{secrets.token_urlsafe(_TOKEN_BYTES)}"
        return self.add(build(self, address, policy, lifetime))

    def add(self, node: Node) -> Node:
        """Add a node, and store it. Raises `BrokerError` if the address is taken or there are too
        many nodes."""
        self._expect_room(node.address)
        keep_node(node)
        self.insert(node)
        if isinstance(node, Queue):
            node.make_sub_queues()
        return node

    def _expect_room(self, address: str) -> None:
        self.expect_free(address)
        if len(self.nodes) - self.services - self.owned >= self.max_nodes:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"{address[:200]!r} cannot be created: there are {self.max_nodes} nodes "
                "already, which is the limit",
            )

    def expect_free(self, address: str) -> None:
        """Raise `BrokerError` if a node, an alias or a redirect has the address."""
        if address in self.nodes or address in self.aliases or address in self.redirects:
            raise BrokerError("amqp:not-allowed", f"{address[:200]!r} exists already")

    def insert_owned(self, node: Node) -> None:
        """See `Space.insert_owned`."""
        self.owned += 1
        self.insert(node)

    def keep_owned(self, node: Node) -> None:
        """See `Space.keep_owned`."""
        keep_node(node)

    def insert(self, node: Node) -> None:
        """Add a node without storing it."""
        self.nodes[node.address] = node
        for told in self.on_change:
            told(node, True)
        if self.alternates and node.room() != BOUNDLESS:
            # Exchanges may have waited for this node as the alternate for unroutable messages.
            narrow(node)

    def insert_service(self, service: Node) -> None:
        """Insert one of the broker's own nodes, which does not count for `max_nodes`."""
        self.services += 1
        self.insert(service)

    def make_service(self, address: str) -> None:
        """Make the service that the personality has for an address, unless there is a node."""
        personality = self.personality
        if personality is None or address in self.nodes:
            return
        service = personality.service(address)
        if service is not None:
            service.lifetime = DELETE_ON_NO_LINKS
            self.insert_service(service)

    def changed(self, node: Node) -> None:
        """Store a node whose policy or origin has changed."""
        put_node(node)

    def remove(self, node: Node) -> None:
        """Remove the node, and close its links with `amqp:resource-deleted`."""
        if self.nodes.get(node.address) is node:
            del self.nodes[node.address]
            if node.kind == "service":
                self.services -= 1
            if isinstance(node, Queue) and node.owner_queue is not None:
                self.owned -= 1
            for told in self.on_change:
                told(node, False)
        if not node.deleted:
            node.delete(
                Error(
                    condition="amqp:resource-deleted",
                    description=f"the node {node.address!r} has been deleted",
                )
            )

    # -- aliases -------------------------------------------------------------------------

    def alias(self, name: str, address: str) -> None:
        """Set an alias without storing it."""
        self.aliases[name] = address
        self.dead_letter_index.realign()

    def declare_alias(self, name: str, address: str) -> None:
        """Set an alias of the configuration, without storing it."""
        self.declared_aliases[name] = address
        self.alias(name, address)

    def hide_alias(self, name: str) -> str | None:
        """Remove an alias until the broker ends, but keep its record. Return its address, if
        any."""
        before = self.aliases.pop(name, None)
        if before is not None:
            self.dead_letter_index.realign()
        return before

    def set_alias(self, name: str, address: str) -> None:
        """Set an alias, and store it."""
        self.alias(name, address)
        changes = self.agenda.changes
        if changes.enabled:
            id = self._alias_ids.get(name, 0)
            if id == 0:
                id = changes.new_id()
                self._alias_ids[name] = id
            put_alias(changes, id, self.name, name, address)

    def restore_alias(self, id: int, name: str, address: str) -> None:
        """Set an alias that was read from the store."""
        self.alias(name, address)
        self._alias_ids[name] = id

    def drop_alias(self, name: str) -> bool:
        """Remove an alias and its record. Return False if there was no such alias."""
        if self.aliases.pop(name, None) is None:
            return False
        self.dead_letter_index.realign()
        self.forget_alias(name)
        return True

    def forget_alias(self, name: str) -> None:
        """Delete the record of an alias."""
        id = self._alias_ids.pop(name, 0)
        if id != 0:
            drop_alias(self.agenda.changes, id)

    def clear(self) -> None:
        """Drop all nodes and messages; for the end of the process, when no link is left."""
        for node in list(self.nodes.values()):
            self.remove(node)
