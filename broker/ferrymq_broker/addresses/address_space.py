"""The addresses of one virtual host.

An address is looked up as it is, then as an alias. One of the form ``NODE::PART`` that is neither
names a part of a node: a subscription of a topic, a partition of a stream, a key of an exchange.
What is not there is made, if the name is declared, a template matches it or `auto_create` is set.
The declaration or the template says what it is; where only `auto_create` does, a link that asks for
a topic (by the capability ``topic``) gets one, if `auto_create_topic` is set.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from ferrymq_broker.access.rights import CREATE
from ferrymq_broker.addresses.address_records import drop_alias, keep_node, put_alias, put_node
from ferrymq_broker.addresses.declared_nodes import CONFIGURATION, Declarations
from ferrymq_broker.addresses.node_factory import build
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.nodes.narrowing import narrow
from ferrymq_broker.nodes.node import BOUNDLESS, DELETE_ON_CLOSE, PART, Agenda, Node, Space
from ferrymq_broker.nodes.policy import NodePolicy, QueuePolicy, TopicPolicy
from ferrymq_codec.scalars import UInt
from ferrymq_types.transport import Error

if TYPE_CHECKING:
    from ferrymq_broker.access.access import ConnectionAccess
    from ferrymq_broker.access.rules import Rule
    from ferrymq_broker.timers import TimerHeap

MAX_ADDRESS_LENGTH: Final = 1024
# The addresses of dynamic nodes begin so. They name their node or, once it is gone, none.
DYNAMIC: Final = "dynamic."
# An alias that leads to an alias is followed so far.
_MOST_ALIASES: Final = 16
# 144 random bits: nobody guesses the address of another's dynamic node.
_TOKEN_BYTES: Final = 18


@final
class AddressRedirect:
    """An address whose node is in another container (AMQP 1.0 §2.8.18)."""

    __slots__ = ("hostname", "network_host", "port", "address")

    def __init__(self, hostname: str, network_host: str, port: int, address: str) -> None:
        self.hostname = hostname
        self.network_host = network_host
        self.port = port
        self.address = address


class Template:
    """Makes nodes for names that have none: `policy_for` answers with a policy, or None."""

    __slots__ = ()

    def policy_for(self, address: str, capabilities: Sequence[str]) -> NodePolicy | None:
        """What the node of this name is to be, None if none is to be made.

        `capabilities` are those of the terminus that names it, for templates of no certain kind.
        """
        return None


@final
class AddressSpace(Space):
    """The nodes of one virtual host, by address.

    `auto_create` is the policy of nodes made for names that no template knows, None if none are
    made; `auto_create_topic` that of those a link asks to be topics. `aliases` lead from names to
    addresses, `redirects` elsewhere. `declared` is what the configuration declares by name. Those
    in `on_change` are told of every node that comes (True) and goes (False).

    What somebody declares by management is stored. What the configuration says of aliases
    (`declared_aliases`) and redirects is not: it says so again.
    """

    __slots__ = (
        "nodes",
        "rules",
        "aliases",
        "redirects",
        "declared",
        "templates",
        "auto_create",
        "auto_create_topic",
        "on_change",
        "declared_aliases",
        "_alias_ids",
    )

    def __init__(self, name: str, agenda: Agenda, timers: TimerHeap, max_nodes: int) -> None:
        super().__init__(name, agenda, timers, max_nodes)
        self.nodes: dict[str, Node] = {}
        # Who may do what here.
        self.rules: list[Rule] = []
        self.aliases: dict[str, str] = {}
        self.redirects: dict[str, AddressRedirect] = {}
        self.declared = Declarations()
        self.templates: list[Template] = []
        self.auto_create: NodePolicy | None = QueuePolicy()
        self.auto_create_topic: NodePolicy | None = TopicPolicy()
        self.on_change: list[Callable[[Node, bool], object]] = []
        self.declared_aliases: dict[str, str] = {}
        # The records of aliases, by their names.
        self._alias_ids: dict[str, int] = {}

    # -- looking up ----------------------------------------------------------------------

    def find(self, address: str) -> Node | None:
        """The node that an address names now, aliases followed; never makes one."""
        node = self.nodes.get(address)
        if node is None and self.aliases:
            try:
                node = self.nodes.get(self._follow(address))
            except BrokerError:
                # It leads in a circle.
                return None
        return node

    def passes(self, address: str, name: str) -> bool:
        """Whether the alias `name` is on the way from an address, or its node, to what that stands
        for."""
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
        """What an address stands for: the address of a node, whether it is there or not, or of a
        part of one (``NODE::PART``), or a redirect, with all aliases followed."""
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

    def _follow(self, name: str) -> str:
        """Where an alias leads. One that came to lead to an alias leads on."""
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
        """The node an address names, made if that is allowed, and the part of it that is meant.

        `capabilities` are those of the terminus; they decide what is made where nothing else does.
        `access` is asked whether a node may be made, None makes it anyhow.
        Raises `BrokerError` if there is none, or if it is elsewhere.
        """
        node = self.nodes.get(address)
        if node is not None:
            return node, ""
        address = self.canonical(address)
        node = self.nodes.get(address)
        if node is not None:
            return node, ""
        cut = address.rfind(PART)
        if cut > 0 and address not in self.redirects:
            name = address[:cut]
            node = self.nodes.get(name)
            if node is None:
                node = self._make(name, True, capabilities, access)
            return node, address[cut + len(PART) :]
        return self._make(address, False, capabilities, access), ""

    def target(self, address: str, access: ConnectionAccess | None = None) -> Node:
        """What takes messages sent to an address. Raises `BrokerError` if nothing does."""
        node, part = self.resolve(address, (), access)
        return node.target(part)

    def existing_target(self, address: str) -> Node | None:
        """As `target`, of what is there: nothing is made for it. None if there is no such node."""
        name = self.canonical(address)
        if name not in self.nodes:
            cut = name.rfind(PART)
            if cut <= 0 or name[:cut] not in self.nodes:
                return None
        return self.target(name)

    def _make(
        self,
        address: str,
        parted: bool,
        capabilities: Sequence[str],
        access: ConnectionAccess | None,
    ) -> Node:
        if not address:
            raise BrokerError("amqp:invalid-field", "an empty address names no node")
        redirect = self.redirects.get(address)
        if redirect is not None:
            raise BrokerError(
                "amqp:link:redirect",
                f"{address!r} is served by {redirect.network_host}:{redirect.port}",
                {
                    "hostname": redirect.hostname,
                    "network-host": redirect.network_host,
                    "port": UInt(redirect.port),
                    "address": redirect.address,
                },
            )
        policy: NodePolicy | None = None
        if not address.startswith(("$", DYNAMIC)):
            policy = self.policy_for(address, capabilities)
        if policy is None or (parted and isinstance(policy, QueuePolicy)):
            raise BrokerError("amqp:not-found", f"there is no node {address[:200]!r}")
        if access is not None:
            access.require(CREATE, address)
        return self.create(address, policy)

    def policy_for(self, address: str, capabilities: Sequence[str] = ()) -> NodePolicy | None:
        """What would be made for a name that has no node."""
        declared = self.declared.policies.get(address)
        if declared is not None:
            return declared
        for template in self.templates:
            policy = template.policy_for(address, capabilities)
            if policy is not None:
                return policy
        if self.auto_create is not None and "topic" in capabilities:
            return self.auto_create_topic or self.auto_create
        return self.auto_create

    # -- coming and going ----------------------------------------------------------------

    def create(self, address: str, policy: NodePolicy, origin: str = "") -> Node:
        """A new node, wanted by `origin`, or by the configuration if that declares the name. Raises
        `BrokerError` if the address is taken or not allowed, or if there is no room."""
        if not address or len(address) > MAX_ADDRESS_LENGTH:
            raise BrokerError(
                "amqp:invalid-field",
                f"address of {len(address)} characters; 1 to {MAX_ADDRESS_LENGTH} are allowed",
            )
        self._expect_room(address)
        node = build(self, address, policy)
        declared = self.declared
        node.declared = declared.keeps(address)
        node.origin = CONFIGURATION if address in declared.policies else origin
        self.add(node)
        if node.declared:
            declared.bind_again(self, node)
        return node

    def create_dynamic(self, policy: NodePolicy, lifetime: i64 = DELETE_ON_CLOSE) -> Node:
        """A node with an address nobody can guess (AMQP 1.0 §3.5.3)."""
        address = f"{DYNAMIC}{secrets.token_urlsafe(_TOKEN_BYTES)}"
        return self.add(build(self, address, policy, lifetime))

    def add(self, node: Node) -> Node:
        """Let the node be found. Raises `BrokerError` if its address is taken, or for no room."""
        self._expect_room(node.address)
        keep_node(node)
        self.insert(node)
        return node

    def _expect_room(self, address: str) -> None:
        if address in self.nodes or address in self.aliases or address in self.redirects:
            raise BrokerError("amqp:not-allowed", f"{address[:200]!r} exists already")
        if len(self.nodes) - self.services >= self.max_nodes:
            raise BrokerError(
                "amqp:resource-limit-exceeded",
                f"no room for {address[:200]!r}: there are {self.max_nodes} nodes, the most",
            )

    def insert(self, node: Node) -> None:
        """Let a node be found that is stored already, or is not to be."""
        self.nodes[node.address] = node
        for told in self.on_change:
            told(node, True)
        if self.alternates and node.room() != BOUNDLESS:
            # Exchanges may have waited for it to send there what they have no binding for.
            narrow(node)

    def insert_service(self, service: Node) -> None:
        """Let a node of the broker's own be found. It takes no room from the nodes of users."""
        self.services += 1
        self.insert(service)

    def changed(self, node: Node) -> None:
        """The node has another policy or another origin: store it as it is now."""
        put_node(node)

    def remove(self, node: Node) -> None:
        """Forget the node; its links are closed with `amqp:resource-deleted`."""
        if self.nodes.get(node.address) is node:
            del self.nodes[node.address]
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
        """Let a name lead to an address until the broker ends."""
        self.aliases[name] = address
        self.dead_letter_index.realign()

    def declare_alias(self, name: str, address: str) -> None:
        """Let a name lead to an address until the broker ends, as the configuration says."""
        self.declared_aliases[name] = address
        self.alias(name, address)

    def hide_alias(self, name: str) -> str | None:
        """Let a stored name lead nowhere until the broker ends; where it led before, if it did."""
        before = self.aliases.pop(name, None)
        if before is not None:
            self.dead_letter_index.realign()
        return before

    def set_alias(self, name: str, address: str) -> None:
        """Let a name lead to an address, here and whenever the broker starts again."""
        self.alias(name, address)
        changes = self.agenda.changes
        if changes.enabled:
            id = self._alias_ids.get(name, 0)
            if id == 0:
                id = changes.new_id()
                self._alias_ids[name] = id
            put_alias(changes, id, self.name, name, address)

    def restore_alias(self, id: int, name: str, address: str) -> None:
        """A name that was stored."""
        self.alias(name, address)
        self._alias_ids[name] = id

    def drop_alias(self, name: str) -> bool:
        """Let a name lead nowhere; False if it did so before."""
        if self.aliases.pop(name, None) is None:
            return False
        self.dead_letter_index.realign()
        self.forget_alias(name)
        return True

    def forget_alias(self, name: str) -> None:
        """What the name leads to is not stored any more."""
        id = self._alias_ids.pop(name, 0)
        if id != 0:
            drop_alias(self.agenda.changes, id)

    def clear(self) -> None:
        """Drop all nodes and messages; for the end of the process, when no link is left."""
        for node in list(self.nodes.values()):
            self.remove(node)
