"""The policies of one virtual host that runs: those of the configuration, and those in a file.

Queues and exchanges that are as clients have declared them follow a change of a policy at once.
Those that the configuration declares, or that were changed by management, stay as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ferrymq_broker.addresses.declared_nodes import CONFIGURATION
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import ExchangePolicy, QueuePolicy, StreamPolicy
from ferrymq_rabbitmq.address_v2 import exchange_name, vhost_of
from ferrymq_rabbitmq.arguments import (
    ArgumentError,
    arguments_of,
    exchange_policy,
    is_internal,
    queue_policy,
)
from ferrymq_rabbitmq.management.request_refused import RequestRefused, bad_request
from ferrymq_rabbitmq.pattern_policies import PatternPolicies, PatternPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_rabbitmq.policy_file import PolicyFile


class HostPolicies:
    """The policies of one virtual host. `all` are those that count."""

    def __init__(
        self, space: AddressSpace, configured: PatternPolicies, file: PolicyFile | None
    ) -> None:
        self._space = space
        self._vhost = vhost_of(space)
        self._configured = configured
        self._file = file
        self.all: PatternPolicies = self.joined(configured)

    def joined(self, configured: PatternPolicies) -> PatternPolicies:
        """Return the policies of a configuration with those of the file. Raises ValueError, or
        `ConfigError`, for a file that cannot be used."""
        kept = PatternPolicies() if self._file is None else self._file.read(self._vhost)
        for policy in configured.everything():
            kept.put(policy)
        return kept

    def take(self, configured: PatternPolicies) -> None:
        """Use other policies of the configuration, which `joined` accepts."""
        self._configured = configured
        self._replace()

    def put(self, policy: PatternPolicy) -> bool:
        """Add a policy, or replace it, and keep it in the file. Return whether it is new. Raises
        `RequestRefused`."""
        new = self.all.get(policy.name, policy.operator) is None
        self._edit(policy.name, policy.operator, lambda policies: policies.put(policy))
        return new

    def put_for_now(self, policy: PatternPolicy) -> None:
        """Add a policy that counts until the broker ends."""
        before = self.all.copy()
        self.all.put(policy)
        self._follow(before)

    @property
    def kept(self) -> bool:
        """Whether there is a file, in which policies are kept."""
        return self._file is not None

    def delete(self, name: str, operator: bool) -> None:
        """Delete a policy. Raises `RequestRefused`."""
        if self.all.get(name, operator) is None:
            raise RequestRefused.missing("policy", name)
        self._edit(name, operator, lambda policies: policies.drop(name, operator))

    def _edit(self, name: str, operator: bool, edit: Callable[[PatternPolicies], object]) -> None:
        if self._configured.get(name, operator) is not None:
            raise bad_request(
                f"the policy {name[:200]!r} is in the configuration: change it there, and reload"
            )
        if self._file is None:
            raise bad_request(
                "the broker has no file for policies that are made while it runs: set"
                " policies-file in [personality]"
            )
        try:
            self._file.edit(self._vhost, edit)
            self._replace()
        except (ConfigError, ValueError, OSError) as error:
            raise bad_request(f"the policies stay as they were: {error}") from None

    def _replace(self) -> None:
        before = self.all
        self.all = self.joined(self._configured)
        self._follow(before)

    def _follow(self, before: PatternPolicies) -> None:
        for node in list(self._space.nodes.values()):
            if node.origin == CONFIGURATION or node.address.startswith("$"):
                continue
            try:
                if isinstance(node, Queue | Stream):
                    self._follow_queue(node, before)
                elif isinstance(node, Exchange):
                    self._follow_exchange(node, before)
            except (ArgumentError, BrokerError) as error:
                log.warning(
                    "a node cannot follow the policies",
                    space=self._space.name,
                    address=node.address,
                    reason=str(error),
                )

    def _follow_queue(self, node: Queue | Stream, before: PatternPolicies) -> None:
        there = node.policy
        if there != _queue_policy(node.address, there, before):
            return
        wanted = _queue_policy(node.address, there, self.all)
        if wanted == there:
            return
        if isinstance(node, Queue):
            assert isinstance(wanted, QueuePolicy)
            node.change_policy(wanted)
        else:
            assert isinstance(wanted, StreamPolicy)
            node.change_policy(wanted)
        self._space.changed(node)

    def _follow_exchange(self, node: Exchange, before: PatternPolicies) -> None:
        there = node.policy
        name = exchange_name(node.address)
        if there != _exchange_policy(name, there, before):
            return
        wanted = _exchange_policy(name, there, self.all)
        if wanted != there:
            node.change_policy(wanted)
            self._space.changed(node)


def _queue_policy(
    name: str, there: QueuePolicy | StreamPolicy, policies: PatternPolicies
) -> QueuePolicy | StreamPolicy:
    """Return the policy of a queue as it was declared, completed by policies."""
    arguments = arguments_of(there.labels)
    made = queue_policy(
        policies.queue_arguments(name, arguments),
        there.durable,
        False,
        isinstance(there, QueuePolicy) and there.auto_delete == 0,
    )
    return replace(made, labels=there.labels)


def _exchange_policy(name: str, there: ExchangePolicy, policies: PatternPolicies) -> ExchangePolicy:
    arguments = arguments_of(there.labels)
    made = exchange_policy(
        there.type,
        policies.exchange_arguments(name, arguments),
        there.durable,
        there.auto_delete == 0,
        is_internal(there),
    )
    return replace(made, labels=there.labels)
