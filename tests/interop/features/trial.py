"""The loop over questions, for programs in Python that try features with a client.

Such a program reads lines of JSON: `{"case": NAME, ...}`. For each it writes `{"error": TEXT}`,
empty if the feature works, or `{"absent": true}` if the client has no such feature. In between it
may write a line that asks something of who reads it, such as `{"advance": SECONDS}`; the answer is
a line. This module imports nothing of this project, so that it runs in other environments.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

# Seconds for a case, however slow the machine is.
LIMIT = 60.0


def say(line: dict[str, Any]) -> None:
    """Write a line of JSON."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def ask(request: dict[str, Any]) -> None:
    """Ask something of who reads the lines, and wait until it is done."""
    say(request)
    sys.stdin.readline()


def expect(actual: object, wanted: object) -> None:
    """Raise AssertionError if the two are not equal."""
    assert actual == wanted, f"{actual!r} instead of {wanted!r}"


async def fails(awaitable: Awaitable[Any], *kinds: type[BaseException]) -> BaseException:
    """Expect an error of one of the kinds, and return it."""
    try:
        result = await awaitable
    except kinds as error:
        return error
    raise AssertionError(f"it was not refused: {result!r}")


def _text(failure: BaseException) -> str:
    """Return the error in one line."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    kind = "" if isinstance(failure, AssertionError) else f"{type(failure).__name__}: "
    return kind + (str(failure).splitlines() or [""])[0][:300]


async def _play(
    cases: Any, trial: Callable[[dict[str, Any]], Any], asked: dict[str, Any]
) -> dict[str, Any]:
    """Run a case and return what came of it."""
    case = getattr(cases, asked["case"].replace("-", "_"), None)
    if case is None:
        return {"absent": True}
    try:
        async with asyncio.timeout(LIMIT):
            if inspect.iscoroutinefunction(case):
                await case(trial(asked))
            else:
                await asyncio.to_thread(case, trial(asked))
    except Exception as failure:
        return {"error": _text(failure)}
    return {"error": ""}


async def serve(cases: Any, trial: Callable[[dict[str, Any]], Any]) -> None:
    """Run the cases of a module, functions or coroutines, until the input ends.

    `trial` makes of a question what a case is called with.
    """
    while line := await asyncio.to_thread(sys.stdin.readline):
        say(await _play(cases, trial, json.loads(line)))
