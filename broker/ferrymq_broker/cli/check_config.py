"""``ferrymq check-config``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.start_check import foresee
from ferrymq_broker.config.access import AccessRule, KeptRule
from ferrymq_broker.config.apply.explain import (
    Explanation,
    explain,
    friendly_settings,
    tables_of,
)
from ferrymq_broker.config.apply.explain_access import (
    AccessExplanation,
    explain_access,
    read_identity,
)
from ferrymq_broker.config.apply.subscriptions import rule_mistakes
from ferrymq_broker.config.declarations import Exchange
from ferrymq_broker.config.load import BadFile, load_with_places
from ferrymq_broker.config.model import DEFAULT_HOST, Config, Log
from ferrymq_broker.config.nodes import kind_of, policy_attributes
from ferrymq_broker.config.policy_resolution import resolve_policy
from ferrymq_broker.config.source_locations import SourceLocations
from ferrymq_broker.config.units import format_size
from ferrymq_broker.security.rules_file import read_rules
from ferrymq_broker.security.tls_reload import check_files
from ferrymq_broker.server.logs import configure_logging

_FOUND = {
    "declared": "declared on line {line}",
    "pattern": "made by the pattern {pattern!r} of line {line}",
    "auto-create": "made when a link names it, as [nodes] auto-create says{at}",
}


def check_config(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A TOML file.")],
    address: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="ADDRESS",
            help="Show the node that a link to ADDRESS would get, and the line that declares it.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option("--virtual-host", metavar="NAME", help="The virtual host of ADDRESS."),
    ] = DEFAULT_HOST,
    who: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="WHO",
            help="With --explain: show the rights of WHO at ADDRESS, and their rules. WHO is as in"
            " a rule, several with commas: user:alice,group:shipping.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Also check that a broker with the store in DIR would start, that is, that "
            "the settings of the stored nodes can be changed to those of the file.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a configuration without starting a broker.

    Prints what the file declares, or all its mistakes. Exits with status 1 if there are any, or if
    --explain finds no node.
    """
    if who is not None and address is None:
        raise typer.BadParameter("needs --explain ADDRESS", param_hint="--as")
    try:
        config, places = load_with_places(file, data)
        mistakes, warnings = check_files(config)
        mistakes += rule_mistakes(config)
        if data is not None and not mistakes:
            # The check may log changes of stored nodes, as a start would.
            configure_logging(Log())
            mistakes = foresee(config, data)
        if mistakes:
            raise BadFile.of(file, places, mistakes)
    except BadFile as error:
        if not as_json:
            raise
        problems = [{"line": line or None, "reason": reason} for line, reason in error.problems]
        _print_json({"file": str(file), "valid": False, "problems": problems})
        raise typer.Exit(1) from None
    for warning in warnings:
        sys.stderr.write(f"ferrymq: {warning}\n")
    if address is not None:
        found = explain(config, address, host)
        access: AccessExplanation | None = None
        if who is not None:
            security = config.security
            kept: list[KeptRule] = []
            if security.rules_file is not None:
                kept = read_rules(security.rules_file, security.names_somebody)
            access = explain_access(config, address, read_identity(who, config), host, kept)
        if as_json:
            _print_json(_explained(found, access, places))
        else:
            _print_explanation(found, places)
            if access is not None:
                sys.stdout.write("\n".join(access_lines(who or "", access, places)) + "\n")
        if found.found == "nothing":
            raise typer.Exit(1)
    elif as_json:
        _print_json({"file": str(file), "valid": True} | summary(config, places))
    else:
        _print_summary(file, config, places)


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


# -- the whole file ---------------------------------------------------------------------------


def summary(config: Config, places: SourceLocations) -> dict[str, object]:
    """Return the content of a configuration without its secrets, in milliseconds and bytes."""
    return {
        "container-id": config.container_id,
        "listeners": [listener.address.url for listener in config.listener],
        "http": config.http.url,
        "users": sorted(config.security.users),
        "limits": config.limits.model_dump(by_alias=True),
        "alarms": {
            "memory": config.alarms.memory_bytes(),
            "low-water": config.alarms.low_water_bytes(),
        },
        "store": None if config.store.path is None else _store(config),
        "replication": _replication(config) if config.replication.is_on else None,
        "virtual-hosts": [
            _host(config, places, host) for host in (DEFAULT_HOST, *_host_names(config))
        ],
    }


