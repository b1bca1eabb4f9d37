"""The model of the configuration file. Keys are written with dashes: ``max-message-size``.

Sizes are in bytes, times in seconds, credit in messages and windows in frames. Sizes and times may
also be text with a unit (`units`).
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ferrymq_broker.config.access import check_named
from ferrymq_broker.config.capture import Capture
from ferrymq_broker.config.checks import check_capture, check_tables
from ferrymq_broker.config.declarations import (
    Alias,
    Binding,
    Exchange,
    Nodes,
    Policy,
    Queue,
    Redirect,
    Stream,
    Subscription,
    Tables,
    Topic,
    VirtualHost,
)
from ferrymq_broker.config.errors import ConfigMistake, ConfigMistakes, Location
from ferrymq_broker.config.history import History
from ferrymq_broker.config.limits import Limits
from ferrymq_broker.config.listeners import Listener, check_listener
from ferrymq_broker.config.log import Log
from ferrymq_broker.config.memory import available_memory
from ferrymq_broker.config.opentelemetry import OpenTelemetry
from ferrymq_broker.config.paths import FOLDER
from ferrymq_broker.config.placement import check_placements
from ferrymq_broker.config.replication import Replication
from ferrymq_broker.config.section import Section, kebab
from ferrymq_broker.config.security import Security
from ferrymq_broker.config.storage import PAGE_OUT, Store
from ferrymq_broker.config.tls import Tls
from ferrymq_broker.config.units import Seconds, Share, format_size, share_of
from ferrymq_broker.config.url import check_client_url, check_http_url, http_address
from ferrymq_broker.values.names import DEFAULT_SPACE, VHOST

# The virtual host of the tables at the top of the file.
DEFAULT_HOST = DEFAULT_SPACE
# More workers than any machine needs.
MOST_WORKERS: Final = 256


class Http(Section):
    """``[http]``: the listener for monitoring and management, ``http://HOST:PORT``; none by
    default.

    `connections` is the highest number of clients at a time. `management` is whether there is
    management by HTTP, with the console: on this listener, and on those for all protocols.
    """

    url: Annotated[str, AfterValidator(check_http_url)] | None = None
    connections: int = Field(default=100, ge=1, le=65535)
    management: bool = True


class Alarms(Section):
    """``[alarms]``: the limits at which producers must wait because the broker is full.

    The alarm begins above `memory`, in bytes of messages or as a part of the memory; 0 is no alarm.
    It ends at `low_water`, in bytes or as a part of `memory`.
    """

    memory: Share = "40%"
    low_water: Share = "80%"

    def memory_bytes(self) -> int:
        """Return the bytes of messages above which the alarm begins; 0 if it never does."""
        if isinstance(self.memory, int):
            return self.memory
        return share_of(self.memory, available_memory())

    def low_water_bytes(self) -> int:
        """Return the bytes of messages at which the alarm ends."""
        return share_of(self.low_water, self.memory_bytes())


class Shutdown(Section):
    """``[shutdown]``: how long clients may still settle deliveries after the broker was told to
    end."""

    drain_timeout: Annotated[Seconds, Field(ge=0)] = 5.0


class PersonalitySection(Section):
    """``[personality]``: what clients of another broker expect; none by default.

    `name` is that of an installed package (an entry point of ``ferrymq.personalities``), which
    reads the other keys.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    name: str = ""
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _note_folder(self, info: ValidationInfo) -> PersonalitySection:
        context = info.context
        folder = context.get(FOLDER) if isinstance(context, dict) else None
        if isinstance(folder, Path):
            self._folder = folder
        return self

    @property
    def folder(self) -> Path:
        """The folder of the configuration file, to which paths in it are relative."""
        return self._folder

    @property
    def settings(self) -> dict[str, object]:
        """The other keys."""
        return dict(self.__pydantic_extra__ or {})


