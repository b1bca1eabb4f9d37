"""``ferrymq send``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Final

import typer

import ferrymq
from ferrymq import DeliveryError, Message
from ferrymq.options import ConnectionArguments
from ferrymq_broker.cli.connect_options import ConnectOptions
from ferrymq_broker.cli.credentials import Credentials, PasswordFile, TokenFile, User
from ferrymq_broker.cli.options import DEFAULT_URL, Json, Url
from ferrymq_broker.cli.progress import RunProgress
from ferrymq_broker.cli.tls_options import Ca, Cert, Key, NoVerify, TlsOptions
from ferrymq_codec.scalars import UInt

# The most messages without an outcome.
_PIPELINE: Final = 1000


def send(
    address: Annotated[
        str,
        typer.Argument(help="A queue, a topic, a stream or an exchange.", show_default=False),
    ],
    body: Annotated[
        list[str] | None,
        typer.Argument(
            help="One message each. Without BODY, one message for each line of standard input.",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    subject: Annotated[str | None, typer.Option(help="The subject of every message.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            "-p",
            metavar="KEY=VALUE",
            help="An application property: a string, or with KEY:=JSON a number, true, null …",
        ),
    ] = None,
    annotations: Annotated[
        list[str] | None,
        typer.Option(
            "--annotation",
            "-a",
            metavar="KEY=VALUE",
            help="A message annotation, in the same form.",
        ),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(min=0, max=9, metavar="0-9", help="The priority, 0 to 9; the default is 4."),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Messages expire after this time."),
    ] = None,
    delay: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Messages become available only after this time."
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="ID", help="The group all messages belong to.")
    ] = None,
    durable: Annotated[
        bool,
        typer.Option(
            "--durable/--no-durable",
            help="Mark messages as durable: a durable queue keeps them when the broker stops.",
        ),
    ] = True,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Stop when no message was accepted for this time. Without it, wait.",
            show_default=False,
        ),
    ] = None,
    as_bytes: Annotated[
        bool, typer.Option("--bytes", help="Send bodies as bytes, not as strings.")
    ] = False,
    user: User = None,
    password_file: PasswordFile = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """Send messages and wait until all are accepted.

    Exits with status 1 if a message was not accepted, or not in time.
    """
    credentials = Credentials(user, password_file, token_file)
    connecting = ConnectOptions(credentials, TlsOptions(ca, cert, key, no_verify))
    url, arguments = connecting.arguments(url)
    application_properties = _pairs(properties, "--property")
    message_annotations: dict[str | int, object] = {}
    message_annotations.update(_pairs(annotations, "--annotation"))
    if delay is not None:
        message_annotations["x-opt-delivery-delay"] = UInt(_milliseconds(delay, "--delay"))

    def message(text: bytes) -> Message:
        made = Message(
            body=text if as_bytes else text.decode("utf-8", "replace"),
            subject=subject,
            durable=durable,
            group_id=group,
            application_properties=application_properties,
            message_annotations=message_annotations,
        )
        if priority is not None:
            made.priority = priority
        if ttl is not None:
            _milliseconds(ttl, "--ttl")
            made.ttl = ttl
        return made

    bodies = None if not body else [text.encode("utf-8", "surrogateescape") for text in body]
    with RunProgress(f"sending to {address}", None if bodies is None else len(bodies)) as progress:
        failures = asyncio.run(
            _send(url, arguments, address, _bodies(bodies), message, progress, timeout)
        )
        _report(address, progress, failures, as_json)
    if failures:
        raise typer.Exit(1)


def _pairs(given: list[str] | None, option: str) -> dict[str, object]:
    pairs: dict[str, object] = {}
    for pair in given or []:
        key, found, text = pair.partition("=")
        if not found:
            raise typer.BadParameter(f"{pair!r} must have the form KEY=VALUE", param_hint=option)
        if key.endswith(":"):
            pairs[key[:-1]] = _json(text, pair, option)
        else:
            pairs[key] = text
    return pairs


def _json(text: str, pair: str, option: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{pair!r}: the value is not JSON: {error}", param_hint=option
        ) from None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise typer.BadParameter(f"{pair!r}: the number must fit into 64 bits", param_hint=option)
    return value


def _milliseconds(seconds: float, option: str) -> int:
    milliseconds = round(seconds * 1000)
    if milliseconds > 0xFFFFFFFF:
        raise typer.BadParameter(
            "the time must be at most 4294967 seconds, 49 days", param_hint=option
        )
    return milliseconds


async def _bodies(given: list[bytes] | None) -> AsyncIterator[bytes]:
    if given is not None:
        for body in given:
            yield body
        return
    while True:
        # In a thread, so that the connection stays alive while a person types.
        line = await asyncio.to_thread(sys.stdin.buffer.readline)
        if not line:
            return
        yield line.rstrip(b"\r\n")


async def _send(
    url: str,
    arguments: ConnectionArguments,
    address: str,
    bodies: AsyncIterator[bytes],
    message: Callable[[bytes], Message],
    progress: RunProgress,
    timeout: float | None,
) -> list[str]:
    """Send all messages. Return the errors of messages that were not accepted.

    Stop if the receiver neither gives credit nor accepts a message for `timeout` seconds; None: no
    limit.
    """
    failures: list[str] = []
    pending: deque[asyncio.Future[None]] = deque()

    async def settle_first() -> None:
        outcome = pending[0]
        async with asyncio.timeout(timeout):
            # After a time-out the message is still among those without an outcome.
            await asyncio.wait([outcome])
        pending.popleft()
        try:
            outcome.result()
        except DeliveryError as error:
            failures.append(str(error))
        else:
            progress.advance()

    async with ferrymq.connect(url, **arguments) as connection:
        sender = await connection.sender(address)
        try:
            async for body in bodies:
                async with asyncio.timeout(timeout):
                    await sender.ready()
                pending.append(sender.send_nowait(message(body)))
                while pending and (pending[0].done() or len(pending) > _PIPELINE):
                    await settle_first()
            while pending:
                await settle_first()
        except TimeoutError:
            while pending and pending[0].done():
                await settle_first()
            failures += _late(address, len(pending), timeout)
    return failures


def _late(address: str, pending: int, timeout: float | None) -> list[str]:
    """Return the errors after a time-out: one for each message without an outcome, or one because
    there was no credit."""
    if not pending:
        return [f"{address!r} gave no credit for {timeout:g} s"]
    return [f"no outcome for {timeout:g} s: the broker may have the message or not"] * pending


def _report(address: str, progress: RunProgress, failures: list[str], as_json: bool) -> None:
    if as_json:
        report = {
            "address": address,
            "accepted": progress.count,
            "failed": len(failures),
            "seconds": round(progress.seconds, 6),
        }
        sys.stdout.write(json.dumps(report) + "\n")
    else:
        plural = "" if progress.count == 1 else "s"
        sys.stdout.write(f"{progress.count} message{plural} sent to {address}\n")
    for reason in failures[:10]:
        sys.stderr.write(f"ferrymq: {reason}\n")
    if len(failures) > 10:
        sys.stderr.write(f"ferrymq: and {len(failures) - 10} more were not accepted\n")
