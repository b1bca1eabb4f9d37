"""Listeners, the addresses that clients connect to: ``[[listener]]``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ferrymq_broker.config.errors import ConfigMistake, Location
from ferrymq_broker.config.section import Section, kebab
from ferrymq_broker.config.tls import Tls
from ferrymq_broker.config.url import ListenAddress, parse_listen_url


def _check_url(url: str) -> str:
    parse_listen_url(url)
    return url


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _check_origin(origin: str) -> str:
    if origin != "*" and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
        raise ValueError('an origin is https://HOST or https://HOST:PORT; "*" stands for all')
    return origin


class Listener(Section):
    """``[[listener]]``: an address that clients connect to.

    `upgrade_tls` is for ``amqp://``: whether clients may, or must, begin TLS inside AMQP
    (AMQP 1.0 §5.2). `tls` has the settings that differ from ``[tls]``. `origins` is for ``ws://``,
    ``wss://`` and ``any://``: the origins of web pages that may connect; ``*`` for all.
    """

    url: Annotated[str, AfterValidator(_check_url)]
    upgrade_tls: Literal["off", "offered", "required"] = "off"
    tls: Tls = Field(default_factory=Tls.defaults)
    origins: Annotated[
        list[Annotated[str, AfterValidator(_check_origin)]], BeforeValidator(_as_list)
    ] = Field(default=[])

    @property
    def address(self) -> ListenAddress:
        """The parts of the URL."""
        return parse_listen_url(self.url)

    def tls_settings(self, shared: Tls) -> Tls | None:
        """Return the settings of the listener's TLS, which begins at once, by upgrade or by the
        client's choice; None without TLS. `shared` are those of all listeners."""
        if self.address.is_any:
            tls = shared.refined(self.tls)
            return None if tls.certificate is None else tls
        if self.address.is_secure or self.upgrade_tls != "off":
            return shared.refined(self.tls)
        return None


def check_listener(listener: Listener, shared: Tls, place: Location) -> Iterator[ConfigMistake]:
    """Yield the mistakes in the TLS settings of a listener; `place` is its place in the file."""
    if listener.upgrade_tls != "off" and listener.address.scheme != "amqp":
        reason = "only amqp:// begins unencrypted and continues with TLS"
        yield ConfigMistake((*place, "upgrade-tls"), reason)
        return
    address = listener.address
    if listener.origins and not (address.is_websocket or address.is_any):
        reason = "only ws://, wss:// and any:// listeners take origins"
        yield ConfigMistake((*place, "origins"), reason)
    tls = listener.tls_settings(shared)
    if tls is None:
        reason = f"{listener.url} has no TLS; use amqps://, or set upgrade-tls"
        if address.is_any:
            reason = "there is no certificate: set [tls] certificate; `ferrymq cert` makes one"
        for name in sorted(listener.tls.model_fields_set):
            yield ConfigMistake((*place, "tls", kebab(name)), reason)
        return
    if tls.certificate is None:
        reason = "there is no certificate: set [tls] certificate; `ferrymq cert` makes one"
        yield ConfigMistake((*place, "url"), f"{listener.url}: {reason}")
    elif listener.tls.model_fields_set:
        for key, reason in tls.contradictions():
            yield ConfigMistake((*place, "tls", kebab(key)), reason)
