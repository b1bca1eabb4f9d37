"""Checks of what a client asks of a terminus: contradictions and unknown outcomes are refused.

The field types of a source and a target are checked when they are decoded. This module checks the
rules that the specification states beside the types (AMQP 1.0 §3.5.3–3.5.9).
"""

from __future__ import annotations

from ferrymq.node_properties import problem_of
from ferrymq_broker.connections.outcomes import SUPPORTED_OUTCOMES, is_terminal
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.filters.parse import PLAIN_SELECTORS
from ferrymq_codec.composite import Composite
from ferrymq_codec.scalars import Described
from ferrymq_types.messaging import Source, Target


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
                    f"the filter {name[:100]!r} must be a described value (AMQP 1.0 §3.5.8)",
                )
    default = asked.default_outcome
    if default is not None and not is_terminal(default):
        raise BrokerError(
            "amqp:invalid-field",
            f"the default-outcome {type(default).__name__.lower()} is not an outcome of a "
            f"delivery; it must be one of {', '.join(SUPPORTED_OUTCOMES)}",
        )
    outcomes = asked.outcomes
    if outcomes is not None:
        for outcome in outcomes:
            if outcome not in SUPPORTED_OUTCOMES:
                raise BrokerError(
                    "amqp:not-implemented",
                    f"the outcome {outcome[:100]!r} is unknown; it must be one of "
                    f"{', '.join(SUPPORTED_OUTCOMES)}",
                )


def check_target(asked: Target) -> None:
    """Raise `BrokerError` for a target that breaks a rule."""
    _check_properties("target", asked.dynamic, asked.dynamic_node_properties)


def _check_properties(where: str, dynamic: bool, properties: dict[str, object] | None) -> None:
    if not properties:
        return
    if not dynamic:
        raise BrokerError(
            "amqp:invalid-field",
            f"the {where} has dynamic-node-properties but is not dynamic (AMQP 1.0 §3.5.3–4)",
        )
    problem = problem_of(properties)
    if problem is not None:
        raise BrokerError("amqp:invalid-field", f"the properties of the {where}: {problem}")
