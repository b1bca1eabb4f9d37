"""The policies of nodes as management clients state them, with the keys of the configuration.

Plain numbers count as the broker counts, in milliseconds and bytes; texts like ``"30s"`` and
``"10MiB"`` are accepted too.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from pydantic import ValidationError

from ferrymq_broker.config.nodes import (
    KINDS,
    SETTINGS,
    QueueSettings,
    TopicSettings,
    contradictions,
    given,
    make_policy,
)
from ferrymq_broker.config.section import StrictSection, kebab
from ferrymq_broker.config.units import MACHINE
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.values.policy import NodePolicy


def node_policy(kind: str, attributes: Mapping[str, object]) -> NodePolicy:
    """Make the policy for a node of this kind with these attributes.

    Raises `BrokerError` (``amqp:invalid-field``) naming the key that is unknown or wrong.
    """
    settings = SETTINGS.get(kind)
    if settings is None:
        raise BrokerError("amqp:invalid-field", f"{kind!r} is none of {', '.join(KINDS)}")
    _refuse_unknown(settings, attributes, "")
    try:
        plain = {
            key: dict(value) if isinstance(value, Mapping) else value
            for key, value in attributes.items()
        }
        checked = settings.model_validate(plain, context=MACHINE)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise BrokerError("amqp:invalid-field", f"{key}: {reason}") from None
    values = given(checked)
    if isinstance(checked, TopicSettings):
        values["subscription"] = make_policy("queue", given(checked.subscription))
    policy = make_policy(kind, values)
    for key, reason in contradictions(policy):
        raise BrokerError("amqp:invalid-field", f"{key}: {reason}")
    return policy


def _refuse_unknown(
    settings: type[StrictSection], attributes: Mapping[str, object], before: str
) -> None:
    keys = [kebab(name) for name in settings.model_fields]
    for key, value in attributes.items():
        if key not in keys:
            close = difflib.get_close_matches(str(key), keys, n=1)
            hint = f"; did you mean {before + close[0]!r}?" if close else ""
            raise BrokerError("amqp:invalid-field", f"unknown key {before + str(key)!r}{hint}")
        if key == "subscription" and isinstance(value, Mapping):
            _refuse_unknown(QueueSettings, value, "subscription.")
