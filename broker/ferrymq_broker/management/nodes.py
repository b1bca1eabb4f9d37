"""The common operations of queues, topics, streams and exchanges."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config.nodes import kind_of, policy_attributes
from ferrymq_broker.management.authorisation import ANY, expect_of_node
from ferrymq_broker.management.entity import COMMON, PREFIX, EntityType, Show, deleted
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    NOT_IMPLEMENTED,
    ManagementError,
)
from ferrymq_broker.management.history import (
    ARGUMENTS,
    HISTORY,
    RATES,
    history_of_node,
    rates_of_node,
)
from ferrymq_broker.management.node_links import NodeLinks
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.management.sliced_query import Steps, finish, sift, when_over
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.node import Agenda, Node
from ferrymq_broker.timers import TimerHeap
from ferrymq_broker.values.names import DYNAMIC
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy
from ferrymq_broker.values.rights import MANAGE

# The answer to a DELETE of a declared node.
_DECLARED: Final = (
    "deleted; but the configuration declares it, so it is made again when a client uses it, "
    "and when the broker starts"
)


class DeclaredNodes(EntityType):
    """The nodes of one kind. Their attributes are the settings of the kind and the node's
    figures."""

    base = PREFIX + "node"
    settings: tuple[str, ...] = ()
    # What lists the links of nodes; None if that is not wanted.
    links: NodeLinks | None = None
    # Whether the broker keeps rates and history of these nodes.
    sampled: bool = True

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        # The sorted addresses, until a node is added or removed.
        self._sorted: list[str] | None = None
        space.on_change.append(self._on_change)
        # The attributes come from `Node.describe` of a new node in a space of its own.
        scratch = AddressSpace("", Agenda(), TimerHeap(), 1)
        fresh = scratch.create("fresh", node_policy(self.short, {}))
        self.attributes: tuple[str, ...] = tuple(self.describe(fresh))
        # The attributes that `Node.figures` has too. A setting of the same name takes precedence.
        self._figures = frozenset(fresh.figures()) - frozenset(policy_attributes(policy_of(fresh)))

    def operations(self) -> dict[str, Operation]:
        """Return CREATE, READ, UPDATE and DELETE, LIST-LINKS if links are known, and HISTORY if
        there is any."""
        links = self.links
        operations = {
            "CREATE": Operation(self.create, self.settings),
            "READ": Operation(self.read),
            "UPDATE": Operation(self.update, self.settings),
            "DELETE": Operation(self.delete, ("if-empty", "if-unused")),
            **({} if links is None else links.operations(self._named)),
        }
        if self.sampled:
            operations[HISTORY] = Operation(self.history, ARGUMENTS)
        return operations

    def authorise(self, operation: str, call: Call) -> None:
        """Check the rights at the node's address, and at addresses that its settings direct
        messages to."""
        expect_of_node(call, operation, self.space, self.short)

    def visible(self, party: Party) -> list[str]:
        """Return the result of `sight` at once."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return the nodes at which the party has any right.

        Dynamic nodes need the right to manage them: every client that knows the address of one may
        send there, so a client must not see the dynamic nodes of others.
        """
        access = party.access
        names = self.identities()
        if access.open:
            return names
        if not access.gives_anything():
            return []
        return (
            yield from sift(
                names,
                lambda name: access.permits(
                    MANAGE if name.startswith(DYNAMIC) else ANY, self.space.owner_of(name) or name
                ),
            )
        )

    def identities(self) -> list[str]:
        """Return the addresses, sorted."""
        if self._sorted is None:
            self._sorted = sorted(
                address for address, node in self.space.nodes.items() if node.kind == self.short
            )
        return self._sorted

    def _on_change(self, node: Node, there: bool) -> None:
        """Forget the sorted addresses."""
        self._sorted = None

    def _named(self, call: Call) -> Node:
        return self.find(call.required_name())

    def find(self, address: str) -> Node:
        """Return the node of an address or alias. Raises `ManagementError`."""
        node = self.space.find(address)
        if node is None or node.kind != self.short:
            raise self.missing(address)
        return node

    def show(self, identity: str) -> dict[str, object] | None:
        """Return figures and settings of a node; None if it does not exist."""
        node = self.space.find(identity)
        if node is None or node.kind != self.short:
            return None
        return self.describe(node)

    def row_shower(self, identities: list[str], names: list[str]) -> Show:
        """Return a function that shows figures and rates of a node; all attributes if the names
        have others."""
        wanted = frozenset(names).difference(COMMON)
        figures = bool(wanted - RATES)
        rates = bool(wanted & RATES) and self.sampled
        if not wanted - RATES <= self._figures:
            return self.show
        nodes = self.space.nodes

        def show(identity: str) -> dict[str, object] | None:
            node = nodes.get(identity)
            if node is None or node.kind != self.short:
                return None
            row: dict[str, object] = {}
            if figures:
                row.update(node.figures())
            if rates:
                row.update(rates_of_node(node))
            return row

        return show

    def describe(self, node: Node) -> dict[str, object]:
        """Return figures and settings of a node of the kind."""
        settings = policy_attributes(policy_of(node))
        described = node.describe()
        described.pop("type", None)
        if self.sampled:
            described.update(rates_of_node(node))
        return {"name": node.address, **settings, **described, **settings}

    def shown(self, identity: str) -> dict[str, object]:
        """Return the attributes with the node's address, even if the request had an alias."""
        return super().shown(self.find(identity).address)

    def create(self, call: Call) -> Result:
        """Handle CREATE: make a node. Do nothing if it exists with the same settings."""
        attributes = _settings(call)
        name = call.meant()
        if not name:
            raise ManagementError(BAD_REQUEST, "the request has no name")
        if name.startswith(("$", DYNAMIC)):
            raise ManagementError(BAD_REQUEST, f"the name {name[:200]!r} is reserved")
        policy = node_policy(self.short, attributes)
        if name in self.space.aliases:
            raise ManagementError(CONFLICT, f"{name[:200]!r} is the name of an alias")
        node = self.space.nodes.get(name)
        if node is not None:
            self._expect_same(name, policy_of(node), policy, "is", "exists")
            # Another client may have made it just now: wait until that is stored.
            self.space.agenda.changes.claim()
            return Result(self.shown(name), description="exists already")
        declared = self.space.declared.policies.get(name)
        if declared is not None:
            # The node was deleted. It may be made again only with its declared settings.
            here = "is declared in the configuration"
            self._expect_same(name, declared, policy, f"{here} as", here)
        self.space.create(name, policy, "management")
        return Result(self.shown(name), CREATED, "created")

    def update(self, call: Call) -> Result:
        """Handle UPDATE: change the settings in the request, and keep the others."""
        node = self.find(call.required_name())
        self._expect_independent(node)
        policy = policy_of(node)
        changed = node_policy(self.short, {**policy_attributes(policy), **_settings(call)})
        if changed != policy:
            expect_kept(node.address, policy, changed)
            self.change(node, changed)
            if not node.origin:
                # It was made by use. From now on its settings count more than its template.
                node.origin = "management"
            self.space.changed(node)
        description = "updated"
        if node.origin == "configuration":
            description += (
                "; but the configuration declares it, so the declared settings count again "
                "after the next start"
            )
            staying = self.staying(node, policy, changed)
            if staying:
                description += f", except the {staying}"
        return Result(self.shown(node.address), description=description)

    def staying(self, node: Node, before: NodePolicy, after: NodePolicy) -> str:
        """Return the part of a change that stays although the configuration declares another
        value."""
        return ""

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Change the policy of a node. Raises `ManagementError` or `BrokerError`."""
        raise ManagementError(NOT_IMPLEMENTED, f"the settings of a {self.short} cannot be changed")

    def history(self, call: Call) -> Result:
        """Handle HISTORY: return the samples of the last minutes, hours or day."""
        return history_of_node(call, self.find(call.required_name()))

    def delete(self, call: Call) -> Result | Steps[Result]:
        """Handle DELETE: close the node's links with ``amqp:resource-deleted``, and drop its
        messages."""
        call.expect_only("if-empty", "if-unused")
        name = call.required_name()
        node = self.space.nodes.get(name)
        if node is None or node.kind != self.short:
            raise self.missing(name)
        self._expect_independent(node)
        messages = node.message_count()
        if call.flag("if-empty") and messages > 0:
            raise ManagementError(CONFLICT, f"{name[:200]!r} has {messages} messages")
        if call.flag("if-unused") and node.links > 0:
            raise ManagementError(CONFLICT, f"{name[:200]!r} has {node.links} links")
        self.space.remove(node)
        if name in self.space.declared.policies:
            return when_gone(node, _DECLARED)
        return when_gone(node)

    def _expect_independent(self, node: Node) -> None:
        """Raise `ManagementError` for a sub-queue, which has the settings of its owner and ends
        with it."""
        owner = self.space.owner_of(node.address)
        if owner:
            raise ManagementError(
                CONFLICT, f"{node.address[:200]!r} belongs to {owner[:200]!r}; change that one"
            )

    def _expect_same(
        self, name: str, there: NodePolicy, wanted: NodePolicy, what: str, how: str
    ) -> None:
        """Raise `ManagementError` if the name has a node of another kind or with other settings.
        `what` and `how` are the words of the error for these two cases."""
        kind = kind_of(there)
        if kind != self.short:
            raise ManagementError(CONFLICT, f"{name[:200]!r} {what} a {kind}")
        has = policy_attributes(there)
        for key, value in policy_attributes(wanted).items():
            if has[key] != value:
                raise ManagementError(
                    CONFLICT, f"{name[:200]!r} {how} with {key} = {has[key]!r}, not {value!r}"
                )


def expect_kept(address: str, before: NodePolicy, after: NodePolicy) -> None:
    """Raise `ManagementError` if settings differ that are only set when a node is made."""
    kept = [("durable", before.durable, after.durable)]
    if isinstance(before, QueuePolicy) and isinstance(after, QueuePolicy):
        kept.append(("sessions", before.sessions, after.sessions))
    for key, old, new in kept:
        if old != new:
            raise ManagementError(
                CONFLICT,
                f"{key}: {address[:200]!r} was created with {old}, which cannot be changed",
            )


def when_gone(node: Node, description: str = "deleted") -> Result | Steps[Result]:
    """Return the answer to a DELETE, after the links and messages of the node have ended."""
    ending = node.ending
    done = deleted(description)
    return done if ending is None else when_over(ending, lambda: done)


def policy_of(node: Node) -> NodePolicy:
    """Return the policy of a node."""
    policy: NodePolicy = getattr(node, "policy")  # noqa: B009
    return policy


def _settings(call: Call) -> dict[str, object]:
    """Return the settings among the arguments."""
    return {key: value for key, value in call.arguments.items() if key not in COMMON}
