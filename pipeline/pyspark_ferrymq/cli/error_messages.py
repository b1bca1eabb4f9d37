"""Error messages of commands: one line and a status instead of a traceback.

Spark wraps an error of a task or a reader in its own text and in a traceback of each process. The
line is the original error message.
"""

from __future__ import annotations

import functools
import re
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, ParamSpec, TypeVar

import typer

P = ParamSpec("P")
R = TypeVar("R")

# An error message of the data source within a traceback as text.
_OURS: Final = re.compile(r"(?:^|\s)(?:pyspark_ferrymq\.[\w.]+\.)?Amqp\w+(?:Error): ([^\n]+)")
_CLIENTS: Final = re.compile(r"(?:^|\s)ferrymq(?:_codec)?\.errors\.\w+: ([^\n]+)")
_CLASS: Final = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$", re.S)
_LONGEST: Final = 600
# The packages that the extra "spark" installs.
_EXTRA: Final = frozenset({"pandas", "plotly", "py4j", "pyarrow", "pyspark", "rich"})


def told(command: Callable[P, R]) -> Callable[P, R]:
    """Decorate a command: print its failure as one line on standard error and exit with status 1.

    SIGTERM ends the command as Ctrl-C does.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        # Outside the main thread, the caller handles signals.
        ours = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, _interrupt) if ours else None
        try:
            return command(*args, **kwargs)
        except (typer.Exit, KeyboardInterrupt, BrokenPipeError):
            raise
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in _EXTRA:
                raise
            sys.stderr.write(
                f"ferrymq: there is no package {error.name!r}: pipelines need the packages of"
                " pip install 'ferrymq[spark]'\n"
            )
            raise typer.Exit(1) from None
        except Exception as error:
            if not _is_expected(error):
                raise
            sys.stderr.write(f"ferrymq: {reason_of(error)}\n")
            raise typer.Exit(1) from None
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    return run


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _is_expected(error: BaseException) -> bool:
    """Return whether the error is meant for the user; any other error is a bug in ferrymq."""
    from ferrymq import AmqpError
    from pyspark_ferrymq.errors import AmqpSourceError

    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(one) for one in error.exceptions)
    if isinstance(error, AmqpError | AmqpSourceError | OSError | TimeoutError):
        return True
    kind = type(error)
    module = kind.__module__
    return module.startswith(("pyspark.errors", "py4j."))


def reason_of(error: BaseException) -> str:
    """Return the line for an error that ends a command."""
    if isinstance(error, BaseExceptionGroup):
        return reason_of(error.exceptions[0])
    text = str(error)
    found = _OURS.findall(text) or _CLIENTS.findall(text)
    if found:
        # The last message is the original one: a traceback shows causes first.
        return str(found[-1]).strip()[:_LONGEST]
    if type(error).__module__.startswith(("pyspark.", "py4j.")):
        text = _STATE.sub("", _CLASS.sub("", text.strip()))
    lines = text.strip().splitlines()
    return lines[0][:_LONGEST] if lines else type(error).__name__
