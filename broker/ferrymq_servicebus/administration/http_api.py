"""The administration of one virtual host: its namespace, queues, topics, subscriptions and rules.

Every change goes through the types of management, so the same checks hold as for other clients:
rights, reserved names, settings that are fixed when a node is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element

from ferrymq_broker import audit
from ferrymq_broker.access.access import ConnectionAccess
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.rule import SubscriptionRule
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.entity import EntityType
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.management.operation import Call
from ferrymq_broker.management.queues import QueueEntities
from ferrymq_broker.management.topics import SubscriptionEntities, TopicEntities
from ferrymq_broker.nodes.link_terms import Party
from ferrymq_broker.nodes.node import Node
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.topics.subscription import Subscription
from ferrymq_broker.nodes.topics.topic import Topic
from ferrymq_broker.server.http_handlers import HttpHandler, HttpHost, HttpRequest, HttpResponse
from ferrymq_broker.values.names import DYNAMIC, PART
from ferrymq_broker.values.policy import QueuePolicy
from ferrymq_broker.values.rights import MANAGE
from ferrymq_servicebus.administration import atom
from ferrymq_servicebus.administration.authorization import RequestAuthorizer, TokenAuthorizer
from ferrymq_servicebus.administration.descriptions import Description, kind_of, read, write
from ferrymq_servicebus.administration.errors import HttpError, of_broker, of_management
from ferrymq_servicebus.administration.paths import AdministrationPath, parse_path
from ferrymq_servicebus.administration.policies import (
    changed_queue,
    changed_subscription,
    changed_topic,
    expect_targets,
    new_queue,
    new_subscription,
    new_topic,
    queue_description,
    spell_targets,
    topic_description,
)
from ferrymq_servicebus.administration.remembered import Memory
from ferrymq_servicebus.administration.rule_documents import read_rule, write_rule
from ferrymq_servicebus.administration.times import iso
from ferrymq_servicebus.entities import DEAD_LETTERS, DEFAULT_RULE, DISABLED, TRANSFER_DEAD_LETTERS
from ferrymq_servicebus.entity_names import EntityNames

_Entity = TypeVar("_Entity")

# The most entries of a page, and how many there are if the request does not say.
_PAGE: Final = 100
# The most that a request may skip.
_FARTHEST: Final = 10_000_000
# Characters that need no encoding in the path of a URL (RFC 3986 §3.3).
_IN_PATHS: Final = "/$!'()*,;:@&=+~"
# A name of no entity, which only rules for all names match.
_ANY_NAME: Final = "?"
_QUEUE: Final = "QueueDescription"
_TOPIC: Final = "TopicDescription"
_SUBSCRIPTION: Final = "SubscriptionDescription"
_RULE: Final = "RuleDescription"
# What is told of settings that the broker does not have.
_DEFAULTS: Final[Description] = {
    "EnableBatchedOperations": True,
    "IsAnonymousAccessible": False,
    "SupportOrdering": True,
    "EnablePartitioning": False,
    "EntityAvailabilityStatus": "Available",
    "EnableExpress": False,
    "FilteringMessagesBeforePublishing": False,
    "EnableSubscriptionPartitioning": False,
    "DeadLetteringOnFilterEvaluationExceptions": False,
    "RequiresDuplicateDetection": False,
}


def make_handler(host: HttpHost) -> HttpHandler:
    """Return the handler of the administration of a virtual host, for all paths."""
    return Administration(host, TokenAuthorizer(host)).handle


class Administration:
    """The administration of a virtual host. `authorizer` decides what their clients may do."""

    def __init__(self, host: HttpHost, authorizer: RequestAuthorizer) -> None:
        self._space = space = host.space
        self._broker = host.broker
        self._authorizer = authorizer
        self._queues = QueueEntities(space)
        self._topics = TopicEntities(space)
        self._subscriptions = SubscriptionEntities(space)
        self._names = EntityNames(space)
        self._memory = Memory(space, self._now())

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Return the response to a request."""
        try:
            return self._answer(request)
        except HttpError as error:
            failure = error
        except ManagementError as error:
            failure = of_management(error)
        except BrokerError as error:
            failure = of_broker(error)
        headers = {"Content-Type": atom.ERROR_TYPE}
        refused = failure.status == 401
        if refused:
            headers["WWW-Authenticate"] = "SharedAccessSignature"
        body = atom.encode(atom.error(failure.status, failure.detail))
        return HttpResponse(failure.status, body, headers, close=refused)

    # -- requests ------------------------------------------------------------------------

    def _answer(self, request: HttpRequest) -> HttpResponse:
        path = parse_path(request.path)
        access = self._authorizer.access(request, self._address(path))
        work = _Work(self, request, path, access)
        if request.method == "GET":
            return self._get(work)
        if path.kind not in ("entity", "subscription", "rule"):
            raise HttpError(405, f"{request.method} is not possible here")
        if request.method == "PUT":
            return self._put(work)
        if request.method == "DELETE":
            return self._delete(work)
        raise HttpError(405, f"{request.method} is not possible here")

    def _get(self, work: _Work) -> HttpResponse:
        path = work.path
        if path.kind == "namespace":
            work.expect_namespace()
            return work.entry(self._space.name, self._namespace(), self._times(None, None))
        if path.kind == "queues":
            work.expect_namespace()
            nodes = self._named(Queue)
            return work.page(nodes, "Queues", lambda node: self._entry_of(work, node))
        if path.kind == "topics":
            work.expect_namespace()
            nodes = self._named(Topic)
            return work.page(nodes, "Topics", lambda node: self._entry_of(work, node))
        if path.kind == "entity":
            node = self._entity(work)
            return work.document(self._entry_of(work, node))
        topic = self._topic(work)
        if path.kind == "subscriptions":
            found = [each for each in topic.subscriptions() if each.declared]
            found.sort(key=lambda each: each.link_name)
            return work.page(
                found, "Subscriptions", lambda each: self._subscription_entry(work, topic, each)
            )
        subscription = self._subscription(work, topic)
        if path.kind == "subscription":
            return work.document(self._subscription_entry(work, topic, subscription))
        rules = [] if subscription.rules is None else subscription.rules.all()
        if path.kind == "rules":
            return work.page(
                rules, "Rules", lambda rule: self._rule_entry(work, subscription, rule)
            )
        for rule in rules:
            if rule.name.casefold() == path.rule.casefold():
                return work.document(self._rule_entry(work, subscription, rule))
        raise self._missing(path)

    def _put(self, work: _Work) -> HttpResponse:
        element = atom.read_description(work.request.body)
        kind = kind_of(element)
        update = work.request.headers.get("if-match") is not None
        if work.path.kind == "subscription":
            if kind != _SUBSCRIPTION:
                raise HttpError(400, f"a subscription is not described by {kind}")
            return self._put_subscription(work, element, update)
        if work.path.kind == "rule":
            if kind != _RULE:
                raise HttpError(400, f"a rule is not described by {kind}")
            return self._put_rule(work, element, update)
        if kind not in (_QUEUE, _TOPIC):
            raise HttpError(400, f"a queue or topic is not described by {kind}")
        return self._put_entity(work, kind, read(element), update)

    def _delete(self, work: _Work) -> HttpResponse:
        path = work.path
        if path.kind == "entity":
            node = self._entity(work)
            type = self._queues if isinstance(node, Queue) else self._topics
            # What it returns waits for the messages to be gone; nobody has to.
            work.call(type, "DELETE", node.address, {}, type.delete)
        else:
            topic = self._topic(work)
            subscription = self._subscription(work, topic)
            if path.kind == "subscription":
                types = self._subscriptions
                work.call(types, "DELETE", subscription.address, {}, types.delete)
                self._memory.forget(subscription.address)
            else:
                self._expect_rule(work, subscription)
                work.call(
                    self._subscriptions,
                    "REMOVE-RULE",
                    subscription.address,
                    {"rule": self._rule_name(subscription, path.rule)},
                    self._subscriptions.remove_rule,
                )
        return HttpResponse(200)

    # -- queues and topics ---------------------------------------------------------------

    def _put_entity(
        self, work: _Work, kind: str, description: Description, update: bool
    ) -> HttpResponse:
        named = work.path.entity
        node = self._find(named)
        if update:
            return self._change_entity(work, kind, description, node)
        if named.startswith(DYNAMIC) or PART in named or "/$" in named:
            raise HttpError(400, f"the name {named[:100]!r} is reserved")
        if kind == _QUEUE:
            types: QueueEntities | TopicEntities = self._queues
            settings = new_queue(description)
        else:
            types = self._topics
            settings = new_topic(description)
        spell_targets(settings, self._names)
        call = work.authorised(types, "CREATE", named, settings)
        if node is not None:
            raise HttpError(409, f"the entity {named[:100]!r} exists already")
        expect_targets(settings, QueuePolicy(), self._space)
        work.run("CREATE", types, call, types.create)
        node = self._space.nodes[named]
        self._memory.make(named, node, description, self._now())
        return work.document(self._entry_of(work, node), 201)

    def _change_entity(
        self, work: _Work, kind: str, description: Description, node: Node | None
    ) -> HttpResponse:
        work.expect(work.path.entity if node is None else node.address)
        if kind == _QUEUE and isinstance(node, Queue):
            settings = changed_queue(description, node.policy)
            spell_targets(settings, self._names)
            call = work.authorised(self._queues, "UPDATE", node.address, settings)
            expect_targets(settings, node.policy, self._space)
            work.run("UPDATE", self._queues, call, self._queues.update)
        elif kind == _TOPIC and isinstance(node, Topic):
            settings = changed_topic(description, node.policy)
            work.call(self._topics, "UPDATE", node.address, settings, self._topics.update)
        else:
            raise self._missing(work.path)
        self._memory.change(node.address, node, description, self._now())
        return work.document(self._entry_of(work, node))

    def _entry_of(self, work: _Work, node: Node) -> Element:
        """Return the entry of a queue or a topic."""
        memory = self._memory.of(node.address, node)
        description: Description = dict(_DEFAULTS)
        if isinstance(node, Queue):
            kind = _QUEUE
            description.update(queue_description(node.policy))
            description.update(memory.told)
            self._add_counts(description, node)
            description["SizeInBytes"] = int(node.bytes)
        else:
            assert isinstance(node, Topic)
            kind = _TOPIC
            description.update(topic_description(node.policy))
            description.update(memory.told)
            subscriptions = [each for each in node.subscriptions() if each.declared]
            description["SubscriptionCount"] = len(subscriptions)
            description["SizeInBytes"] = sum(int(each.queue.bytes) for each in subscriptions)
            description["CountDetails"] = _counts(0, 0, 0, 0)
        self._add_times(description, node.address, node)
        times = self._times(node.address, node)
        return work.made(node.address, node.address, write(kind, description), times)

    def _add_counts(self, description: Description, queue: Queue) -> None:
        figures = queue.figures()
        dead = self._count_of(queue, DEAD_LETTERS)
        transfer = self._count_of(queue, TRANSFER_DEAD_LETTERS)
        active = figures["available"] + figures["acquired"]
        # Deferred messages are in the sum only.
        description["MessageCount"] = figures["messages"] + dead + transfer
        description["CountDetails"] = _counts(active, dead, figures["scheduled"], transfer)

    def _count_of(self, queue: Queue, name: str) -> int:
        node = self._space.nodes.get(f"{queue.address}/{name}")
        return 0 if node is None else int(node.message_count())

    # -- subscriptions -------------------------------------------------------------------

    def _put_subscription(self, work: _Work, element: Element, update: bool) -> HttpResponse:
        description = read(element)
        topic = self._topic(work)
        name = work.path.subscription
        there = self._find_subscription(topic, name)
        types = self._subscriptions
        if update:
            if there is None:
                raise self._missing(work.path)
            settings = changed_subscription(description, topic.policy, there.queue.policy)
            spell_targets(settings, self._names)
            call = work.authorised(types, "UPDATE", there.address, settings)
            expect_targets(settings, there.queue.policy, self._space)
            work.run("UPDATE", types, call, types.update)
            self._memory.change(there.address, there, description, self._now())
            return work.document(self._subscription_entry(work, topic, there))
        address = f"{topic.address}{PART}{name}"
        settings = new_subscription(description, topic.policy)
        spell_targets(settings, self._names)
        call = work.authorised(types, "CREATE", address, settings)
        if there is not None:
            raise HttpError(409, f"the subscription {name[:100]!r} exists already")
        expect_targets(settings, QueuePolicy(), self._space)
        first = element.find(atom.name("DefaultRuleDescription"))
        called = DEFAULT_RULE
        if first is not None:
            called = first.findtext(atom.name("Name")) or DEFAULT_RULE
        rule = read_rule(element if first is None else first, called)
        work.run("CREATE", types, call, types.create)
        made = self._find_subscription(topic, name)
        assert made is not None
        topic.add_rule(made, rule)
        self._memory.make(made.address, made, description, self._now())
        return work.document(self._subscription_entry(work, topic, made), 201)

    def _subscription_entry(self, work: _Work, topic: Topic, subscription: Subscription) -> Element:
        address = subscription.address
        description: Description = dict(_DEFAULTS)
        description.update(queue_description(subscription.queue.policy))
        if subscription.queue.policy.receive_disabled:
            description["Status"] = DISABLED
        description.update(self._memory.of(address, subscription).told)
        self._add_counts(description, subscription.queue)
        self._add_times(description, address, subscription)
        times = self._times(address, subscription)
        name = _name_of(subscription)
        path = f"{topic.address}/Subscriptions/{name}"
        return work.made(name, path, write(_SUBSCRIPTION, description), times)

    # -- rules ---------------------------------------------------------------------------

    def _put_rule(self, work: _Work, element: Element, update: bool) -> HttpResponse:
        topic = self._topic(work)
        subscription = self._subscription(work, topic)
        name = self._rule_name(subscription, work.path.rule)
        rule = read_rule(element, name)
        exists = subscription.rules is not None and subscription.rules.get(name) is not None
        if update:
            self._expect_rule(work, subscription)
            topic.remove_rule(subscription, name)
        elif exists:
            raise HttpError(409, f"the rule {name[:100]!r} exists already")
        topic.add_rule(subscription, rule)
        work.note("UPDATE-RULE" if update else "ADD-RULE", "subscription", subscription.address)
        return work.document(self._rule_entry(work, subscription, rule), 200 if update else 201)

    def _rule_entry(
        self, work: _Work, subscription: Subscription, rule: SubscriptionRule
    ) -> Element:
        times = self._times(None, None)
        topic, _, part = subscription.address.rpartition(PART)
        path = f"{topic}/Subscriptions/{part}/Rules/{rule.name}"
        return work.made(rule.name, path, write_rule(rule, times[0]), times)

    def _rule_name(self, subscription: Subscription, name: str) -> str:
        """Return the name of the rule as it was made, or `name` if there is none."""
        rules = [] if subscription.rules is None else subscription.rules.all()
        for rule in rules:
            if rule.name.casefold() == name.casefold():
                return rule.name
        return name

    def _expect_rule(self, work: _Work, subscription: Subscription) -> None:
        name = self._rule_name(subscription, work.path.rule)
        if subscription.rules is None or subscription.rules.get(name) is None:
            raise self._missing(work.path)

    # -- finding -------------------------------------------------------------------------

    def _named(self, kind: type[Queue] | type[Topic]) -> list[Node]:
        """Return the entities of a kind by name, without those of clients and sub-queues."""
        nodes: list[Node] = [
            node
            for address, node in self._space.nodes.items()
            if isinstance(node, kind) and _is_entity(address)
        ]
        nodes.sort(key=lambda node: node.address)
        return nodes

    def _find(self, name: str) -> Node | None:
        """Return the node of an entity, whose name is matched without case."""
        node = self._space.nodes.get(self._names.spelled(name))
        return node if node is not None and _is_entity(node.address) else None

    def _entity(self, work: _Work) -> Node:
        node = self._find(work.path.entity)
        work.expect(work.path.entity if node is None else node.address)
        if not isinstance(node, Queue | Topic):
            raise self._missing(work.path)
        return node

    def _topic(self, work: _Work) -> Topic:
        """Return the topic of a path, after a check of the rights at the subscription or topic."""
        node = self._find(work.path.entity)
        address = work.path.entity if node is None else node.address
        part = work.path.subscription
        work.expect(f"{address}{PART}{part}" if part else address)
        if not isinstance(node, Topic):
            raise self._missing(work.path)
        return node

    def _find_subscription(self, topic: Topic, name: str) -> Subscription | None:
        wanted = name.casefold()
        for subscription in topic.subscriptions():
            if subscription.declared and _name_of(subscription).casefold() == wanted:
                return subscription
        return None

    def _subscription(self, work: _Work, topic: Topic) -> Subscription:
        found = self._find_subscription(topic, work.path.subscription)
        if found is None:
            raise self._missing(work.path)
        return found

    def _address(self, path: AdministrationPath) -> str:
        """Return the address of what a path names; ``""`` for the namespace."""
        node = self._find(path.entity) if path.entity else None
        address = path.entity if node is None else node.address
        return f"{address}{PART}{path.subscription}" if path.subscription else address

    def _missing(self, path: AdministrationPath) -> HttpError:
        named = "/".join(part for part in path[1:] if part)
        return HttpError(404, f"The messaging entity {named[:200]!r} could not be found")

    # -- times ---------------------------------------------------------------------------

    def _now(self) -> float:
        clock = self._broker.clock
        return clock.now + clock.epoch

    def _times(self, address: str | None, owner: object) -> tuple[str, str]:
        memory = self._memory.of(address or "", owner)
        return iso(memory.created), iso(memory.updated)

    def _add_times(self, description: Description, address: str, owner: object) -> None:
        created, updated = self._times(address, owner)
        description["CreatedAt"] = created
        description["UpdatedAt"] = updated
        description["AccessedAt"] = updated

    def _namespace(self) -> Element:
        created, changed = self._times(None, None)
        return write(
            "NamespaceInfo",
            {
                "CreatedTime": created,
                "MessagingSKU": "Standard",
                "ModifiedTime": changed,
                "Name": self._space.name,
                "NamespaceType": "Messaging",
            },
        )


