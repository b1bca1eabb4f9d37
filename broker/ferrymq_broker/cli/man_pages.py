"""Manual pages of the commands, made of their help: ``python -m ferrymq_broker.cli.man_pages DIR``.

A page for `ferrymq` and one for each of its commands, in the macros of man(7). A group has all its
commands on its page. `SOURCE_DATE_EPOCH` is the date of the pages; else it is today.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from ferrymq import __version__
from ferrymq_broker.cli.app import make_app


def man_pages() -> Iterator[tuple[str, str]]:
    """Yield the names and the texts of all pages."""
    group: Any = typer.main.get_command(make_app())
    context = group.make_context("ferrymq", [], resilient_parsing=True)
    names = group.list_commands(context)
    summaries = [(name, _paragraphs(group.get_command(context, name).help)[0]) for name in names]
    lines = _head("ferrymq", group) + _synopsis(group, context) + _options(group, context)
    lines.append(".SH COMMANDS")
    for name, summary in summaries:
        lines += [".TP", f"\\fB{_plain(name)}\\fR", _text(summary)]
    lines += [".SH EXIT STATUS", _text("0: done; 1: failed; 2: wrong usage; 130: interrupted.")]
    lines += [".SH SEE ALSO", ",\n".join(f".BR ferrymq\\-{_plain(name)} (1)" for name in names)]
    yield "ferrymq", _page(lines)
    for name in names:
        _, command, _ = group.resolve_command(context, [name])
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        lines = _head(f"ferrymq-{name}", command) + _synopsis(command, inner)
        lines += _description(command) + _options(command, inner)
        subcommands = list(_subcommands(command, inner))
        lines += [".SH COMMANDS"] if subcommands else []
        for below, subcommand in subcommands:
            deeper = subcommand.make_context(below, [], parent=inner, resilient_parsing=True)
            lines.append(f".SS {_plain(below)}")
            lines += _usage(subcommand, deeper) + _description(subcommand, ".PP")
            lines += _options(subcommand, deeper, "")
        lines += [".SH SEE ALSO", ".BR ferrymq (1)"]
        yield f"ferrymq-{name}", _page(lines)


def write_man_pages(folder: Path) -> list[Path]:
    """Write all pages into a folder, ``NAME.1``, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in man_pages():
        path = folder / f"{name}.1"
        path.write_text(text, "utf-8")
        written.append(path)
    return written


def _subcommands(command: Any, context: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            yield name, command.get_command(context, name)


def _head(name: str, command: Any) -> list[str]:
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    summary = _paragraphs(command.help)[0].rstrip(".")
    return [
        f'.TH {_plain(name).upper()} 1 "{date}" "ferrymq {__version__}" "ferrymq"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(summary)}",
    ]


def _synopsis(command: Any, context: Any) -> list[str]:
    return [".SH SYNOPSIS", *_usage(command, context)]


def _usage(command: Any, context: Any) -> list[str]:
    pieces = " ".join(command.collect_usage_pieces(context))
    return [f"\\fB{_plain(context.command_path)}\\fR {_plain(pieces)}".rstrip()]


def _description(command: Any, heading: str = ".SH DESCRIPTION") -> list[str]:
    lines: list[str] = [heading]
    for number, paragraph in enumerate(_paragraphs(command.help)):
        lines += [".PP"] if number else []
        lines.append(_text(paragraph))
    return lines


def _options(command: Any, context: Any, heading: str = ".SH OPTIONS") -> list[str]:
    lines = [heading] if heading else []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            term, help = record
            lines += [".TP", f"\\fB{_plain(term)}\\fR", _text(help or term)]
    return lines


def _paragraphs(help: str | None) -> list[str]:
    """Return the paragraphs of a help text; each is one line."""
    cleaned = inspect.cleandoc(help or "").partition("\f")[0]
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", cleaned)]


def _plain(text: str) -> str:
    """Return text so that troff prints what it says."""
    return text.replace("\\", "\\e").replace("-", "\\-")


def _text(text: str) -> str:
    """Return a line of text, which must not begin like a request of troff."""
    plain = _plain(text)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def _page(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for written in write_man_pages(Path(sys.argv[1])):
        print(written)
