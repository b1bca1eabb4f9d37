"""Sources and targets of the links that this client attaches (AMQP 1.0 §3.5)."""

from __future__ import annotations

import copy
from datetime import datetime
from typing import Final

from ferrymq.aio.outcomes import OUTCOMES, is_outcome
from ferrymq.arguments import nearest
from ferrymq.durations import whole_seconds
from ferrymq.node_properties import problem_of
from ferrymq.options import ConnectionOptions, MadeUp, ReceiverOptions, SenderOptions, Start
from ferrymq.peers import POSITION, Peer
from ferrymq_codec.composite import Composite
from ferrymq_codec.scalars import Described, Symbol, Timestamp, ULong
from ferrymq_types.filters import SelectorFilter
from ferrymq_types.messaging import Source, Target, TerminusDurability, TerminusExpiryPolicy
from ferrymq_types.transport import Attach, ReceiverSettleMode, SenderSettleMode

ANONYMOUS_RELAY: Final = "ANONYMOUS-RELAY"
"""The capability of routing messages by their own `to` (Anonymous Terminus for Message Routing)."""

SELECTOR: Final = "apache.org:selector-filter:string"
_STARTS: Final = ("first", "last", "next")
_FILTER_NAMES: Final = {
    SELECTOR: f"selector= (the filter {SELECTOR})",
    POSITION: f"start= (the filter {POSITION}), which is for streams",
}
NEW_TERMINUS: Final = "ferrymq:new-terminus"
"""The link property by which a broker of ferrymq says whether an attach has made the terminus."""


def check_names(options: SenderOptions | ReceiverOptions, connection: ConnectionOptions) -> None:
    """Raise ValueError for a durable terminus that could not be found again."""
    if not (options.durable is True or options.exactly_once or options.unsettled is not None):
        return
    if isinstance(options.name, MadeUp) or isinstance(connection.container_id, MadeUp):
        lacking = "name" if isinstance(options.name, MadeUp) else "container_id of the connection"
        raise ValueError(
            f"a durable terminus is found by container-id and link name: give the {lacking}"
        )
    if options.snd_settle_mode is SenderSettleMode.SETTLED and options.exactly_once:
        raise ValueError("what is sent settled arrives at most once: exactly_once cannot be kept")
    durable, policy = terminus_terms(options)
    if options.exactly_once and (
        durable is not TerminusDurability.UNSETTLED_STATE or _is_fleeting(policy, options)
    ):
        raise ValueError(
            "with exactly_once the terminus has to outlive the connection: another durable, "
            "expiry_policy or expiry_timeout is needed"
        )


def _is_fleeting(policy: TerminusExpiryPolicy, options: SenderOptions | ReceiverOptions) -> bool:
    return (
        policy is not TerminusExpiryPolicy.NEVER
        and whole_seconds(options.expiry_timeout, "expiry_timeout") == 0
    )


def terminus_terms(
    options: SenderOptions | ReceiverOptions,
) -> tuple[TerminusDurability, TerminusExpiryPolicy]:
    """Return how durable the terminus at the peer is to be, and when it expires (AMQP 1.0
    §3.5.5–6)."""
    durable = options.durable
    lasting = durable is True or (options.exactly_once and not durable)
    policy = options.expiry_policy
    if policy is None:
        policy = TerminusExpiryPolicy.NEVER if lasting else TerminusExpiryPolicy.SESSION_END
    if lasting:
        return TerminusDurability.UNSETTLED_STATE, policy
    return TerminusDurability(durable), policy


def settle_modes(
    options: SenderOptions | ReceiverOptions,
) -> tuple[SenderSettleMode, ReceiverSettleMode]:
    """Return the settle modes to attach with."""
    if options.exactly_once:
        return SenderSettleMode.UNSETTLED, ReceiverSettleMode.SECOND
    return options.snd_settle_mode, options.rcv_settle_mode


def keeps_state(terminus: object) -> bool:
    """Return whether the peer's terminus still exists when a lost connection is restored (§3.5.6).

    Its `durable` field says whether it also survives a restart of the peer's process (§3.5.5).
    """
    return isinstance(terminus, Source | Target) and (
        terminus.expiry_policy is TerminusExpiryPolicy.NEVER or terminus.timeout > 0
    )


