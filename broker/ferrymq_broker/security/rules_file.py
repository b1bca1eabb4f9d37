"""The file of the rules that are made while the broker runs: TOML, replaced as a whole.

::

    [[rule]]
    name = "shop sends"
    who = ["user:shop"]
    may = ["send"]
    where = ["orders"]
    virtual-host = "tenant"       # left out for the default virtual host
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from pydantic import ValidationError

from ferrymq_broker.config.access import KeptRule, KeptRules, check_named
from ferrymq_broker.config.load import BadFile, Problem, problems_of, read_toml
from ferrymq_broker.config.toml_text import toml_table
from ferrymq_broker.security.file_replacement import locked, replace_file
from ferrymq_broker.values.names import DEFAULT_SPACE

_HEAD = "# Access rules, written by the broker. They come after those of the configuration."


def read_rules(path: Path, names_somebody: bool) -> list[KeptRule]:
    """Return the rules in a file, in their order; none if there is no file. `names_somebody` is
    whether the broker has users. Raises `BadFile`."""
    if not path.exists():
        return []
    mode = path.stat().st_mode
    if os.name == "posix" and mode & (stat.S_IWOTH | stat.S_IWGRP):
        who = "everybody" if mode & stat.S_IWOTH else "its group"
        raise BadFile(path, [Problem(0, f"{who} may write to it; run chmod 600")])
    said, places = read_toml(path)
    try:
        rules = KeptRules.model_validate(said).rule
    except ValidationError as error:
        raise BadFile(path, problems_of(places, error)) from None
    mistakes = check_named(names_somebody, rules, ())
    if mistakes:
        raise BadFile.of(path, places, mistakes)
    return rules


def edit_rules(
    path: Path, names_somebody: bool, edit: Callable[[list[KeptRule]], list[KeptRule]]
) -> list[KeptRule]:
    """Replace the rules in a file by what `edit` returns for them, and return that. If `edit`
    raises an error, the file stays as it is. A file that does not exist is made.

    Raises `BadFile`, and `OSError` if the file cannot be written.
    """
    path = path.resolve()
    with locked(path.parent):
        rules = edit(read_rules(path, names_somebody))
        replace_file(path, _text(rules).encode())
    return rules


def _text(rules: Iterable[KeptRule]) -> str:
    lines = [_HEAD]
    for rule in rules:
        settings: dict[str, object] = {"name": rule.name, "who": rule.who}
        if rule.may:
            settings["may"] = rule.may
        if rule.may_not:
            settings["may-not"] = rule.may_not
        settings["where"] = rule.where
        if rule.virtual_host != DEFAULT_SPACE:
            settings["virtual-host"] = rule.virtual_host
        if rule.label:
            settings["label"] = rule.label
        lines += toml_table("[[rule]]", settings)
    return "\n".join(lines) + "\n"
