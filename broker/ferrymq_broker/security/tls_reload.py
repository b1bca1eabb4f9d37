"""Reloading certificates while the broker runs.

Every handshake uses the files as they were at the last check. New files that cannot be used are
ignored, because a new certificate is often written before its key.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ferrymq_broker import audit
from ferrymq_broker.config.errors import ConfigMistake, Location
from ferrymq_broker.config.model import Config
from ferrymq_broker.config.section import kebab
from ferrymq_broker.config.tls import BadTlsError, Tls
from ferrymq_broker.event_log import log
from ferrymq_broker.security.config_checks import (
    check_rules,
    check_store,
    check_users,
    warnings_of_strangers,
)
from ferrymq_broker.security.token_setup import check_tokens

if TYPE_CHECKING:
    from ferrymq_broker.security.tls import Loaded

# Properties of files that show whether they have changed.
_Looks = tuple[tuple[int, int, int] | None, ...]


class TlsFiles:
    """The TLS of all listeners with the same settings. Raises `BadTlsError` if a file is bad."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._looks = self._look()
        self._loaded = _load(tls)
        self._tell_warnings()
        self._fixed: ssl.SSLContext | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake."""
        return self._loaded.context

    @property
    def fixed(self) -> ssl.SSLContext:
        """A context for all handshakes, which hands each handshake to the current context."""
        if self._fixed is None:
            self._fixed = _load(self._tls).context
            self._fixed.sni_callback = self._hand_over
        return self._fixed

    def _hand_over(
        self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, fixed: ssl.SSLContext
    ) -> None:
        """Switch to the current context. Called for every client hello, with or without a name."""
        connection.context = self.context

    def refresh(self, force: bool = False) -> bool:
        """Read the files if they have changed, or with `force` always. Return whether they are
        valid.

        Invalid files are logged once, and the old ones stay in use.
        """
        looks = self._look()
        if looks == self._looks and not force:
            return True
        self._looks = looks
        try:
            self._loaded = _load(self._tls)
        except BadTlsError as error:
            log.error("TLS files refused; the old ones stay in use", reason=str(error))
            audit.reloaded("certificates", str(error))
            return False
        log.info(
            "TLS files read",
            certificate=str(self._tls.certificate),
            expires=self._loaded.expires.isoformat(),
        )
        audit.reloaded("certificates")
        self._tell_warnings()
        return True

    def _tell_warnings(self) -> None:
        for warning in self._loaded.warnings:
            log.warning("TLS", reason=warning)

    def _look(self) -> _Looks:
        return tuple(_look_at(path) for path in files_of(self._tls))


class TlsRegistry:
    """The TLS of one broker, for each of its listeners. Raises `BadTlsError` if a file is bad."""

    def __init__(self, config: Config) -> None:
        self._shared = config.tls
        self._monitoring = _tls_of_monitoring(config)
        self._files: dict[Tls, TlsFiles] = {}
        for _, tls in settings_of(config):
            if tls not in self._files:
                self._files[tls] = TlsFiles(tls)

    def files_for(self, tls: Tls | None = None) -> TlsFiles:
        """Return the TLS of a listener with its own settings `tls`, or without."""
        return self._files[self._shared if tls is None else self._shared.refined(tls)]

    @property
    def monitoring(self) -> ssl.SSLContext | None:
        """The context of the monitoring listener, without client certificates; None without TLS."""
        return None if self._monitoring is None else self._files[self._monitoring].fixed

    def refresh(self, force: bool = False) -> bool:
        """Read files again that have changed, or with `force` all. Return whether all are valid."""
        good = [files.refresh(force) for files in self._files.values()]
        return all(good)


def files_of(tls: Tls) -> Iterator[Path]:
    """Yield every file that the settings name."""
    for path in (
        tls.certificate,
        tls.key,
        tls.key_password_file,
        tls.client_ca,
        tls.client_crl,
    ):
        if path is not None:
            yield path


def settings_of(config: Config) -> Iterator[tuple[Location, Tls]]:
    """Yield the settings in use, and their location in the configuration."""
    if config.tls.certificate is not None:
        yield ("tls",), config.tls
    for at, listener in enumerate(config.listener):
        tls = listener.tls_settings(config.tls)
        if tls is not None and tls != config.tls:
            yield ("listener", at, "tls"), tls
    monitoring = _tls_of_monitoring(config)
    if monitoring is not None:
        yield ("tls",), monitoring


def _tls_of_monitoring(config: Config) -> Tls | None:
    if config.http.url is None or not config.http.url.startswith("https:"):
        return None
    return config.tls.refined(Tls(client_certificates="none", client_ca=None, client_crl=None))


def check_files(config: Config) -> tuple[list[ConfigMistake], list[str]]:
    """Return errors and warnings about the files that a configuration names."""
    mistakes, warnings = check_tokens(config)
    for found, odd in (check_users(config), check_rules(config), check_store(config)):
        mistakes += found
        warnings += odd
    warnings += warnings_of_strangers(config)
    for place, tls in settings_of(config):
        try:
            warnings += _load(tls).warnings
        except BadTlsError as error:
            mistakes.append(ConfigMistake((*place, kebab(error.field)), error.reason))
    return list(dict.fromkeys(mistakes)), list(dict.fromkeys(warnings))


def _load(tls: Tls) -> Loaded:
    # Imported only when needed, because the import takes a while.
    from ferrymq_broker.security.tls import load_tls

    return load_tls(tls)


def _look_at(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
