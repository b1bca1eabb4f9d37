"""Streams to trace, and what is told of them."""

from __future__ import annotations

from ferrymq.tracing.trace import Trace
from tests.support.script import encoded


def stream(*items: object) -> bytes:
    """The bytes of headers, performatives, and `on`."""
    return b"".join([encoded(item) for item in items])


def told(*data: bytes, full: bool = False, as_json: bool = False) -> list[str]:
    """The lines for the bytes of one direction."""
    trace = Trace(full=full, as_json=as_json)
    lines = []
    for piece in data:
        lines += trace.feed("->", piece)
    return [*lines, *trace.finish()]
