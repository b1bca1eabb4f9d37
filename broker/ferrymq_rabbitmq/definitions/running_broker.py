"""Import into a running broker: everything but virtual hosts. Users, permissions and policies need
the files in which the broker keeps them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrymq_broker.broker import Broker
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.errors import ManagementError
from ferrymq_broker.management.sliced_query import Steps
from ferrymq_broker.management.users import SaltedHash, UserChange, UserEntities, UserKeeper
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy
from ferrymq_broker.values.rights import MANAGE
from ferrymq_rabbitmq.address_v2 import EXCHANGES, exchange_name
from ferrymq_rabbitmq.arguments import ArgumentError, is_internal
from ferrymq_rabbitmq.definitions.document import Definitions, Omission
from ferrymq_rabbitmq.definitions.plan import HostPlan, PlannedNode, PlannedUser, make_plan
from ferrymq_rabbitmq.host_policies import HostPolicies
from ferrymq_rabbitmq.management.host_requests import HostRequests
from ferrymq_rabbitmq.management.request_refused import RequestRefused
from ferrymq_rabbitmq.permission_rules import PermissionRules

if TYPE_CHECKING:
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.management.live import LiveKeepers
    from ferrymq_broker.nodes.link_terms import Party

_IN_FILES = "a running broker does not change its file of users: import with --users-file"


def import_definitions_into(
    broker: Broker,
    definitions: Definitions,
    party_in: Callable[[AddressSpace], Party],
    keepers: LiveKeepers | None = None,
    only_nodes: bool = False,
) -> Steps[dict[str, object]]:
    """Declare what definitions have, with the rights of the party in each virtual host; users and
    permissions only with `keepers`. Return the report: how many things of each kind were
    ``imported``, or existed already in the same form, and the ``omitted`` ones. Raises ValueError
    for definitions that are malformed.

    The nodes and policies of virtual hosts that other workers serve are left to them. `only_nodes`
    is for such a worker: the one that has asked it imports and reports everything else."""
    plan = make_plan(definitions)
    omitted: list[Omission] = [] if only_nodes else plan.omitted
    counts = {"queues": 0, "exchanges": 0, "bindings": 0, "policies": 0}
    whole = keepers is not None
    if keepers is None:
        if not only_nodes:
            omitted += [Omission("user", user.name, "", _IN_FILES) for user in plan.users]
    else:
        counts |= {"users": 0, "permissions": 0}
        for user in plan.users:
            reason = yield from _import_user(user, keepers.users)
            if reason:
                omitted.append(Omission("user", user.name, "", reason))
            else:
                counts["users"] += 1
        if not broker.guarded and any(host.rules for host in plan.hosts):
            # The first rule closes the broker; administrators have to keep their rights.
            first = PermissionRules(broker.default, keepers.rules, party_in(broker.default))
            try:
                first.expect_managed()
            except ManagementError as error:
                omitted.append(Omission("permissions", "", "", error.description))
                keepers = None
    for host in plan.hosts:
        space = broker.spaces.get(host.space)
        elsewhere = space is not None and space.elsewhere >= 0
        requests = getattr(None if space is None else space.personality, "requests", None)
        if space is None or not (elsewhere or isinstance(requests, HostRequests)):
            if only_nodes:
                continue
            reason = "there is no such virtual host: it has to be in the configuration"
            omitted.append(Omission("virtual host", host.vhost, "", reason))
            continue
        party = party_in(space)
        if host.rules and not whole and not only_nodes:
            reason = "permissions are rules of the configuration: import with --config"
            omitted.append(Omission("permissions", "", host.vhost, reason))
        elif host.rules and keepers is not None:
            rules = PermissionRules(space, keepers.rules, party)
            count, wrong = rules.import_from(definitions.host(host.vhost))
            counts["permissions"] += count
            omitted += wrong
        if isinstance(requests, HostRequests) and not elsewhere:
            _HostImport(space, host, requests, party, counts, omitted).run()
    return {"imported": counts, "omitted": [omission.plain() for omission in omitted]}


def _import_user(user: PlannedUser, keeper: UserKeeper) -> Steps[str]:
    """Make a user, unless there is one of this name. Return why not; empty if it was made."""
    if user.name in keeper.users():
        return "there is a user of this name already, who stays"
    password = SaltedHash(user.algorithm, user.salt, user.digest)
    try:
        yield from UserEntities(keeper).change(
            UserChange(user.name, password, user.groups, new=True)
        )
    except ManagementError as error:
        return error.description
    return ""


class _HostImport:
    """The import into one virtual host."""

    def __init__(
        self,
        space: AddressSpace,
        host: HostPlan,
        requests: HostRequests,
        party: Party,
        counts: dict[str, int],
        omitted: list[Omission],
    ) -> None:
        self._space = space
        self._host = host
        self._requests = requests
        self._party = party
        self._counts = counts
        self._omitted = omitted

    def run(self) -> None:
        """Import policies first, because they complete the queues."""
        host = self._host
        self._put_policies()
        for node in host.exchanges:
            self._try("exchanges", "exchange", node.name, self._declare_exchange(node))
        for node in host.queues:
            self._try("queues", "queue", node.name, self._declare_queue(node))
        for binding in host.bindings:
            body: dict[str, object] = {
                "source": binding.source,
                "binding_key": binding.key,
                "arguments": dict(binding.arguments),
            }
            if binding.destination.startswith(EXCHANGES):
                body["destination_exchange"] = exchange_name(binding.destination)
            else:
                body["destination_queue"] = binding.destination
            bind = self._bind(body)
            self._try("bindings", "binding", f"{binding.source} -> {binding.destination}", bind)

    def _put_policies(self) -> None:
        host = self._host
        if host.policies and not self._party.access.permits(MANAGE, ADDRESS):
            reason = "policies need the right to manage the broker"
            self._omitted.append(Omission("policies", "", host.vhost, reason))
            return
        policies = getattr(self._space.personality, "host_policies", None)
        assert isinstance(policies, HostPolicies)
        for policy in host.policies:
            try:
                if policies.kept:
                    policies.put(policy)
                else:
                    policies.put_for_now(policy)
            except RequestRefused as error:
                reason = error.description
                self._omitted.append(Omission("policy", policy.name, host.vhost, reason))
                continue
            self._counts["policies"] += 1
            if not policies.kept:
                reason = (
                    "it counts until the broker ends; to keep it, put it into the configuration as "
                    "[[personality.policy]], or set policies-file"
                )
                self._omitted.append(Omission("policy", policy.name, host.vhost, reason))

    def _declare_exchange(self, node: PlannedNode) -> Callable[[], object]:
        policy = node.policy
        assert isinstance(policy, ExchangePolicy)
        body: dict[str, object] = {
            "type": policy.type,
            "durable": policy.durable,
            "auto_delete": policy.auto_delete == 0,
            "internal": is_internal(policy),
            "arguments": dict(node.arguments),
        }
        return lambda: self._requests.exchanges.declare(self._party, node.name, body)

    def _declare_queue(self, node: PlannedNode) -> Callable[[], object]:
        policy = node.policy
        body: dict[str, object] = {
            "durable": policy.durable,
            "auto_delete": isinstance(policy, QueuePolicy) and policy.auto_delete == 0,
            "arguments": dict(node.arguments),
        }
        return lambda: self._requests.queues.declare(self._party, node.name, body)

    def _bind(self, body: dict[str, object]) -> Callable[[], object]:
        return lambda: self._requests.bindings.bind(self._party, body)

    def _try(self, counted: str, kind: str, name: str, work: Callable[[], object]) -> None:
        """Do one thing; a refusal becomes an omission."""
        try:
            work()
        except (RequestRefused, ManagementError) as error:
            reason = error.description
        except (ArgumentError, BrokerError) as error:
            reason = str(error)
        else:
            self._counts[counted] += 1
            return
        self._omitted.append(Omission(kind, name, self._host.vhost, reason))
