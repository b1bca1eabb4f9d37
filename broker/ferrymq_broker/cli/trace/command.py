"""``ferrymq trace``: shows AMQP frames of a file or a connection as text."""

from __future__ import annotations

import asyncio
import io
import itertools
import ssl
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from ferrymq.tracing.rendering import safe
from ferrymq.tracing.trace import Trace
from ferrymq.url import parse_url
from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify, TlsOptions
from ferrymq_broker.cli.trace.dumps import NotReadableError, read
from ferrymq_broker.cli.trace.proxy import Proxy
from ferrymq_broker.config.url import parse_listen_url


def trace(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Bytes of a TCP stream, raw or as a hex dump; - is standard input.",
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Accept connections here, and connect them with a broker (--to)."
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The broker: amqp://HOST[:PORT], or amqps://, ws://, wss://."
        ),
    ] = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    no_verify: NoVerify = False,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N lines."),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show messages too.")] = False,
    as_json: Json = False,
) -> None:
    """Show AMQP as readable text: every frame with its fields by name.

    Reads files, or with --listen and --to runs as a proxy between clients and a broker and shows
    both directions, until Ctrl-C. Errors in the bytes are shown with their place, and the trace
    goes on at the next frame. Credentials and tokens are never shown.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Escape characters that the terminal does not have.
        sys.stdout.reconfigure(errors="backslashreplace")
    if (listen is None) is not (to is None) or (listen is None) is not bool(files):
        raise typer.BadParameter("give either files, or --listen and --to")
    if listen is None or to is None:
        bad = _print_files(files or [], count, full, as_json)
        if bad:
            raise typer.Exit(1)
        return
    parsed = parse_url(to)
    tls = TlsOptions(ca, cert, key, no_verify).arguments(to).get("ssl")
    if parsed.secure and tls is None:
        tls = ssl.create_default_context()
    proxy = Proxy(parse_listen_url(listen), parsed, tls, count, full, as_json)
    try:
        asyncio.run(proxy.run(_write))
    except KeyboardInterrupt:
        if count is not None:
            raise


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _print_files(files: list[str], count: int | None, full: bool, as_json: bool) -> int:
    """Print the frames of files. Return the number of files that could not be read."""
    bad = 0
    lines = itertools.chain.from_iterable(
        _lines(name, name if len(files) > 1 else "", full, as_json) for name in files
    )
    for line in itertools.islice(lines, count):
        if line is None:
            bad += 1
        else:
            sys.stdout.write(line + "\n")
    return bad


def _lines(name: str, label: str, full: bool, as_json: bool) -> Iterator[str | None]:
    """Yield the lines for one file; None after an error, which is printed."""
    told = Trace(label, full, as_json)
    try:
        if name == "-":
            for arrow, data in read(sys.stdin.buffer):
                yield from told.feed(arrow, data)
        else:
            with open(name, "rb") as file:
                for arrow, data in read(file):
                    yield from told.feed(arrow, data)
    except (OSError, NotReadableError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        sys.stderr.write(f"ferrymq: {safe(name)}: {reason}\n")
        yield None
        return
    yield from told.finish()
