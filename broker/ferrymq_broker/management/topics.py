"""Topics and subscriptions."""

from __future__ import annotations

from typing import Final

from ferrymq_broker.addresses.address_space import AddressSpace
from ferrymq_broker.config.nodes import QueueSettings, TopicSettings, policy_attributes
from ferrymq_broker.filters.rule import CORRELATION, FALSE, SQL, TRUE, make_rule
from ferrymq_broker.filters.selector import selector
from ferrymq_broker.management.authorisation import (
    OF_RECEIVERS,
    canonical,
    drains,
    expect_send,
    expect_ways,
    forbidden,
    reading,
)
from ferrymq_broker.management.entity import COMMON, IndexedType, Show
from ferrymq_broker.management.errors import (
    BAD_REQUEST,
    CONFLICT,
    CREATED,
    NO_CONTENT,
    ManagementError,
)
from ferrymq_broker.management.history import (
    ARGUMENTS,
    HISTORY,
    RATES,
    history_of_node,
    rates_of_node,
)
from ferrymq_broker.management.messages import QueueMessages
from ferrymq_broker.management.node_links import NodeLinks
from ferrymq_broker.management.nodes import DeclaredNodes, expect_kept, when_gone
from ferrymq_broker.management.operation import Call, Operation, Result
from ferrymq_broker.management.policies import node_policy
from ferrymq_broker.management.sessions import QueueSessions
from ferrymq_broker.management.sliced_query import Steps, finish, sift
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.node import Agenda, Node
from ferrymq_broker.nodes.topics.subscription import Subscription
from ferrymq_broker.nodes.topics.subscription_identity import is_open_to, public_name
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.timers import TimerHeap
from ferrymq_broker.values.names import PART
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, TopicPolicy
from ferrymq_broker.values.rights import CREATE, MANAGE
from ferrymq_codec.scalars import Described, Symbol

# The name of the filter of a subscription that is declared with a selector.
SELECTOR: Final = "apache.org:selector-filter:string"

# The arguments that say which rule and which subscription is meant.
_ABOUT: Final = ("rule", "name", "identity", "type")
# The most rules that LIST-RULES returns if the request does not say.
_TOP: Final = 1000

_QUEUE: Final = tuple(field.alias or name for name, field in QueueSettings.model_fields.items())


class TopicEntities(DeclaredNodes):
    """The topics, by address."""

    short = "topic"
    settings: tuple[str, ...] = tuple(
        field.alias or name for name, field in TopicSettings.model_fields.items()
    )

    def change(self, node: Node, policy: NodePolicy) -> None:
        """Change the policy. Existing subscriptions keep their settings; new ones get the new
        settings."""
        assert isinstance(node, Topic) and isinstance(policy, TopicPolicy)
        node.change_policy(policy)


