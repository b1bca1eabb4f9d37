"""``ferrymq import-definitions``: what RabbitMQ has exported, into files or a running broker."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ferrymq_broker.cli.connect_options import ConnectOptions
from ferrymq_broker.cli.credentials import Credentials, PasswordFile, User
from ferrymq_broker.cli.options import Json
from ferrymq_broker.cli.tls_options import Ca, TlsOptions
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.security.users import check_name
from ferrymq_rabbitmq.definitions.config_file import config_text
from ferrymq_rabbitmq.definitions.document import Omission, parse_definitions
from ferrymq_rabbitmq.definitions.plan import ImportPlan, PlannedUser, make_plan
from ferrymq_rabbitmq.pattern_policies import read_policies


def import_definitions(
    file: Annotated[
        Path,
        typer.Argument(
            help="The export: rabbitmqctl export_definitions FILE, or GET /api/definitions.",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The configuration to write; a new file."),
    ] = None,
    users_file: Annotated[
        Path | None,
        typer.Option("--users-file", metavar="FILE", help="The file of users to add the users to."),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option("--broker", metavar="URL", help="A running broker to declare the nodes in."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing, only report.")
    ] = False,
    as_json: Json = False,
    user: User = None,
    password_file: PasswordFile = None,
    ca: Ca = None,
) -> None:
    """Import what RabbitMQ has exported: queues, exchanges, bindings, policies, users, permissions.

    What has no equal is reported, a line for each."""
    if not dry_run and config is None and users_file is None and broker is None:
        raise ConfigError("say where to: --config FILE, --users-file FILE or --broker URL")
    text = file.read_bytes()
    plan = make_plan(parse_definitions(text))
    if config is not None:
        _write_config(plan, config, users_file, dry_run)
    if users_file is not None:
        _add_users(plan, users_file, dry_run)
    if config is not None and users_file is None and plan.users:
        reason = "the users and their permissions are left out: use --users-file"
        plan.omitted.append(Omission("users", "", "", reason))
    declared: dict[str, Any] = {}
    if broker is not None and not dry_run:
        options = ConnectOptions(Credentials(user, password_file, None), TlsOptions(ca=ca))
        declared = _declare(text, broker, options)
    _report(plan, declared, as_json)


def _write_config(plan: ImportPlan, path: Path, users_file: Path | None, dry_run: bool) -> None:
    """Write the configuration, after a look whether the broker takes it. Raises `ConfigError`."""
    # Imported only when needed, because the help of `ferrymq` has this command too.
    from ferrymq_broker.config.load import load_config

    if path.exists():
        raise ConfigError(f"{path} exists already")
    folder = path.parent.absolute()
    named = None if users_file is None else users_file.absolute()
    if named is not None and named.is_relative_to(folder):
        named = named.relative_to(folder)
    # The mistakes have the lines of this file.
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(config_text(plan, named), "utf-8")
        loaded = load_config(new)
        for host in plan.hosts:
            read_policies(loaded.personality.settings.get("policy", []), host.vhost)
        if not dry_run:
            os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _add_users(plan: ImportPlan, path: Path, dry_run: bool) -> None:
    """Add the users to the file; those that are there already stay as they are."""
    from ferrymq_broker.security.users_file import edited_users, read_users

    known = read_users(path) if path.exists() else {}
    made = {}
    for user in plan.users:
        if user.name in known:
            reason = f"{path} has a user with this name already, who stays"
            plan.omitted.append(Omission("user", user.name, "", reason))
            continue
        try:
            made[check_name(user.name)] = _stored(user)
        except ValueError as error:
            plan.omitted.append(Omission("user", user.name, "", str(error)))
    if not dry_run and made:
        with edited_users(path) as users:
            for name, stored in made.items():
                users.setdefault(name, stored)


def _stored(user: PlannedUser) -> Any:
    # Imported only when needed, because importing argon2 takes a while.
    from ferrymq_broker.security.hashing import user_of_salted_hash

    return user_of_salted_hash(user.algorithm, user.salt, user.digest, user.groups)


def _declare(text: bytes, url: str, options: ConnectOptions) -> dict[str, Any]:
    """Have a running broker import the definitions; return its report."""
    import ferrymq
    from ferrymq import rabbitmq

    url, arguments = options.arguments(url)

    async def run() -> dict[str, Any]:
        async with (
            ferrymq.connect(url, **arguments) as connection,
            rabbitmq.management(connection) as management,
        ):
            report = await management.request("POST", "/definitions", text.decode())
            return dict(report)

    return asyncio.run(run())


def _report(plan: ImportPlan, declared: dict[str, Any], as_json: bool) -> None:
    omitted = [omission.plain() for omission in plan.omitted]
    lines = [omission.line() for omission in plan.omitted]
    for told in declared.get("omitted", ()):
        if told not in omitted:
            omitted.append(told)
            lines.append(Omission(**told).line())
    report: dict[str, object] = {"version": plan.version, "planned": plan.counts()}
    if declared:
        report["declared"] = declared["imported"]
    report["omitted"] = omitted
    if as_json:
        sys.stdout.write(json.dumps(report, ensure_ascii=False, indent=2) + "\n")
        return
    counts = ", ".join(f"{count} {kind}" for kind, count in plan.counts().items())
    sys.stdout.write(f"RabbitMQ {plan.version}: {counts}\n")
    if declared:
        counts = ", ".join(f"{count} {kind}" for kind, count in declared["imported"].items())
        sys.stdout.write(f"declared in the broker: {counts}\n")
    for line in lines:
        sys.stdout.write(f"  {line}\n")