def attach_properties(
    terminus: Source | Target, properties: dict[str, object] | None
) -> dict[str, object] | None:
    """Return the properties to attach with. For a terminus that may outlive its link, they ask the
    peer to say whether it is new."""
    if not keeps_state(terminus):
        return properties
    return {**(properties or {}), NEW_TERMINUS: True}


def once_lack(attach: Attach | None, terminus: object, sends: bool = True) -> str | None:
    """Return why a link cannot carry each message exactly once; None if it can.

    `sends` is whether this side sends: then the peer must leave settling to us.
    """
    if attach is None or not isinstance(terminus, Source | Target):
        return None
    if not keeps_state(terminus):
        return "the peer does not keep what is unsettled when the connection is lost"
    if sends and attach.rcv_settle_mode is not ReceiverSettleMode.SECOND:
        return "the peer does not have the sender settle first"
    if not sends and attach.snd_settle_mode is SenderSettleMode.SETTLED:
        return "the peer sends settled"
    return None


def sender_target(address: str | None, options: SenderOptions) -> Target:
    """Return the target that a sender asks for. Without an address, and not dynamic, it is the
    anonymous node. Raises TypeError for an address that is no text."""
    _check_address(address)
    if options.dynamic and address is not None:
        raise ValueError("a dynamic node gets its address from the peer: give None")
    _check_properties(options.dynamic, options.dynamic_node_properties)
    durable, policy = terminus_terms(options)
    return Target(
        address=address,
        durable=durable,
        expiry_policy=policy,
        timeout=whole_seconds(options.expiry_timeout, "expiry_timeout"),
        dynamic=options.dynamic,
        dynamic_node_properties=options.dynamic_node_properties,
        capabilities=options.capabilities,
    )


def receiver_source(address: str | None, options: ReceiverOptions) -> Source:
    """Return the source that a receiver asks for.

    Raises ValueError for an address together with `dynamic`, and for neither; for filters that are
    not described values; for `dynamic_node_properties` without `dynamic`; for a start that is a
    negative offset or a datetime without a time zone; for another mode. Raises TypeError for an
    address that is no text.
    """
    _check_address(address)
    mode: str | None = options.mode
    if mode not in (None, "move", "copy"):
        hint = ": to browse is 'copy'" if mode == "browse" else ""
        raise ValueError(f"mode {mode!r} is neither 'move' nor 'copy'{hint}")
    if options.dynamic == (address is not None):
        raise ValueError(
            "a receiver needs an address, or dynamic=True to get one from the peer, and not both"
        )
    _check_properties(options.dynamic, options.dynamic_node_properties)
    filters = dict(options.filters or {})
    for name, filter in filters.items():
        if filter is not None and not isinstance(filter, Described | Composite):
            raise ValueError(f"the filter {name!r} is not a described value (AMQP 1.0 §3.5.8)")
    if options.selector is not None:
        filters[SELECTOR] = SelectorFilter(options.selector)
    if options.start is not None:
        filters[POSITION] = Described(Symbol(POSITION), _position(options.start))
    durable, policy = terminus_terms(options)
    return Source(
        address=address,
        durable=durable,
        expiry_policy=policy,
        timeout=whole_seconds(options.expiry_timeout, "expiry_timeout"),
        dynamic=options.dynamic,
        dynamic_node_properties=options.dynamic_node_properties,
        distribution_mode=options.mode,
        filter=filters or None,
        default_outcome=options.default_outcome,
        outcomes=OUTCOMES,
        capabilities=options.capabilities,
    )


def source_for(peer: Peer, source: Source) -> Source:
    """Return the source as this peer understands it: with the start under the name of its own
    filter."""
    filters = source.filter
    if not filters or POSITION not in filters or peer.position in (None, POSITION):
        return source
    adapted = copy.copy(source)
    adapted.filter = {}
    for name, filter in filters.items():
        if name == POSITION and isinstance(filter, Described):
            name = str(peer.position)
            filter = Described(Symbol(name), filter.value)
        adapted.filter[name] = filter
    return adapted


def source_objection(peer: Peer, source: Source) -> str | None:
    """Return why this source must not be asked of this peer, which would grant it and not keep to
    it; None if there is no reason."""
    if source.distribution_mode == "copy" and peer.removes_when_sent:
        return f"{peer} removes messages when it sends them: its queues cannot be browsed"
    for name, filter in (source.filter or {}).items():
        if filter is None:
            continue
        what = _FILTER_NAMES.get(name, f"the filter {name}")
        if name == POSITION and peer.position is None:
            return f"{peer} does not apply {what}"
        if peer.applies is not None and name != peer.position:
            if not name.startswith(peer.applies):
                return f"{peer} grants {what} and does not apply it: {peer.instead}"
    return None