def _store(config: Config) -> dict[str, object]:
    store = config.store
    return {
        "path": str(store.path),
        "max-bytes": store.max_bytes,
        "segment-bytes": store.segment_bytes,
        "page-out": config.page_out_bytes(),
    }


def _replication(config: Config) -> dict[str, object]:
    # The URL of the database may have a password.
    return config.replication.model_dump(mode="json", by_alias=True, exclude={"url"})


def _host_names(config: Config) -> list[str]:
    return [host.name for host in config.virtual_host]


def _host(config: Config, places: SourceLocations, name: str) -> dict[str, object]:
    tables, place = tables_of(config, name)
    nodes: list[dict[str, object]] = []
    for kind, at, entry in tables.declared():
        policy = resolve_policy(kind, entry, config.policies)
        node: dict[str, object] = {
            "kind": kind,
            "name" if entry.name is not None else "pattern": entry.address,
            "line": places.line((*place, kind, at)),
            "settings": policy_attributes(policy),
        }
        if isinstance(entry, Exchange):
            node["bindings"] = [each.model_dump(by_alias=True) for each in entry.binding]
        nodes.append(node)
    return {
        "name": name,
        "auto-create": tables.nodes.auto_create,
        "limit": tables.nodes.limit,
        "nodes": nodes,
        "aliases": {alias.name: alias.to for alias in tables.alias},
        "redirects": {each.name: f"{each.host}:{each.port}" for each in tables.redirect},
        "rules": [
            {"line": places.line((*place, "rule", at)), **_stated(rule)}
            for at, rule in enumerate(tables.rule)
        ],
    }


def _stated(rule: AccessRule) -> dict[str, object]:
    """Return the settings of a rule, without an empty name and label."""
    optional = {key for key in ("name", "label") if not getattr(rule, key)}
    return rule.model_dump(by_alias=True, exclude=optional)


def _print_summary(file: Path, config: Config, places: SourceLocations) -> None:
    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    line = ", ".join(listener.address.url for listener in config.listener)
    console.print(f"{escape(str(file))}: good")
    console.print(f"listens on {escape(line)}")
    if config.http.url is not None:
        console.print(f"monitoring on {escape(config.http.url)}")
    memory = config.alarms.memory_bytes()
    if memory:
        low = config.alarms.low_water_bytes()
        console.print(
            f"memory alarm above {_about(memory)} of messages, until there are {_about(low)}"
        )
    if config.store.path is not None:
        console.print(_about_store(config, config.store.path))
    if config.replication.is_on:
        member = config.replication
        console.print(f"member {escape(member.name)} of the cluster {escape(member.cluster)}")
    for name in (DEFAULT_HOST, *_host_names(config)):
        _print_host(console, config, places, name)


def _about_store(config: Config, path: Path) -> str:
    text = f"stored in {escape(str(path))}"
    if config.store.max_bytes:
        text += f", at most {_about(config.store.max_bytes)}"
    if config.page_out_bytes():
        text += f"; paged out above {_about(config.page_out_bytes())} of messages"
    return text


