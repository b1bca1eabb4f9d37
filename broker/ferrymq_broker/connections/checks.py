"""What a client may ask of a terminus: what is refused at attach as a contradiction or unknown.

The field types of a source and a target are checked when they are decoded. What is left are the
rules that the specification states beside the types (AMQP 1.0 §3.5.3–3.5.9).
"""

from __future__ import annotations

from typing import Final

from ferrymq_broker.connections.lifetimes import LIFETIME_POLICY, SUPPORTED_DIST_MODES
from ferrymq_broker.connections.outcomes import SUPPORTED_OUTCOMES, is_terminal
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import PLAIN_SELECTORS
from ferrymq_codec.composite import Composite
from ferrymq_codec.containers import Array
from ferrymq_codec.errors import CodecError
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Target,
)
from ferrymq_types.registry import typed

_DIST_MODES: Final = ("move", "copy")


def check_source(asked: Source) -> None:
    """Raise `BrokerError` for a source that breaks a rule or names unknown outcomes."""
    _check_properties("source", asked.dynamic, asked.dynamic_node_properties)
    filters = asked.filter
    if filters is not None:
        for name, filter in filters.items():
            if filter is None or isinstance(filter, Described | Composite):
                continue
            if not (isinstance(filter, str) and name in PLAIN_SELECTORS):
                raise BrokerError(
                    "amqp:invalid-field",
                    f"the filter {name[:100]!r} is not a described value (AMQP 1.0 §3.5.8)",
                )
    default = asked.default_outcome
    if default is not None and not is_terminal(default):
        raise BrokerError(
            "amqp:invalid-field",
            f"the default-outcome {type(default).__name__.lower()} is no outcome of a delivery; "
            f"there are {', '.join(SUPPORTED_OUTCOMES)}",
        )
    outcomes = asked.outcomes
    if outcomes is not None:
        for outcome in outcomes:
            if outcome not in SUPPORTED_OUTCOMES:
                raise BrokerError(
                    "amqp:not-implemented",
                    f"outcome {outcome[:100]!r}; there are {', '.join(SUPPORTED_OUTCOMES)}",
                )


def check_target(asked: Target) -> None:
    """Raise `BrokerError` for a target that breaks a rule."""
    _check_properties("target", asked.dynamic, asked.dynamic_node_properties)


def _check_properties(where: str, dynamic: bool, properties: dict[str, object] | None) -> None:
    if properties is None:
        return
    if not dynamic:
        raise BrokerError(
            "amqp:invalid-field",
            f"the {where} has dynamic-node-properties and is not dynamic (AMQP 1.0 §3.5.3–4)",
        )
    policy = properties.get(LIFETIME_POLICY)
    if policy is not None and not _is_lifetime(policy):
        raise BrokerError(
            "amqp:invalid-field",
            f"the lifetime-policy of the {where} is none of AMQP's (AMQP 1.0 §3.5.10–13)",
        )
    modes = properties.get(SUPPORTED_DIST_MODES)
    if modes is not None and not _are_modes(modes):
        raise BrokerError(
            "amqp:invalid-field",
            f"the supported-dist-modes of the {where} are not move, copy or an array of them",
        )


def _is_lifetime(policy: object) -> bool:
    if isinstance(policy, Described):
        try:
            policy = typed(policy)
        except CodecError:
            return False
    return isinstance(
        policy, DeleteOnClose | DeleteOnNoLinks | DeleteOnNoMessages | DeleteOnNoLinksOrMessages
    )


def _are_modes(modes: object) -> bool:
    if isinstance(modes, Array):
        return all(mode in _DIST_MODES for mode in modes.items)
    return modes in _DIST_MODES
