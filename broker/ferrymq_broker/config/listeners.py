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
    (AMQP 1.0 §5.2). `tls` has the settings that differ from ``[tls]``. `origins` is for ``ws://``
    and ``wss://``: the origins of web pages that may connect; ``*`` for all.
    """

    url: Annotated[str, AfterValidator(_check_url)]
    upgrade_tls: Literal["off", "offered", "required"] = "off"
    tls: Tls = Field(default_factory=Tls)
    origins: Annotated[
        list[Annotated[str, AfterValidator(_check_origin)]], BeforeValidator(_as_list)
    ] = Field(default_factory=list)

    @property
    def address(self) -> ListenAddress:
        """The parts of the URL."""
        return parse_listen_url(self.url)

    @property
    def has_tls(self) -> bool:
        """Whether the listener offers TLS, at once or by upgrade."""
        return self.address.is_secure or self.upgrade_tls != "off"


def check_listener(listener: Listener, shared: Tls, place: Location) -> Iterator[ConfigMistake]:
    """Yield the mistakes in the TLS settings of a listener; `place` is its place in the file."""
    if listener.upgrade_tls != "off" and listener.address.scheme != "amqp":
        reason = "only amqp:// begins unencrypted and continues with TLS"
        yield ConfigMistake((*place, "upgrade-tls"), reason)
        return
    if listener.origins and not listener.address.is_websocket:
        yield ConfigMistake((*place, "origins"), "only ws:// and wss:// listeners take origins")
    if not listener.has_tls:
        for name in sorted(listener.tls.model_fields_set):
            reason = f"{listener.url} has no TLS; use amqps://, or set upgrade-tls"
            yield ConfigMistake((*place, "tls", kebab(name)), reason)
        return
    tls = shared.refined(listener.tls)
    if tls.certificate is None:
        reason = "there is no certificate: set [tls] certificate; `ferrymq cert` makes one"
        yield ConfigMistake((*place, "url"), f"{listener.url}: {reason}")
    elif listener.tls.model_fields_set:
        for key, reason in tls.contradictions():
            yield ConfigMistake((*place, "tls", kebab(key)), reason)