def _print_host(console: Console, config: Config, places: SourceLocations, name: str) -> None:
    tables, place = tables_of(config, name)
    made = tables.nodes.auto_create
    text = {True: "queues, and topics for links that ask for one", False: "nothing"}
    table = Table(title=f"virtual host {escape(name)}", title_justify="left")
    for column in ("kind", "name or pattern", "line", "settings"):
        table.add_column(column, overflow="fold", justify="right" if column == "line" else "left")
    for kind, at, entry in tables.declared():
        settings = friendly_settings(resolve_policy(kind, entry, config.policies))
        number = str(places.line((*place, kind, at)))
        said = [f"{key} = {value}" for key, value in settings.items()]
        if isinstance(entry, Exchange):
            said += [f"{each.arguments or each.key!r} goes to {each.to}" for each in entry.binding]
        table.add_row(kind, escape(entry.address), number, escape("\n".join(said)))
    for at, alias in enumerate(tables.alias):
        number = str(places.line((*place, "alias", at)))
        table.add_row("alias", escape(alias.name), number, escape(f"to {alias.to}"))
    for at, redirect in enumerate(tables.redirect):
        number = str(places.line((*place, "redirect", at)))
        there = f"to {redirect.host}:{redirect.port}"
        table.add_row("redirect", escape(redirect.name), number, escape(there))
    for at, rule in enumerate(tables.rule):
        number = str(places.line((*place, "rule", at)))
        said = [f"may {', '.join(rule.may)}"] if rule.may else []
        said += [f"may not {', '.join(rule.may_not)}"] if rule.may_not else []
        table.add_row(
            "rule",
            escape("\n".join(rule.where)),
            number,
            escape("\n".join([", ".join(rule.who), *said])),
        )
    console.print()
    if table.row_count:
        console.print(table)
    else:
        console.print(f"virtual host {escape(name)}")
    console.print(
        f"other names become {text[made] if isinstance(made, bool) else made + 's'}; "
        f"at most {tables.nodes.limit} nodes"
    )


def _about(size: int) -> str:
    """Return a size, rounded to be readable."""
    unit = 1
    while size >= unit * 1024 * 100:
        unit *= 1024
    return format_size(size // unit * unit)


# -- one address ------------------------------------------------------------------------------


def _explained(
    found: Explanation, access: AccessExplanation | None, places: SourceLocations
) -> dict[str, object]:
    policy = found.policy
    explained: dict[str, object] = {
        "address": found.address,
        "found": found.found,
        "kind": None if policy is None else kind_of(policy),
        "node": found.node,
        "part": found.part or None,
        "pattern": found.pattern or None,
        "line": places.line(found.location) or None,
        "aliases": [name for name, _ in found.followed],
        "redirect": found.elsewhere or None,
        "settings": None if policy is None else policy_attributes(policy),
    }
    if found.owner:
        explained["owner"] = found.owner
    if access is not None:
        explained["access"] = {
            "address": access.address,
            "open": access.open,
            "groups": access.groups,
            "rights": {
                each.right: {
                    "given": each.given,
                    "line": None if each.kept else places.line(each.location) or None,
                    "rule": each.kept or None,
                }
                for each in access.verdicts
            },
            "notes": access.notes,
        }
    return explained


def access_lines(who: str, access: AccessExplanation, places: SourceLocations) -> list[str]:
    """Return the rights of an identity as lines of text."""
    if access.open:
        return ["there are no rules: every client may do everything"]
    groups = f", who is in {', '.join(access.groups)}" if access.groups else ""
    lines = [f"at {access.address!r} {who}{groups}:"]
    for each in access.verdicts:
        verdict = "may" if each.given else "may not"
        line = places.line(each.location)
        why = f"says the rule on line {line}" if line else "because no rule says so"
        if each.kept:
            why = f"says the rule {each.kept!r} in the file of rules"
        lines.append(f"  {verdict:7} {each.right}, {why}")
    lines += [f"  {note}" for note in access.notes]
    return lines


def _print_explanation(found: Explanation, places: SourceLocations) -> None:
    lines = []
    for name, location in found.followed:
        lines.append(f"{name!r} is an alias, declared on line {places.line(location)}")
    line = places.line(found.location)
    if found.found == "redirect":
        lines.append(
            f"{found.node!r} is in another container, at {found.elsewhere}; declared on line "
            f"{line}"
        )
    elif found.found == "broker":
        lines.append(f"{found.node!r} is reserved for the broker's own services")
    elif found.policy is None:
        lines.append(f"there is no node {found.node!r}: a link to it is refused")
    else:
        how = _FOUND[found.found].format(
            line=line, pattern=found.pattern, at=f" on line {line}" if line else ""
        )
        lines.append(f"{found.node!r} is a {kind_of(found.policy)}, {how}")
        if found.part:
            lines.append(f"and {found.part!r} is a part of it")
        if found.owner:
            lines.append(f"with {found.owner!r}, to which it belongs")
        settings = friendly_settings(found.policy)
        lines += [f"  {key} = {value}" for key, value in settings.items()]
        if not settings:
            lines.append("  all settings have their defaults")
    sys.stdout.write("\n".join(lines) + "\n")
