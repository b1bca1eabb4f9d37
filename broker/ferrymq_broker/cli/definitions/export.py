"""``ferrymq definitions export``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ferrymq import ManagementClient
from ferrymq_broker.cli.admin.session import ask
from ferrymq_broker.cli.definitions.report import tell_omissions
from ferrymq_broker.cli.options import DEFAULT_URL, Url
from ferrymq_broker.cli.rendering import plain
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.toml_text import toml_document

_HEAD = "# Made by ferrymq definitions export."


def export(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The file to write, .toml or .json; a new one. Without it: standard output.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON, also without a name of a file.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write the definitions of a running broker, as a configuration that serve --config reads.

    It has no messages and no passwords. What is left out is said on standard error."""
    if file is not None and file.exists():
        raise ConfigError(f"{file} exists already")

    async def work(management: ManagementClient) -> dict[str, object]:
        return (await management.request("GET-DEFINITIONS", "broker", "broker")).map()

    found = ask(url, None, work)
    document = found["definitions"]
    assert isinstance(document, dict)
    if as_json or (file is not None and file.suffix == ".json"):
        text = json.dumps(plain(document), ensure_ascii=False, indent=2) + "\n"
    else:
        text = "\n".join([_HEAD, *toml_document(_in_order(document))]) + "\n"
    if file is None:
        sys.stdout.write(text)
    else:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    tell_omissions("left out", found["omitted"])


def _in_order(document: dict[str, object]) -> dict[str, object]:
    """Return the document with virtual hosts last: their tables end those of the default one."""
    return dict(sorted(document.items(), key=lambda item: item[0] == "virtual-host"))
