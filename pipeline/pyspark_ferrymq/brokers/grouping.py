"""The grouping of URLs by the identity of the broker that they lead to.

URLs that lead to one identity are fail-overs of this broker. Each further identity is a broker of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark_ferrymq.errors import AmqpOptionError
from pyspark_ferrymq.options import BrokerOptions
from pyspark_ferrymq.options.broker_identity import BrokerIdentity


@dataclass(frozen=True, slots=True)
class Unreached:
    """A URL without an answer, and the reason."""

    reason: str


Answer: TypeAlias = BrokerIdentity | Unreached


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker with the options to connect to it. `id` is "" if the broker tells none."""

    id: str
    connection: BrokerOptions
    is_cluster: bool = False


def group(
    settings: BrokerOptions, answers: Sequence[Answer]
) -> tuple[list[KnownBroker], list[BrokerOptions]]:
    """Return the brokers, sorted by id, and the URLs that are not known to lead to one of them.

    `answers` has one answer for each of the URLs of `settings`. If there is one broker and URLs
    without an answer can only be its fail-overs, they are tried too.

    Raises `AmqpOptionError` if there are several brokers and one of them tells no identity, or more
    brokers than the option 'brokers' allows.
    """
    each = settings.each()
    found: dict[str, list[BrokerOptions]] = {}
    clusters: set[str] = set()
    silent: list[BrokerOptions] = []
    for one, answer in zip(each, answers, strict=True):
        if isinstance(answer, Unreached):
            silent.append(one)
            continue
        found.setdefault(answer.id, []).append(one)
        if answer.is_cluster:
            clusters.add(answer.id)
    if "" in found and len(found) > 1:
        raise AmqpOptionError(
            f"option 'url': the broker at {found[''][0].place} tells no id, which is needed with"
            " several brokers; is it an older release, or not ferrymq? Read or write it in a query"
            " of its own"
        )
    if settings.brokers is not None and len(found) > settings.brokers:
        places = "; ".join(_joined(settings, urls).place for urls in found.values())
        raise AmqpOptionError(
            f"option 'brokers': it says {settings.brokers}, and the URLs lead to {len(found)}:"
            f" {places}"
        )
    several = len(found) > 1
    brokers = [
        KnownBroker(
            id, replace(_joined(settings, urls), broker=id if several else ""), id in clusters
        )
        for id, urls in sorted(found.items())
    ]
    if not several and may_be_failovers(settings, brokers):
        brokers = [replace(one, connection=settings) for one in brokers]
    return brokers, silent


def may_be_failovers(settings: BrokerOptions, brokers: Sequence[KnownBroker]) -> bool:
    """Return whether URLs without an answer can only be fail-overs of these brokers: there are as
    many brokers as the option 'brokers' says or, without this option, all are clusters."""
    if settings.brokers is not None:
        return len(brokers) == settings.brokers
    return bool(brokers) and all(broker.is_cluster for broker in brokers)


def must_be_reached(place: str, reason: str) -> str:
    """Return the message for a URL that has to be reached before the query can go on."""
    return (
        f"{place} cannot be reached (option 'url'), and it may be a broker of its own, with records"
        f" or rows of this query: {reason}. Start the broker; or take its URL out; or, if it is a"
        " fail-over of another URL, say how many brokers there are with the option 'brokers'"
    )


def _joined(settings: BrokerOptions, urls: Sequence[BrokerOptions]) -> BrokerOptions:
    return replace(
        settings,
        url=",".join(one.url for one in urls),
        place=", ".join(one.place for one in urls),
    )
