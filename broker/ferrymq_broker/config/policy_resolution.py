"""Makes the policy of a node from its shared settings, its own settings and the defaults."""

from __future__ import annotations

from collections.abc import Mapping

from ferrymq_broker.config.declarations import DeclaredNode, Nodes, Policy, Subscription, Topic
from ferrymq_broker.config.nodes import SETTINGS, given, make_policy
from ferrymq_broker.values.policy import NodePolicy, QueuePolicy, TopicPolicy


def resolve_policy(kind: str, entry: DeclaredNode, policies: Mapping[str, Policy]) -> NodePolicy:
    """Return the policy of a declared node, or of the nodes of a declared pattern."""
    settings = _merged(kind, entry, entry.policy, policies)
    if isinstance(entry, Topic):
        own = entry.subscription
        settings["subscription"] = make_policy("queue", _merged("queue", own, own.policy, policies))
    return make_policy(kind, settings)


def _merged(
    kind: str, entry: DeclaredNode | Subscription, name: str, policies: Mapping[str, Policy]
) -> dict[str, object]:
    shared = policies.get(name)
    settings = {} if shared is None else given(shared)
    known = SETTINGS[kind].model_fields
    settings.update({key: value for key, value in given(entry).items() if key in known})
    return settings


def foreign_settings(kind: str, policy: Policy) -> list[str]:
    """Return the names of shared settings that nodes of this kind do not have."""
    known = SETTINGS[kind].model_fields
    return sorted(name for name in policy.model_fields_set if name not in known)


def auto_created(nodes: Nodes) -> tuple[NodePolicy | None, NodePolicy | None]:
    """Return the policies for undeclared names: in general, and for links that ask for a topic."""
    made = nodes.auto_create
    if made is False:
        return None, None
    if made == "topic":
        return TopicPolicy(), TopicPolicy()
    return QueuePolicy(), TopicPolicy() if made is True else None
