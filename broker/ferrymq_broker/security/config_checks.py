"""Checks of the files that a configuration names, and of open access, without starting a broker."""

from __future__ import annotations

import os
from pathlib import Path

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.apply.rules import make_rule
from ferrymq_broker.config.declarations import Tables
from ferrymq_broker.config.errors import ConfigError, ConfigMistake
from ferrymq_broker.config.model import Config
from ferrymq_broker.security.rules_file import read_rules
from ferrymq_broker.values.names import DEFAULT_SPACE
from ferrymq_broker.values.rights import MANAGE

Found = tuple[list[ConfigMistake], list[str]]


def check_users(config: Config) -> Found:
    """Return errors and warnings about the file of users."""
    path = config.security.users_file
    if path is None:
        return [], []
    # Imported only when needed, because the import takes a while.
    from ferrymq_broker.security.users_file import is_readable_by_others, read_users

    place = ("security", "users-file")
    try:
        users = read_users(path)
    except ConfigError as error:
        return [ConfigMistake(place, str(error))], []
    warnings = []
    if is_readable_by_others(path):
        warnings.append(f"{path}: others can read the hashes of passwords; run chmod 600")
    if not users and not config.security.users:
        warnings.append(f"{path}: the file has no users yet")
    return [], warnings


def check_rules(config: Config) -> Found:
    """Return errors and warnings about the file of rules."""
    security = config.security
    path = security.rules_file
    if path is None:
        return [], []
    hosts = {DEFAULT_SPACE, *(host.name for host in config.virtual_host)}
    try:
        rules = read_rules(path, security.names_somebody)
    except ConfigError as error:
        return [ConfigMistake(("security", "rules-file"), str(error))], []
    strange = sorted({rule.virtual_host for rule in rules} - hosts)
    return [], [
        f"{path}: there are rules for the virtual host {name!r}, which does not exist"
        for name in strange
    ]


def check_store(config: Config) -> Found:
    """Return an error if the broker could not write to the folder of the store."""
    path = config.store.path
    if path is None:
        return [], []
    place = ("store", "path")
    there = path
    while not _exists(there) and there != there.parent:
        there = there.parent
    try:
        if not there.is_dir():
            return [ConfigMistake(place, f"{there} is not a directory")], []
        if not os.access(there, os.W_OK | os.X_OK):
            return [
                ConfigMistake(
                    place, f"{there}: the user that runs this command may not write there"
                )
            ], []
    except OSError as error:
        return [ConfigMistake(place, f"{there}: {error.strerror or error}")], []
    return [], []


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # Unknown. Opening the path gives the reason.
        return True
    return True


def warnings_of_strangers(config: Config) -> list[str]:
    """Return a warning for each virtual host that anonymous clients from other machines may
    manage."""
    security = config.security
    outside = [each.url for each in config.listener if not each.address.is_loopback]
    if not outside or not security.anonymous:
        return []
    hosts: list[tuple[str, Tables]] = [("", config)]
    hosts += [(host.name, host) for host in config.virtual_host]
    guarded = security.takes_tokens or any(tables.rule for _, tables in hosts)
    if not guarded:
        return [
            f"{outside[0]}: anonymous clients from other machines may do everything, "
            "management included, because there are no rules; configure users and rules"
        ]
    stranger = UserIdentity(None)
    return [
        f"{outside[0]}: anonymous clients from other machines may manage"
        f" {', '.join(each.where)}" + (f" in the virtual host {name}" if name else "")
        for name, tables in hosts
        for each in tables.rule
        if (rule := make_rule(each)).may & MANAGE and rule.is_about(stranger)
    ]