class Config(Tables):
    """The whole file. Without a file all settings have their defaults: a local broker."""

    # The processes that serve the virtual hosts.
    workers: int = Field(default=1, ge=1, le=MOST_WORKERS)
    container_id: str = Field(default_factory=lambda: f"ferrymq@{socket.gethostname()}")
    # Where clients find this broker: other brokers send them there.
    advertise: Annotated[str, AfterValidator(check_client_url)] | None = None
    listener: list[Listener] = Field(
        default_factory=lambda: [Listener(url="amqp://127.0.0.1:5672")], min_length=1
    )
    # For all listeners; each listener may override it.
    tls: Tls = Field(default_factory=Tls.defaults)
    limits: Limits = Field(default_factory=Limits.defaults)
    alarms: Alarms = Field(default_factory=Alarms.defaults)
    store: Store = Field(default_factory=Store.defaults)
    replication: Replication = Field(default_factory=Replication.defaults)
    capture: Capture = Field(default_factory=Capture.defaults)
    policies: dict[str, Policy] = Field(default={})
    virtual_host: list[VirtualHost] = Field(default=[])
    # Whether clients that open with an unknown hostname get the default virtual host.
    unknown_hostname: Literal["default", "refuse"] = "default"
    security: Security = Field(default_factory=Security.defaults)
    http: Http = Field(default_factory=Http.defaults)
    history: History = Field(default_factory=History.defaults)
    opentelemetry: OpenTelemetry = Field(default_factory=OpenTelemetry.defaults)
    shutdown: Shutdown = Field(default_factory=Shutdown.defaults)
    personality: PersonalitySection = Field(default_factory=PersonalitySection.defaults)
    log: Log = Field(default_factory=Log.defaults)

    @field_validator("container_id")
    @classmethod
    def _check_container_id(cls, name: str) -> str:
        # Every open has the container-id, and an open may have 512 bytes (AMQP 1.0 §2.4.1).
        if len(name.encode()) > 300:
            raise ValueError("at most 300 bytes of UTF-8")
        return name

    def replaced(self, changes: Mapping[str, object]) -> Self:
        """Return this configuration with other values of settings, which are valid each.

        Raises `ConfigMistakes` if the settings do not fit together then.
        """
        return self.model_copy(update=changes).checked()

    @model_validator(mode="after")
    def _check(self) -> Self:
        return self.checked()

    def checked(self) -> Self:
        """Return this configuration. Raises `ConfigMistakes` if its settings do not fit
        together."""
        mistakes = self._access() + self._alarms() + self._store() + self._hosts() + self._tls()
        mistakes += self._workers()
        named = self.security.names_somebody
        mistakes += check_named(named, self.rule, ())
        mistakes += check_tables(self, self.nodes, self.policies, ())
        tables: list[tuple[Tables, Location]] = [(self, ())]
        for at, host in enumerate(self.virtual_host):
            place = ("virtual-host", at)
            mistakes += check_named(named, host.rule, place)
            mistakes += check_tables(host, self.nodes_of(host), self.policies, place)
            tables.append((host, place))
        if not mistakes:
            mistakes = check_capture(self.capture, self.store, tables, self.policies)
            mistakes += check_placements(
                self.advertise, self.personality.name, tables, self.policies
            )
        if mistakes:
            raise ConfigMistakes(mistakes)
        return self

    def nodes_of(self, host: VirtualHost) -> Nodes:
        """Return the ``[nodes]`` of a virtual host, completed by those of the file."""
        said = {name: getattr(host.nodes, name) for name in host.nodes.model_fields_set}
        return self.nodes.model_copy(update=said)

    def _tls(self) -> list[ConfigMistake]:
        mistakes = [
            ConfigMistake(("tls", kebab(key)), reason) for key, reason in self.tls.contradictions()
        ]
        if self.http.url is not None and self.http.url.startswith("https:"):
            if self.tls.certificate is None:
                reason = f"{self.http.url}: there is no certificate: set [tls] certificate"
                mistakes.append(ConfigMistake(("http", "url"), reason))
        for at, listener in enumerate(self.listener):
            mistakes += check_listener(listener, self.tls, ("listener", at))
        return mistakes

    def _access(self) -> list[ConfigMistake]:
        security = self.security
        if security.names_somebody or security.anonymous:
            return []
        mistakes = [
            ConfigMistake(
                ("listener", at, "url"),
                f"{listener.url} is open to other machines, but [security] names no users; "
                "to accept every client, set anonymous = true there",
            )
            for at, listener in enumerate(self.listener)
            if not listener.address.is_loopback
        ]
        url = self.http.url
        if url is not None and not http_address(url).is_loopback:
            mistakes.append(
                ConfigMistake(
                    ("http", "url"),
                    f"{url} is open to other machines, but [security] names no users; "
                    "to show the figures to everybody, set anonymous = true there",
                )
            )
        return mistakes

    def _alarms(self) -> list[ConfigMistake]:
        if 0 < self.alarms.memory_bytes() < self.alarms.low_water_bytes():
            return [
                ConfigMistake(
                    ("alarms", "low-water"),
                    "it must be below memory, where the alarm begins",
                )
            ]
        return []

    def page_out_bytes(self) -> int:
        """Return the bytes of messages in memory above which queues page out; 0 means never.

        A percentage in `page_out` is one of the memory alarm, or without that alarm of the memory.
        """
        page_out = self.store.page_out
        if isinstance(page_out, int):
            return page_out
        whole = self.alarms.memory_bytes() or available_memory()
        return min(PAGE_OUT, whole // 2) if page_out is None else share_of(page_out, whole)

    def _store(self) -> list[ConfigMistake]:
        store = self.store
        mistakes: list[ConfigMistake] = []
        if 0 < store.max_bytes < store.least_bytes():
            reason = (
                f"the journal alone takes {format_size(store.least_bytes())}; "
                "allow more, or make segment-bytes smaller"
            )
            mistakes.append(ConfigMistake(("store", "max-bytes"), reason))
        if 0 < self.alarms.memory_bytes() < self.page_out_bytes():
            reason = "the memory alarm would stop producers before anything is paged out"
            mistakes.append(ConfigMistake(("store", "page-out"), reason))
        if self.replication.is_on and store.path is None:
            reason = "a member of a cluster keeps its records in a store: set [store] path"
            mistakes.append(ConfigMistake(("replication", "engine"), reason))
        return mistakes

    def _workers(self) -> list[ConfigMistake]:
        mistakes: list[ConfigMistake] = []
        if self.workers > 1 and self.replication.is_on:
            reason = "a member of a cluster has one process: leave workers out"
            mistakes.append(ConfigMistake(("workers",), reason))
        if self.workers > 1 and sys.platform != "linux":
            mistakes.append(ConfigMistake(("workers",), "only Linux can have more than one"))
        for at, host in enumerate(self.virtual_host):
            if host.worker is not None and host.worker >= self.workers:
                reason = f"the last worker is {self.workers - 1}"
                mistakes.append(ConfigMistake(("virtual-host", at, "worker"), reason))
        return mistakes

    def _hosts(self) -> list[ConfigMistake]:
        mistakes: list[ConfigMistake] = []
        known: dict[str, Location] = {}
        for at, host in enumerate(self.virtual_host):
            if host.name == DEFAULT_HOST:
                reason = "the default virtual host is declared at the top of the file"
                mistakes.append(ConfigMistake(("virtual-host", at, "name"), reason))
            for name in host.all_hostnames():
                if name.startswith(VHOST):
                    reason = f"{VHOST} is for the hostname of an open; leave it out here"
                    mistakes.append(ConfigMistake(("virtual-host", at), reason))
                if name == DEFAULT_HOST and host.name != DEFAULT_HOST:
                    reason = f"{name!r} is the hostname of the default virtual host"
                    mistakes.append(ConfigMistake(("virtual-host", at), reason))
                if name in known:
                    reason = f"two virtual hosts have the hostname {name!r}"
                    mistakes.append(ConfigMistake(("virtual-host", at), reason, known[name]))
                known.setdefault(name, ("virtual-host", at))
        return mistakes


__all__ = [
    "Alarms",
    "Alias",
    "Binding",
    "Capture",
    "Config",
    "Exchange",
    "History",
    "Http",
    "Limits",
    "Listener",
    "Log",
    "Nodes",
    "OpenTelemetry",
    "Policy",
    "Queue",
    "Redirect",
    "Replication",
    "Security",
    "Shutdown",
    "Store",
    "Stream",
    "Subscription",
    "Topic",
    "VirtualHost",
]