class _Work:
    """One request: what it names, and what its client may do."""

    def __init__(
        self,
        administration: Administration,
        request: HttpRequest,
        path: AdministrationPath,
        access: ConnectionAccess,
    ) -> None:
        self.request = request
        self.path = path
        self._access = access
        self._host = administration._space.name
        self._party = Party(0, 0, "", access.identity.user, request.client.peer, access)

    def expect(self, address: str) -> None:
        """Raise `HttpError` (401) if the client may not manage the node at an address."""
        if not self._access.permits(MANAGE, address):
            what = f"to manage {address[:200]!r} is not allowed to this token"
            client = self.request.client
            audit.access_refused(client.peer, self._party.user, what, self._host, via="http")
            raise HttpError(401, what)

    def expect_namespace(self) -> None:
        """Raise `HttpError` (401) if the client may not manage the whole namespace: it needs the
        right at names of every form, or at the management node."""
        if not self._access.permits(MANAGE, ADDRESS):
            self.expect(_ANY_NAME)

    # -- operations ----------------------------------------------------------------------

    def authorised(
        self, type: EntityType, operation: str, name: str, arguments: dict[str, object]
    ) -> Call:
        """Return a call of management that the client may make. Raises `ManagementError` or
        `BrokerError`."""
        call = Call(self._party, name, arguments)
        type.authorise(operation, call)
        return call

    def run(
        self, operation: str, type: EntityType, call: Call, handler: Callable[[Call], object]
    ) -> None:
        """Do an operation of management, and note it."""
        handler(call)
        self.note(operation, type.short, call.name)

    def call(
        self,
        type: EntityType,
        operation: str,
        name: str,
        arguments: dict[str, object],
        handler: Callable[[Call], object],
    ) -> None:
        """Do an operation of management that the client may do."""
        self.run(operation, type, self.authorised(type, operation, name, arguments), handler)

    def note(self, operation: str, kind: str, name: str) -> None:
        """Write a change to the audit log."""
        party = self._party
        audit.changed(party.peer, party.user, self._host, operation, kind, name, 200, "over HTTP")

    # -- responses -----------------------------------------------------------------------

    def made(self, title: str, path: str, description: Element, times: tuple[str, str]) -> Element:
        """Return an entry of an entity, whose id is a URL with `path`: clients take the names from
        there."""
        url = f"{self.request.base}/{quote(path, safe=_IN_PATHS)}"
        version = self.request.query.get("api-version")
        if version is not None:
            url = f"{url}?{urlencode({'api-version': version})}"
        return atom.entry(title, url, times, description)

    def entry(self, title: str, description: Element, times: tuple[str, str]) -> HttpResponse:
        """Return a response with one entry."""
        return self.document(self.made(title, "$namespaceinfo", description, times))

    def document(self, entry: Element, status: int = 200) -> HttpResponse:
        """Return a response with this entry."""
        return HttpResponse(status, atom.encode(entry), {"Content-Type": atom.ENTRY_TYPE})

    def page(
        self, entities: list[_Entity], title: str, show: Callable[[_Entity], Element]
    ) -> HttpResponse:
        """Return a response with the page of entities that the request asks for."""
        skip = self._number("$skip", 0)
        top = min(self._number("$top", _PAGE), _PAGE)
        chosen = entities[skip : skip + top]
        url = f"{self.request.base}{quote(self.request.path)}"
        following = ""
        if top and skip + top < len(entities):
            query = {"$skip": str(skip + top), "$top": str(top)}
            version = self.request.query.get("api-version")
            if version is not None:
                query["api-version"] = version
            following = f"{url}?{urlencode(query)}"
        updated = iso(0.0)
        root = atom.feed(title, url, updated, [show(each) for each in chosen], following)
        return HttpResponse(200, atom.encode(root), {"Content-Type": atom.FEED_TYPE})

    def _number(self, key: str, default: int) -> int:
        text = self.request.query.get(key)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) > _FARTHEST:
            raise HttpError(400, f"{key}: {text[:40]!r} must be a number")
        return int(text)


def _is_entity(address: str) -> bool:
    return not address.startswith(("$", DYNAMIC)) and "/$" not in address


def _name_of(subscription: Subscription) -> str:
    """Return the name of a subscription without that of its topic."""
    return subscription.address.rpartition(PART)[2]


def _counts(active: int, dead: int, scheduled: int, transfer: int) -> dict[str, int]:
    return {
        "ActiveMessageCount": active,
        "DeadLetterMessageCount": dead,
        "ScheduledMessageCount": scheduled,
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": transfer,
    }