class SubscriptionEntities(IndexedType[tuple[Topic, Subscription]]):
    """The subscriptions, as TOPIC::NAME: those made by management, and those made by links."""

    short = "subscription"
    # What lists the links of subscriptions; None if that is not wanted.
    links: NodeLinks | None = None

    def __init__(self, space: AddressSpace) -> None:
        self._space = space
        self._messages = QueueMessages(space, lambda call: self._found(call)[1].queue)
        self._sessions = QueueSessions(lambda call: self._found(call)[1].queue)
        scratch = AddressSpace("", Agenda(), TimerHeap(), 1)
        topic = Topic("fresh", scratch, TopicPolicy())
        fresh = topic.declare_subscription("fresh")
        self.attributes: tuple[str, ...] = tuple(_describe(topic, fresh))
        # The attributes that are read without the settings. A setting of the same name is another
        # thing.
        self._brief = frozenset(
            (*fresh.queue.figures(), *fresh.terms(), *RATES, "topic", *COMMON)
        ) - frozenset(policy_attributes(fresh.queue.policy)).difference(fresh.terms())

    def operations(self) -> dict[str, Operation]:
        """Return the operations. A subscription has those of a queue."""
        links = self.links
        return {
            "CREATE": Operation(self.create, ("selector", *_QUEUE)),
            "READ": Operation(self.read),
            "UPDATE": Operation(self.update, _QUEUE),
            "DELETE": Operation(self.delete, ("if-empty", "if-unused")),
            HISTORY: Operation(self.history, ARGUMENTS),
            "ADD-RULE": Operation(self.add_rule, ("rule", TRUE, FALSE, SQL, CORRELATION, "action")),
            "REMOVE-RULE": Operation(self.remove_rule, ("rule",)),
            "LIST-RULES": Operation(self.list_rules, ("skip", "top")),
            **self._messages.operations(),
            **self._sessions.operations(),
            **({} if links is None else links.operations(lambda call: self._found(call)[1].queue)),
        }

    def authorise(self, operation: str, call: Call) -> None:
        """Check rights. A user's own subscription needs the right to receive from it, others the
        right to manage it, and a new one the right to manage or to create it. The operations of
        receivers need the rights of a link.

        The answer does not tell whether a subscription exists. A setting that moves messages to
        another address needs the right to receive them.
        """
        party = call.party
        access = party.access
        if access.open:
            return
        name = call.meant()
        address = canonical(self._space, name)
        right = MANAGE | CREATE if operation == "CREATE" else MANAGE
        if operation in OF_RECEIVERS:
            if not self._may_receive(party, address):
                raise forbidden(operation, self.short, name)
            return
        if not access.permits(right, address):
            found = None if operation == "CREATE" else self._find(name)
            if found is None or not _is_own(found[1], party):
                raise forbidden(operation, self.short, name)
            if not access.permits(reading(self._space, address), address):
                raise forbidden(operation, self.short, name)
        if operation in ("CREATE", "UPDATE") and drains(call.arguments):
            access.require(reading(self._space, address), address, name)
        expect_ways(party, self._space, call.arguments)
        target = call.arguments.get("target")
        if operation in ("MOVE", "REQUEUE") and isinstance(target, str):
            expect_send(party, self._space, target)

    def _may_receive(self, party: Party, address: str) -> bool:
        """Return whether a link of the party may receive from the subscription at an address."""
        access = party.access
        if not access.permits(reading(self._space, address), address):
            return False
        name = address[address.rfind(PART) + len(PART) :] if PART in address else ""
        return is_open_to(name, party.user) or access.permits(MANAGE, address)

    def visible(self, party: Party) -> list[str]:
        """Return the result of `sight` at once."""
        return finish(self.sight(party))

    def sight(self, party: Party) -> Steps[list[str]]:
        """Return the party's own subscriptions that it may receive from, and all that it may
        manage."""
        access = party.access
        entries = self.entries()

        def is_seen(address: str) -> bool:
            return access.permits(MANAGE, address) or (
                _is_own(entries[address][1], party)
                and access.permits(reading(self._space, address), address)
            )

        return (yield from sift(entries, is_seen))

    def entries(self) -> dict[str, tuple[Topic, Subscription]]:
        """Return the subscriptions sorted by address."""
        found: dict[str, tuple[Topic, Subscription]] = {}
        for node in self._space.nodes.values():
            if isinstance(node, Topic):
                for subscription in node.subscriptions():
                    found[subscription.address] = (node, subscription)
        return dict(sorted(found.items()))

    def row_shower(self, identities: list[str], names: list[str]) -> Show:
        """Return a function that shows figures and rates; all attributes if the names have
        others."""
        entries = self.entries()
        if not self._brief.issuperset(names):
            return self.shower_of(entries)

        def show(identity: str) -> dict[str, object] | None:
            entry = entries.get(identity)
            if entry is None:
                return None
            topic, subscription = entry
            return {
                **subscription.queue.figures(),
                **rates_of_node(subscription.queue),
                "topic": topic.address,
                **subscription.terms(),
                "refused": subscription.refused,
            }

        return show

    def describe(self, entry: tuple[Topic, Subscription]) -> dict[str, object]:
        """Return the attributes of a subscription."""
        topic, subscription = entry
        return _describe(topic, subscription)

    def _find(self, address: str) -> tuple[Topic, Subscription] | None:
        cut = address.rfind(PART)
        topic = self._space.find(address[:cut]) if cut > 0 else None
        if not isinstance(topic, Topic):
            return None
        name = address[cut + len(PART) :]
        for subscription in topic.subscriptions():
            if subscription.name == name:
                return topic, subscription
        return None

    def _found(self, call: Call) -> tuple[Topic, Subscription]:
        name = call.required_name()
        found = self._find(name)
        if found is None:
            raise self.missing(name)
        return found

    def show(self, identity: str) -> dict[str, object] | None:
        """Return the attributes of a subscription. Its name may contain an alias of the topic."""
        found = self._find(identity)
        return None if found is None else self.describe(found)

    def create(self, call: Call) -> Result:
        """Handle CREATE: make a subscription without an owner, which stays until it is deleted."""
        address = call.required_name()
        cut = address.rfind(PART)
        if cut <= 0 or not address[cut + len(PART) :]:
            raise ManagementError(BAD_REQUEST, f"{address[:200]!r} must have the form TOPIC::NAME")
        topic, part = self._space.resolve(address, (), call.party.access)
        if not isinstance(topic, Topic):
            raise ManagementError(
                CONFLICT, f"{topic.address[:200]!r} is not a topic but a {topic.kind}"
            )
        words = call.text("selector", "")
        given = {
            key: value
            for key, value in call.arguments.items()
            if key not in ("selector", "name", "identity", "type")
        }
        policy = topic.policy.subscription
        if given:
            wanted = node_policy("queue", {**policy_attributes(policy), **given})
            assert isinstance(wanted, QueuePolicy)
            policy = wanted
        filter = selector(words) if words else None
        there = self._find(f"{topic.address}{PART}{public_name(part)}")
        if there is not None:
            before = there[1]
            key = "" if before.filter is None else before.filter.key
            if before.queue.policy != policy or key != ("" if filter is None else filter.key):
                raise ManagementError(
                    CONFLICT,
                    f"the subscription {address[:200]!r} exists with another filter or "
                    "other settings",
                )
            topic.agenda.changes.claim()
            return Result(self.shown(there[1].address), description="exists already")
        asked: dict[str, object] = {}
        if words:
            asked[SELECTOR] = Described(Symbol(SELECTOR), words)
        made = topic.declare_subscription(part, filter, policy, asked)
        return Result(self.shown(made.address), CREATED, "created")

    def update(self, call: Call) -> Result:
        """Handle UPDATE: change settings of the subscription's queue."""
        topic, subscription = self._found(call)
        before = subscription.queue.policy
        given = {
            key: value
            for key, value in call.arguments.items()
            if key not in ("name", "identity", "type")
        }
        policy = node_policy("queue", {**policy_attributes(before), **given})
        assert isinstance(policy, QueuePolicy)
        expect_kept(subscription.address, before, policy)
        topic.change_subscription(subscription, policy)
        return Result(self.shown(subscription.address), description="updated")

    def history(self, call: Call) -> Result:
        """Handle HISTORY: return the samples of the last minutes, hours or day."""
        return history_of_node(call, self._found(call)[1].queue)

    def add_rule(self, call: Call) -> Result:
        """Handle ADD-RULE: from its first rule on, a subscription gets only what its rules say."""
        topic, subscription = self._found(call)
        name = call.text("rule")
        rule = make_rule(
            name, {key: value for key, value in call.arguments.items() if key not in _ABOUT}
        )
        rules = subscription.rules
        if rules is not None and rules.get(name) is not None:
            raise ManagementError(
                CONFLICT, f"{subscription.address[:200]!r} has a rule {name!r} already"
            )
        topic.add_rule(subscription, rule)
        return Result(rule.describe(), CREATED, "added")

    def remove_rule(self, call: Call) -> Result:
        """Handle REMOVE-RULE: a subscription without any rule left gets no messages."""
        call.expect_only("rule")
        topic, subscription = self._found(call)
        topic.remove_rule(subscription, call.text("rule"))
        return Result({}, NO_CONTENT, "removed")

    def list_rules(self, call: Call) -> Result:
        """Handle LIST-RULES: return the rules in the order in which they were added."""
        call.expect_only("skip", "top")
        subscription = self._found(call)[1]
        rules = [] if subscription.rules is None else subscription.rules.all()
        skip = call.number("skip", 0)
        chosen = rules[skip : skip + call.number("top", _TOP, 1)]
        return Result({"rules": [rule.describe() for rule in chosen], "count": len(rules)})

    def delete(self, call: Call) -> Result | Steps[Result]:
        """Handle DELETE: close the links with ``amqp:resource-deleted``, and drop the messages."""
        call.expect_only("if-empty", "if-unused")
        topic, subscription = self._found(call)
        messages = subscription.queue.message_count()
        if call.flag("if-empty") and messages > 0:
            raise ManagementError(CONFLICT, f"{subscription.address!r} has {messages} messages")
        if call.flag("if-unused") and subscription.links:
            raise ManagementError(
                CONFLICT, f"{subscription.address!r} has {len(subscription.links)} links"
            )
        topic.delete_subscription(subscription.name)
        return when_gone(subscription.queue)


def _describe(topic: Topic, subscription: Subscription) -> dict[str, object]:
    settings = policy_attributes(subscription.queue.policy)
    described = subscription.describe()
    described.pop("type", None)
    # Two figures have the same names as settings, with another meaning.
    facts = {key: value for key, value in described.items() if key not in settings}
    return {
        **facts,
        **rates_of_node(subscription.queue),
        "name": subscription.address,
        "topic": topic.address,
        "durable": described["durable"],
        "settings": settings,
    }


def _is_own(subscription: Subscription, party: Party) -> bool:
    """Return whether the subscription belongs to the party's user. A party without a user owns
    none."""
    return party.user is not None and subscription.user == party.user
