"""``ferrymq serve``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import ferrymq_broker.cli.structlog_alone  # noqa: F401
from ferrymq import __version__
from ferrymq_broker.cli.build_variant import build_variant
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.config.load import LoadedConfig, load_with_places
from ferrymq_broker.config.model import Config, Http, Listener, Log
from ferrymq_broker.config.url import parse_listen_url
from ferrymq_broker.event_log import log
from ferrymq_broker.server.logs import configure_logging
from ferrymq_broker.server.startup_progress import LoggedProgress
from ferrymq_broker.server.supervisor import run_workers


def serve(
    listen: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="An address to listen on, amqp://HOST:PORT; repeatable; port 0 is any free port. "
            "Replaces the listeners of the configuration.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file; see docs/broker.")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The address for monitoring, http://HOST:PORT."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Store durable messages in DIR; replaces the path of the configuration.",
        ),
    ] = None,
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Store nothing, even if the configuration has a store."),
    ] = False,
    personality: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Serve the clients of another broker: the name of an installed personality.",
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="text or json.")] = None,
) -> None:
    """Run the broker until it is told to stop.

    Prints "listening URL" for each listener and then "ready". SIGTERM and Ctrl-C close all
    connections and exit with status 0. If the store fails, the process ends at once, with status
    70.
    """
    if data is not None and memory:
        raise typer.BadParameter("--data and --memory exclude each other")

    def read() -> LoadedConfig:
        assert config is not None
        loaded, places = load_with_places(config, data)
        return LoadedConfig(config, complete(loaded), places)

    def complete(loaded: Config) -> Config:
        return _with_options(loaded, listen, http, log_level, log_format, data, memory, personality)

    settings = complete(Config.defaults()) if config is None else read().config
    reread = None if config is None else read
    configure_logging(settings.log)
    if not sys.stderr.isatty():
        run_workers(settings, _announce, LoggedProgress(), reread)
        return
    # Imported only for a terminal, because importing rich takes a while.
    from ferrymq_broker.cli.progress import RunProgress

    with RunProgress("starting", None) as progress:

        def announce(line: str) -> None:
            progress.stop()
            _announce(line)

        run_workers(settings, announce, progress.reach, reread)


def _with_options(
    config: Config,
    listen: list[str] | None,
    http: str | None,
    log_level: str | None,
    log_format: str | None,
    data: Path | None,
    memory: bool,
    personality: str | None,
) -> Config:
    """Return the configuration, with the options of the command line in place of its values."""
    changes: dict[str, Any] = {}
    if listen:
        for url in listen:
            try:
                parse_listen_url(url)
            except ValueError as error:
                raise typer.BadParameter(str(error), param_hint="--listen") from None
        changes["listener"] = [Listener(url=url) for url in listen]
    if http is not None:
        try:
            changes["http"] = Http(url=http)
        except ValueError as error:
            raise typer.BadParameter(_reason(error), param_hint="--http") from None
    log: dict[str, Any] = {}
    if log_level is not None:
        if log_level not in ("debug", "info", "warning", "error"):
            raise typer.BadParameter(
                f"{log_level!r} must be debug, info, warning or error", param_hint="--log-level"
            )
        log["level"] = log_level
    if log_format is not None:
        if log_format not in ("text", "json"):
            raise typer.BadParameter(
                f"{log_format!r} must be text or json", param_hint="--log-format"
            )
        log["format"] = log_format
    if log:
        changes["log"] = Log(**(config.log.model_dump() | log))
    if data is not None or memory:
        changes["store"] = config.store.model_copy(update={"path": data})
    if personality is not None:
        changes["personality"] = config.personality.model_copy(update={"name": personality})
    if not changes:
        return config
    try:
        return config.replaced(changes)
    except ValueError as error:
        raise ConfigError(_reason(error)) from None


def _reason(error: ValueError) -> str:
    """Return the reason of a validation error, without its place."""
    return str(error).split("Value error, ")[-1].split(" [type=")[0]


def _announce(line: str) -> None:
    if line == "ready":
        log.info("started", version=__version__, build=build_variant())
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