def _check_address(address: object) -> None:
    if address is not None and not isinstance(address, str):
        raise TypeError(f"an address is a str, not {type(address).__name__}")


def _position(start: Start) -> object:
    """Return the value of the filter for a start: a word, an offset or a time."""
    if isinstance(start, str) and start not in _STARTS:
        raise ValueError(
            f"start {start!r} is none of 'first', 'last', 'next', an offset and a datetime"
            f"{nearest(start, _STARTS)}"
        )
    if isinstance(start, datetime):
        return Timestamp.from_datetime(start)
    if isinstance(start, int):
        return ULong(start)
    return start


def _check_properties(dynamic: bool, properties: dict[str, object] | None) -> None:
    if not properties:
        return
    if not dynamic:
        raise ValueError("dynamic_node_properties are for dynamic nodes alone (AMQP 1.0 §3.5.3)")
    problem = problem_of(properties)
    if problem is not None:
        raise ValueError(f"dynamic_node_properties: {problem}")


def _properties_lack(given: Source | Target) -> str | None:
    properties = given.dynamic_node_properties
    problem = problem_of(properties) if properties else None
    return None if problem is None else f"in the node properties of the peer {problem}"


def source_lack(asked: Source, given: Source | None, returned: bool = False) -> str | None:
    """Return what the source in the peer's answer lacks of the request; None if it is sufficient.
    `returned` is whether the client gives back what the peer moves.

    The user would not notice that filters are not applied, or that messages are moved where copies
    were requested (AMQP 1.0 §2.6.3, §3.5.3).
    """
    if given is None:
        return None
    if asked.dynamic and not given.address:
        return "the peer has not told the address of the dynamic source"
    if not asked.dynamic and _is_elsewhere(asked.address, given.address):
        return f"the peer's source is {given.address!r} instead of {asked.address!r}"
    if asked.dynamic and (problem := _properties_lack(given)) is not None:
        return problem
    if (default := given.default_outcome) is not None and not is_outcome(default):
        return f"the default-outcome of the peer's source is {type(default).__name__.lower()}"
    if asked.distribution_mode == "copy" and given.distribution_mode == "move" and not returned:
        return "the peer moves messages instead of copying them"
    applied = given.filter or {}
    # A null filter is no filter (AMQP 1.0 §3.5.8).
    missing = [
        _FILTER_NAMES.get(name, f"the filter {name}")
        for name, filter in (asked.filter or {}).items()
        if filter is not None and applied.get(name) is None
    ]
    if missing:
        return f"the peer does not apply {' and '.join(missing)}"
    return None


def target_lack(asked: Target, given: object) -> str | None:
    """Return what the target in the peer's answer lacks of the request; None if it is
    sufficient."""
    if not isinstance(given, Target):
        return None
    if asked.dynamic:
        if not given.address:
            return "the peer has not told the address of the dynamic target"
        return _properties_lack(given)
    if _is_elsewhere(asked.address, given.address):
        return f"the peer's target is {given.address!r} instead of {asked.address!r}"
    return None


def mode_lack(asked: SenderSettleMode, attach: Attach | None, sends: bool) -> str | None:
    """Return how the peer's sender-settle-mode contradicts the requested one.

    None if it does not. A peer that answers *mixed*, the default, can still do as requested.
    `sends` is whether this side sends, which it may do settled whatever mode the peer states.
    """
    given = SenderSettleMode.MIXED if attach is None else attach.snd_settle_mode
    if asked is SenderSettleMode.UNSETTLED and given is SenderSettleMode.SETTLED:
        return "the sender-settle-mode is settled instead of unsettled"
    if not sends and asked is SenderSettleMode.SETTLED and given is SenderSettleMode.UNSETTLED:
        return "the sender-settle-mode is unsettled instead of settled"
    return None


def _is_elsewhere(asked: str | None, given: str | None) -> bool:
    """Return whether an address in the peer's answer belongs to another node.

    Brokers omit the address or qualify it: with a prefix (``queue://q``, ``/queues/q``), or with
    the queue after it (``address::queue``). An address that contains the name is accepted.
    """
    if not asked or not given:
        return False
    return _name(asked) not in given and _name(given) not in asked


def _name(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2]
