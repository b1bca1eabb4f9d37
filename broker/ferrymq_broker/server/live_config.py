"""The configuration of a broker that runs: reads it again, and applies what can change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ferrymq_broker import audit
from ferrymq_broker.config.apply.declare import set_limits
from ferrymq_broker.config.apply.differences import Difference, differences
from ferrymq_broker.config.apply.live_settings import in_force, is_live, note_of
from ferrymq_broker.config.apply.redeclare import redeclare
from ferrymq_broker.config.apply.store_conflicts import contradictions
from ferrymq_broker.config.apply.subscriptions import rule_mistakes
from ferrymq_broker.config.errors import ConfigError, ConfigMistake
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.event_log import log
from ferrymq_broker.security.rules_file import read_rules
from ferrymq_broker.security.tls_reload import check_files

if TYPE_CHECKING:
    from ferrymq_broker.config.load import LoadedConfig
    from ferrymq_broker.config.model import Config
    from ferrymq_broker.server.server import BrokerServer

# Reads the configuration as at the start of the process. Raises `ConfigError`.
Reread = Callable[[], "LoadedConfig"]

_RID: Final = "or delete the node by management first"


class _Wanted(NamedTuple):
    """The configuration that the files want; whether the personality can take its part of it; the
    settings that differ; and warnings about files."""

    config: Config
    follows: bool
    differences: list[Difference]
    warnings: list[str]


class LiveConfig:
    """The configuration of one server. `reread` is None if it has no file."""

    def __init__(self, server: BrokerServer, reread: Reread | None) -> None:
        self._server = server
        self._reread = reread

    @property
    def in_force(self) -> Config:
        """The configuration that is in force."""
        return self._server.config

    def compare(self) -> tuple[str, Sequence[Difference]]:
        """Read the file again; return its name, and how it differs from what is in force. Nothing
        changes. Raises `ConfigError`."""
        if self._reread is None:
            return "", []
        loaded = self._reread()
        return str(loaded.path), self._compare(loaded).differences

    def reload(self) -> Sequence[Difference]:
        """Read all files again, and apply what can change. Called within a pass. Raises
        `ConfigError`, and then the settings stay as they were."""
        server = self._server
        log.info("reloading")
        for call in server.on_reload:
            try:
                call()
            except Exception:
                # Read the other files all the same.
                log.exception("internal error")
        try:
            if self._reread is None:
                server.rules.take(server.config)
                return []
            found = self._apply(self._reread())
        except ConfigError as error:
            log.error("the settings stay as they were: the new ones are wrong", reason=str(error))
            audit.reloaded("configuration", str(error))
            raise
        for each in found:
            facts = {key: value for key, value in each.attributes().items() if key != "applied"}
            if each.applied:
                log.info("a setting has changed", **facts)
            else:
                log.warning("a setting has changed, which needs a restart", **facts)
        audit.reloaded("configuration")
        if server.worker is not None:
            server.worker.on_reloaded()
        return found

    def _compare(self, loaded: LoadedConfig) -> _Wanted:
        """Compare what the files want with what is in force. Raises `ConfigError` for wrong
        settings."""
        server = self._server
        broker, before = server.broker, server.config
        wanted = server.completed(loaded.config)
        personal = bool(before.personality.name)
        try:
            follows = personal and self._follows(before, wanted)
        except ValueError as error:
            raise loaded.bad([ConfigMistake(("personality",), str(error))]) from None
        mistakes, warnings = check_files(wanted)
        mistakes += contradictions(wanted, broker, _RID) + rule_mistakes(wanted)
        if mistakes:
            raise loaded.bad(mistakes)
        found = [
            replace(each, applied=live, note=note_of(each) if live else "")
            for each in differences(before, wanted)
            for live in (is_live(each.path, personal, follows),)
        ]
        return _Wanted(wanted, follows, found, warnings)

    def _apply(self, loaded: LoadedConfig) -> list[Difference]:
        server = self._server
        broker, before = server.broker, server.config
        wanted, follows, found, warnings = self._compare(loaded)
        for warning in warnings:
            log.warning(warning)
        after = in_force(before, wanted, bool(before.personality.name), follows)
        security = after.security
        path = security.rules_file
        kept = [] if path is None else read_rules(path, security.names_somebody)
        authenticators = None
        if any(each.applied and each.path[0] == "security" for each in found):
            authenticators = server.admission.make_authenticators(after)
        self._redeclare(before, after)
        # Nothing can fail from here on.
        server.config = after
        known = server.admission.authenticators.users()
        server.admission.take(after, authenticators)
        if authenticators is not None:
            server.user_kick.review(before.security, known, security, authenticators)
        set_limits(after, broker)
        server.connection_limits.total = after.limits.connections
        server.connection_limits.per_address = after.limits.connections_per_address
        server.rules.take(after, kept)
        for space in broker.spaces.values():
            if space.personality is not None and follows:
                space.personality.take(after.personality.settings)
        if before.log.level != after.log.level:
            logging.getLogger().setLevel(after.log.level.upper())
        return found

    def _follows(self, before: Config, wanted: Config) -> bool:
        """Return whether the personality can take its new settings. Raises ValueError for wrong
        ones."""
        return before.personality.name == wanted.personality.name and all(
            space.personality is not None
            and space.personality.can_take(wanted.personality.settings)
            for space in self._server.broker.spaces.values()
        )

    def _redeclare(self, before: Config, after: Config) -> None:
        """Declare the nodes; if that fails, declare the old ones. Raises `ConfigError`."""
        broker = self._server.broker
        try:
            redeclare(before, after, broker)
        except (BrokerError, ConfigError) as error:
            redeclare(after, before, broker)
            raise ConfigError(str(error)) from None
