"""The list of cases: what is tried on each broker, by asyncio, by threads and at the shell.

`CASES` is in the order of the page. What a case does is in the module of its face; what is expected
of it on each broker is in `expectations`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.interop.brokers import asyncio_cases as aio
from tests.interop.brokers import blocking_cases as threads
from tests.interop.brokers import command_cases as shell
from tests.interop.brokers.sites import Site

# Seconds for a case, however slow the machine is.
LIMIT: Final = 60.0


@dataclass(frozen=True)
class Case:
    """One thing that is tried: `row` is the line of the page, `face` what it is tried with."""

    row: str
    run: Callable[[Site, str], Any]
    stream: bool = False
    only: str = ""
    """The beginning of the names of the brokers that it is for; empty: all."""

    extra: bool = False
    """Whether `make test` does without it, because another case is much the same."""

    @property
    def face(self) -> str:
        """`asyncio`, `blocking` or `command line`."""
        return {aio.__name__: "asyncio", threads.__name__: "blocking"}.get(
            self.run.__module__, "command line"
        )

    @property
    def name(self) -> str:
        """The name of the case, and of the queue it uses."""
        prefix = {"asyncio": "", "blocking": "blocking-", "command line": "command-"}[self.face]
        return prefix + self.run.__name__.replace("_", "-")

    @property
    def what(self) -> str:
        """Its purpose, in a sentence."""
        return inspect.getdoc(self.run) or ""

    def on(self, site: str) -> bool:
        """Whether it is for the broker."""
        return site.startswith(self.only)


@dataclass(frozen=True)
class Result:
    """Result of a case: `error` is empty where it worked, `note` is what it has counted."""

    error: str
    seconds: float
    note: str = ""


def play(case: Case, site: Site) -> Result:
    """Run a case, and return how it went."""
    site.ensure()
    address = site.stream(case.name) if case.stream else site.queue(case.name)
    start = time.monotonic()
    error = ""
    note = None
    try:
        if inspect.iscoroutinefunction(case.run):
            note = asyncio.run(asyncio.wait_for(case.run(site, address), LIMIT))
        else:
            note = case.run(site, address)
    except Exception as failure:
        error = _text(failure)
    return Result(error, round(time.monotonic() - start, 2), note or "")


def _text(failure: BaseException) -> str:
    """Return the error in one line, without what differs between two runs."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    kind = "" if isinstance(failure, AssertionError) else f"{type(failure).__name__}: "
    return kind + (str(failure).splitlines() or [""])[0][:300]


CASES: Final = (
    Case("connect: ANONYMOUS", aio.anonymous),
    Case("connect: PLAIN, right", aio.plain),
    Case("connect: PLAIN, right", threads.plain),
    Case("connect: PLAIN, right", shell.send_and_receive),
    Case("connect: PLAIN, wrong", aio.plain_wrong),
    Case("connect: PLAIN, wrong", threads.plain_wrong, extra=True),
    Case("connect: PLAIN, wrong", shell.wrong_password, extra=True),
    Case("TLS", aio.tls),
    Case("TLS", shell.tls),
    Case("TLS: wrong authority", aio.tls_wrong_authority),
    Case("TLS to a plain port", aio.tls_to_plain),
    Case("send", aio.send),
    Case("send: settled", aio.send_settled),
    Case("send: many at once", aio.send_many),
    Case("send: many at once", threads.send_many, extra=True),
    Case("properties", aio.properties),
    Case("receive: credit 2", aio.prefetch_2),
    Case("receive: credit 10", aio.prefetch_10),
    Case("receive: credit 10", threads.prefetch),
    Case("receive: credit 100", aio.prefetch_100),
    Case("receive: credit 100", shell.receive_all, extra=True),
    Case("receive: settled", aio.receive_settled),
    Case("close gives prefetched messages back", aio.close_gives_back),
    Case("outcome: accepted", aio.accept),
    Case("outcome: rejected", aio.reject),
    Case("outcome: released", aio.release),
    Case("outcome: released", threads.outcomes),
    Case("outcome: modified", aio.modify),
    Case("1 MiB in frames of 512 B", aio.mebibyte_small_frames),
    Case("10 MiB in frames of 64 KiB", aio.ten_mebibytes),
    Case("10 MiB in frames of 1 MiB", aio.ten_mebibytes_large_frames, extra=True),
    Case("types: primitives as body", aio.primitives_in_body),
    Case("types: primitives in properties", aio.primitives_in_properties),
    Case("types: list as body", aio.list_in_body),
    Case("types: map as body", aio.map_in_body),
    Case("types: arrays in annotations", aio.arrays_in_annotations),
    Case("types: array as body", aio.arrays_in_body),
    Case("dynamic queue", aio.dynamic_queue),
    Case("request and reply", aio.request),
    Case("request and reply", threads.request, extra=True),
    Case("browse", aio.browse),
    Case("browse", threads.browse),
    Case("browse", shell.browse),
    Case("browse: settled", aio.browse_settled),
    Case("browse: a part", aio.browse_part),
    Case("browse: a part", shell.browse_one, extra=True),
    Case("browse: connection lost", aio.browse_lost),
    Case("selector", aio.selector),
    Case("selector", shell.selector, extra=True),
    Case("stream: first", aio.stream_first, stream=True),
    Case("stream: offset", aio.stream_offset, stream=True),
    Case("stream: offset", shell.stream_start, stream=True, extra=True),
    Case("stream: next", aio.stream_next, stream=True),
    Case("stream: RabbitMQ's filter", aio.stream_by_filter, stream=True),
    Case("transaction: commit", aio.commit),
    Case("transaction: commit", threads.transaction, extra=True),
    Case("transaction: rollback", aio.rollback),
    Case("sender without address", aio.anonymous_terminus),
    Case("drain", aio.drain),
    Case("refused sender harms no other", aio.refused_sender),
    Case("refused sender harms no other", threads.refused),
    Case("refused sender harms no other", aio.refused_with_reconnect),
    Case("refused receiver harms no other", aio.refused_receiver),
    Case("no right harms no other", aio.refused_by_rights),
    Case("wrong user-id harms no other", aio.refused_user_id),
    Case("no dynamic queue harms no other", aio.refused_dynamic),
    Case("durable links", aio.durable_links),
    Case("worker", aio.worker),
    Case("worker", threads.worker, extra=True),
    Case("unroutable message", aio.unroutable, only="rabbitmq"),
    Case("name with blank, slash, percent", aio.percent_encoded, only="rabbitmq"),
    Case("virtual host", aio.virtual_host, only="rabbitmq"),
    Case("management", aio.management, only="rabbitmq-4"),
    Case("the node $management", aio.management_node, only="rabbitmq"),
    # Last: what has no durable queue loses everything.
    Case("killed under load, comes back", aio.killed),
)
QUEUES: Final = [case.name for case in CASES if not case.stream]
STREAMS: Final = [case.name for case in CASES if case.stream]
