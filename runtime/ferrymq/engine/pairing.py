"""Link pairing: two links that carry requests and responses (Link Pairing 1.0).

A pair is two links of one name in opposite directions, the source of each being the target of the
other, both attached with the property `paired`. Requests go out on one; a request whose reply-to is
`ME` is answered on the other. A container states in its open, with the capability `LINK_PAIR`, that
it supports pairs (offered) or wants to make them (desired).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ferrymq_types.messaging import Source, Target

if TYPE_CHECKING:
    from ferrymq.engine.link import Link
    from ferrymq_types.transport import Attach

LINK_PAIR: Final = "LINK_PAIR_V1_0"
"""The capability in offered-capabilities and desired-capabilities of the open (§2.1.1)."""

PAIRED: Final = "paired"
"""The property that the attach of each half has, with the value true (§2.2.1)."""

ME: Final = "$me"
"""The reply-to of a request that is to be answered over the pair (§2.1)."""


def is_paired(properties: dict[str, object] | None) -> bool:
    """Return whether the properties of an attach make the link half of a pair (§2.2.1)."""
    return properties is not None and properties.get(PAIRED) is True


def paired_properties(properties: dict[str, object] | None = None) -> dict[str, object]:
    """Return the properties, with the property that makes the link half of a pair added."""
    result: dict[str, object] = {} if properties is None else dict(properties)
    result[PAIRED] = True
    return result


def _source_address(source: object) -> str | None:
    return source.address if isinstance(source, Source) else None


def _target_address(target: object) -> str | None:
    return target.address if isinstance(target, Target) else None


def addresses(link: Link) -> tuple[str | None, str | None]:
    """Return the addresses of source and target, each as stated by the side that owns it.

    If that side has not attached yet, the other side's statement is used (AMQP 1.0 §2.6.3).
    """
    remote = link.remote_attach
    local_source = _source_address(link.source)
    local_target = _target_address(link.target)
    if remote is None:
        return local_source, local_target
    remote_source = _source_address(remote.source)
    remote_target = _target_address(remote.target)
    if link.handle < 0:
        return remote_source, remote_target
    if link.is_sender:
        return local_source, remote_target
    return remote_source, local_target


def are_paired(one: Link, other: Link) -> bool:
    """Return whether two attached links make a pair: all conditions of §2.1."""
    if one.is_sender == other.is_sender or one.name != other.name:
        return False
    if one.session.connection is not other.session.connection:
        return False
    if not (one.paired and other.paired and one.usable and other.usable):
        return False
    source, target = addresses(one)
    return (target, source) == addresses(other)


def disagreement(link: Link, attach: Attach) -> str | None:
    """Return why the answer to our attach does not agree with it about pairing; None if it does.

    A refusal, which has a null terminus, says nothing about pairing.
    """
    if (attach.target if link.is_sender else attach.source) is None:
        return None
    paired = is_paired(attach.properties)
    if paired == link.paired:
        return None
    return (
        f"link {link.name!r} is attached with paired {link.paired} at one end "
        f"and {paired} at the other"
    )


def misfit(attach: Attach, other: Link | None) -> str | None:
    """Return why a half that the peer attaches cannot pair with `other`, the link of the same name
    in the opposite direction; None if it can or there is no such link."""
    if other is None or other.remote_detached or other.local_detached:
        return None
    source, target = addresses(other)
    if _source_address(attach.source) == target and _target_address(attach.target) == source:
        return None
    return (
        f"link {attach.name!r} from {_source_address(attach.source)!r} to "
        f"{_target_address(attach.target)!r} is no counterpart of the link of that name "
        f"from {source!r} to {target!r}"
    )
