"""Queues, topics, streams and exchanges: what is the same for all nodes that somebody declares."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.access.rights import MANAGE
from ferrymq_broker.addresses.address_space import DYNAMIC, AddressSpace
from ferrymq_broker.config.nodes import kind_of, node_policy, policy_attributes
from ferrymq_broker.management.authorisation import ANY, expect_of_node
from ferrymq_broker.management.entity import PREFIX, EntityType, deleted
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    NOT_IMPLEMENTED,
    ManagementError,
)
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.sliced_query import Steps, finish, sift, when_over
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.node import Agenda, Node
from ferrymq_broker.nodes.policy import NodePolicy
from ferrymq_broker.timers import TimerHeap

# What a DELETE of a declared node is answered.
_DECLARED: Final = (
    "deleted; the configuration declares it: it is made again when somebody needs it, and when the"
    " broker starts"
)
# What every entity has beside the attributes of its type.
_COMMON: Final = ("name", "identity", "type")


class DeclaredNodes(EntityType):
    """Nodes of one kind. Their attributes are the settings of the kind and the node's figures."""

    base = PREFIX + "node"
    settings: tuple[str, ...] = ()

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        # What there is, as long as nobody comes or goes.
        self._sorted: list[str] | None = None
        space.on_change.append(self._on_change)
        # What nodes describe is theirs to say: a new one, that nobody can find, is asked for it.
        scratch = AddressSpace("", Agenda(), TimerHeap(), 1)
        fresh = scratch.create("fresh", node_policy(self.short, {}))
        self.attributes = tuple(self.describe(fresh))

    def operations(self) -> dict[str, Operation]:
        """CREATE, READ, UPDATE and DELETE."""
        return {
            "CREATE": Operation(self.create, self.settings),
            "READ": Operation(self.read),
            "UPDATE": Operation(self.update, self.settings),
            "DELETE": Operation(self.delete, ("if-empty", "if-unused")),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """By the rights at its address, and at those it is to lead messages to."""
        expect_of_node(call, operation, self.space, self.short)

    def visible(self, party: Party) -> list[str]:
        """As `sight`."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Those at which the party may do anything.

        Dynamic ones take the right to manage them: whoever knows the address of one may send
        there, and a right to make some is no right to know others'.
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
                lambda name: access.permits(MANAGE if name.startswith(DYNAMIC) else ANY, name),
            )
        )

    def identities(self) -> list[str]:
        """Their addresses, sorted."""
        if self._sorted is None:
            self._sorted = sorted(
                address for address, node in self.space.nodes.items() if node.kind == self.short
            )
        return self._sorted

    def _on_change(self, node: Node, there: bool) -> None:
        """Others are there than when they were sorted."""
        self._sorted = None

    def find(self, address: str) -> Node:
        """The node of that address or alias. Raises `ManagementError`."""
        node = self.space.find(address)
        if node is None or node.kind != self.short:
            raise self.missing(address)
        return node

    def show(self, identity: str) -> dict[str, object] | None:
        """Figures and settings."""
        node = self.space.find(identity)
        if node is None or node.kind != self.short:
            return None
        return self.describe(node)

    def describe(self, node: Node) -> dict[str, object]:
        """Figures and settings of a node of the kind."""
        settings = policy_attributes(policy_of(node))
        described = node.describe()
        described.pop("type", None)
        return {"name": node.address, **settings, **described, **settings}

    def shown(self, identity: str) -> dict[str, object]:
        """As the node is called, not as it was asked for."""
        return super().shown(self.find(identity).address)

    def create(self, call: Call) -> Result:
        """CREATE: a new node; nothing at all if it is there and has just these settings."""
        attributes = _settings(call)
        name = call.meant()
        if not name:
            raise ManagementError(BAD_REQUEST, "the request has no name")
        if name.startswith(("$", DYNAMIC)):
            raise ManagementError(BAD_REQUEST, f"the name {name[:200]!r} is reserved")
        policy = node_policy(self.short, attributes)
        if name in self.space.aliases:
            raise ManagementError(CONFLICT, f"{name[:200]!r} is an alias")
        node = self.space.nodes.get(name)
        if node is not None:
            self._expect_same(name, policy_of(node), policy, "is", "exists")
            # Perhaps somebody else has just made it.
            self.space.agenda.changes.claim()
            return Result(self.shown(name), description="exists already")
        declared = self.space.declared.policies.get(name)
        if declared is not None:
            # It was deleted: it may come back as what it will be when the broker starts again.
            here = "is declared in the configuration"
            self._expect_same(name, declared, policy, f"{here} as", here)
        self.space.create(name, policy, "management")
        return Result(self.shown(name), CREATED, "created")

    def update(self, call: Call) -> Result:
        """UPDATE: other settings for the ones that are named; the rest stays as it is."""
        node = self.find(call.required_name())
        policy = policy_of(node)
        changed = node_policy(self.short, {**policy_attributes(policy), **_settings(call)})
        if changed != policy:
            if changed.durable != policy.durable:
                raise ManagementError(
                    CONFLICT,
                    f"durable: {node.address[:200]!r} was made with {policy.durable}, and stays so",
                )
            self.change(node, changed)
            if not node.origin:
                # It was made by use. What somebody wants of it now goes before its pattern.
                node.origin = "management"
            self.space.changed(node)
        description = "updated"
        if node.origin == "configuration":
            description += (
                "; the configuration declares it, and its settings hold again at the next start"
            )
            staying = self.staying(node, policy, changed)
            if staying:
                description += f", but the {staying} stay"
        return Result(self.shown(node.address), description=description)

    def staying(self, node: Node, before: NodePolicy, after: NodePolicy) -> str:
        """Return what of a change stays although the configuration says something else."""
        return ""

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Let the node follow another policy. Raises `ManagementError` or `BrokerError`."""
        raise ManagementError(NOT_IMPLEMENTED, f"a {self.short} keeps its settings")

    def delete(self, call: Call) -> Result | Steps[Result]:
        """DELETE: links to it are closed with ``amqp:resource-deleted``, its messages dropped."""
        call.expect_only("if-empty", "if-unused")
        name = call.required_name()
        node = self.space.nodes.get(name)
        if node is None or node.kind != self.short:
            raise self.missing(name)
        messages = node.message_count()
        if call.flag("if-empty") and messages > 0:
            raise ManagementError(CONFLICT, f"{name[:200]!r} has {messages} messages")
        if call.flag("if-unused") and node.links > 0:
            raise ManagementError(CONFLICT, f"{name[:200]!r} has {node.links} links")
        self.space.remove(node)
        if name in self.space.declared.policies:
            return when_gone(node, _DECLARED)
        return when_gone(node)

    def _expect_same(
        self, name: str, there: NodePolicy, wanted: NodePolicy, what: str, how: str
    ) -> None:
        """Raise `ManagementError` if there is something else of that name: `what` says so of
        another kind, `how` of other settings."""
        kind = kind_of(there)
        if kind != self.short:
            raise ManagementError(CONFLICT, f"{name[:200]!r} {what} a {kind}")
        has = policy_attributes(there)
        for key, value in policy_attributes(wanted).items():
            if has[key] != value:
                raise ManagementError(
                    CONFLICT, f"{name[:200]!r} {how} with {key} = {has[key]!r}, not {value!r}"
                )


def when_gone(node: Node, description: str = "deleted") -> Result | Steps[Result]:
    """The answer to a DELETE, when the links and messages of the node are gone."""
    ending = node.ending
    done = deleted(description)
    return done if ending is None else when_over(ending, lambda: done)


def policy_of(node: Node) -> NodePolicy:
    """The policy of a node that somebody declared."""
    policy: NodePolicy = getattr(node, "policy")  # noqa: B009
    return policy


def _settings(call: Call) -> dict[str, object]:
    """The arguments that are settings."""
    return {key: value for key, value in call.arguments.items() if key not in _COMMON}
