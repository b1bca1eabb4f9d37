"""``ferrymq receive``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final, cast

import typer

import ferrymq
from ferrymq.options import ConnectionArguments, ReceiverArguments, Start
from ferrymq_broker.cli.connect_options import ConnectOptions
from ferrymq_broker.cli.credentials import Credentials, PasswordFile, TokenFile, User
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.cli.pipe import Pipe
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.rendering import as_json as render_json
from ferrymq_broker.cli.rendering import as_text as render_text
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify, TlsOptions

# The credit for messages that are not yet printed.
_PREFETCH: Final = 100


def receive(
    address: Annotated[
        str, typer.Argument(help="A queue, a topic or a stream.", show_default=False)
    ],
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N messages."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Stop when no message has come for this time."),
    ] = None,
    browse: Annotated[
        bool, typer.Option("--browse", help="Print messages and leave them in the queue.")
    ] = False,
    selector: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only messages that match: \"colour = 'red'\"."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where to begin in a stream: first, last, next, an offset or an ISO 8601 time.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    user: User = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """Receive messages, print them and accept them.

    Prints the body of each message, or with --json the whole message as one line. Stops after
    --count messages, after --timeout without a message, or at Ctrl-C. Exits with status 1 if fewer
    than --count messages have come.
    """
    credentials = Credentials(user, password_file, token_file)
    connecting = ConnectOptions(credentials, TlsOptions(ca, cert, key, no_verify))
    url, arguments = connecting.arguments(url)
    options: ReceiverArguments = {"credit": "manual", "selector": selector}
    if browse:
        options["mode"] = "copy"
    if start is not None:
        options["start"] = _place(start)
    # On a terminal the messages themselves show the progress.
    quiet = sys.stdout.isatty()
    with RunProgress(f"receiving from {address}", count, quiet) as progress:
        try:
            asyncio.run(
                _receive(url, arguments, address, count, timeout, options, as_json, progress)
            )
        except KeyboardInterrupt:
            if count is not None:
                raise
        if count is not None and progress.count < count:
            sys.stderr.write(
                f"ferrymq: {progress.count} of {count} messages came within {timeout:g} s\n"
            )
            raise typer.Exit(1)


def _place(start: str) -> Start:
    if start in ("first", "last", "next"):
        return cast(Start, start)
    if start.isdecimal():
        return int(start)
    try:
        return datetime.fromisoformat(start).astimezone()
    except ValueError:
        raise typer.BadParameter(
            f"{start!r} must be first, last, next, an offset or an ISO 8601 time",
            param_hint="--start",
        ) from None


async def _receive(
    url: str,
    arguments: ConnectionArguments,
    address: str,
    count: int | None,
    timeout: float | None,
    options: ReceiverArguments,
    as_json: bool,
    progress: RunProgress,
) -> None:
    render = render_json if as_json else render_text
    async with (
        ferrymq.connect(url, **arguments) as connection,
        connection.receiver(address, **options) as receiver,
    ):
        asked = 0
        pipe = Pipe.of(sys.stdout)
        while count is None or progress.count < count:
            # Never ask for more messages than will be accepted: other consumers may need them.
            wanted = progress.count + _PREFETCH
            if count is not None and wanted > count:
                wanted = count
            if asked < wanted and receiver.credit * 2 <= _PREFETCH:
                receiver.add_credit(wanted - asked)
                asked = wanted
            try:
                deliveries = await receiver.receive_many(_PREFETCH, timeout=timeout)
            except TimeoutError:
                return
            try:
                await _print(deliveries, render, pipe, progress)
            except OSError:
                # The output has failed, not the messages: no failure of them is counted.
                for delivery in deliveries:
                    if not delivery.settled:
                        await delivery.release()
                raise


async def _print(
    deliveries: list[ferrymq.Delivery],
    render: Callable[[ferrymq.Message], str],
    pipe: Pipe | None,
    progress: RunProgress,
) -> None:
    """Print messages first, then accept them, so that a message that was not printed goes back to
    the queue."""
    # Write to a pipe one by one, because its reader may end at any message.
    step = len(deliveries) if pipe is None else 1
    for at in range(0, len(deliveries), step):
        chosen = deliveries[at : at + step]
        for delivery in chosen:
            sys.stdout.write(render(delivery.message) + "\n")
        sys.stdout.flush()
        try:
            if pipe is not None:
                await pipe.drain()
        finally:
            # Accept even after Ctrl-C, if the reader has read it.
            if pipe is None or pipe.is_empty():
                for delivery in chosen:
                    await delivery.accept()
                progress.advance(len(chosen))
