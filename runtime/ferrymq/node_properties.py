"""The properties of dynamic nodes that either end may state (AMQP 1.0 §3.5.9)."""

from __future__ import annotations

from typing import Final

from ferrymq_codec.containers import Array
from ferrymq_codec.errors import CodecError
from ferrymq_codec.scalars import Described, Symbol
from ferrymq_types.messaging import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
)
from ferrymq_types.registry import typed

LIFETIME_POLICY: Final = "lifetime-policy"
SUPPORTED_DIST_MODES: Final = "supported-dist-modes"

_DIST_MODES: Final = ("move", "copy")


def problem_of(properties: dict[str, object]) -> str | None:
    """Return the error in the properties of a dynamic node, None if there is none."""
    if LIFETIME_POLICY in properties and not _is_lifetime(properties[LIFETIME_POLICY]):
        return "the lifetime-policy is none of AMQP's (AMQP 1.0 §3.5.10–13)"
    if SUPPORTED_DIST_MODES in properties and not _are_modes(properties[SUPPORTED_DIST_MODES]):
        return "the supported-dist-modes are not the symbol move or copy, or an array of them"
    return None


def _is_lifetime(policy: object) -> bool:
    if isinstance(policy, Described):
        try:
            policy = typed(policy)
        except CodecError:
            return False
    return isinstance(
        policy, (DeleteOnClose, DeleteOnNoLinks, DeleteOnNoMessages, DeleteOnNoLinksOrMessages)
    )


def _are_modes(modes: object) -> bool:
    if isinstance(modes, Array):
        return (
            modes.element_type == "symbol"
            and not modes.descriptors
            and all(mode in _DIST_MODES for mode in modes.items)
        )
    return isinstance(modes, Symbol) and modes in _DIST_MODES
