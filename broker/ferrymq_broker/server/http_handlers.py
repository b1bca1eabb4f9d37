"""Handlers of HTTP requests, which packages add to the listeners that take HTTP."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from ferrymq_broker.connections.authentication import ClientTransport

if TYPE_CHECKING:
    from ferrymq_broker.access.identity import UserIdentity
    from ferrymq_broker.addresses.address_space import AddressSpace
    from ferrymq_broker.broker import Broker
    from ferrymq_broker.config.url import ListenAddress
    from ferrymq_broker.management.live import LiveKeepers
    from ferrymq_broker.management.manager import Manager
    from ferrymq_broker.security.request_tokens import RequestTokens

# The paths of the management API and of the console.
API: Final = "/management/v1"
CONSOLE: Final = "/console"


class HttpPart(IntEnum):
    """The part of a request that a worker does: the whole, the first of several parts, which has
    what does not belong to a virtual host, or another one."""

    WHOLE = 0
    FIRST = 1
    OTHER = 2


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A complete request.

    `path` and `query` are decoded; `query` has the first value of each name. `raw_path` is the
    path as it came, with percent-encoding. The names of `headers` are in lower case. `base` is the
    URL of the server as the client wrote it, without a path. `identity` is that of the client, if
    the handler was mounted with a login; None if the client has to name itself, and did not.
    `part` says whether other workers of the broker do parts of the request, too.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    base: str
    client: ClientTransport
    raw_path: str = ""
    identity: UserIdentity | None = None
    part: HttpPart = HttpPart.WHOLE


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response. After `close` the connection ends."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False


# Long work for a request, a little between two yields, each in a pass of its own.
HttpSteps: TypeAlias = Generator[None, None, HttpResponse]


@dataclass(frozen=True, slots=True)
class HttpParts:
    """The work for a request of which each worker of the broker does a part: `request`. This worker
    does the first part, then the others begin. `combine` makes one response of theirs, the first
    one first."""

    request: HttpRequest
    combine: Callable[[Sequence[HttpResponse]], HttpResponse | HttpSteps]


class ServedElsewhereError(Exception):
    """An exception: another worker serves the virtual host that a request is about."""

    def __init__(self, space: AddressSpace) -> None:
        super().__init__(f"worker {space.elsewhere} serves the virtual host {space.name!r}")
        self.space = space.name


# Handles a request in a pass of the broker. The response is written when all changes of the pass
# are on disk. Raises `ServedElsewhereError`, before anything has changed.
HttpHandler: TypeAlias = Callable[[HttpRequest], HttpResponse | HttpSteps | HttpParts]


@dataclass(frozen=True, slots=True)
class HttpHost:
    """The virtual host that a handler works for. `tokens` judges the tokens of requests; None if
    the broker takes no tokens. `needs_login` returns whether a client has to name itself. `users`
    returns the users with a password, by name, and their groups. `addresses` returns those that the
    broker listens on. `managers` answer management requests, by virtual host. `keepers` change
    users, rules and the configuration."""

    space: AddressSpace
    broker: Broker
    tokens: RequestTokens | None
    needs_login: Callable[[ClientTransport], bool]
    users: Callable[[], Mapping[str, frozenset[str]]]
    addresses: Callable[[], Sequence[ListenAddress]]
    managers: Mapping[str, Manager]
    keepers: LiveKeepers


# Makes the handler for a virtual host.
HttpHandlerFactory: TypeAlias = Callable[[HttpHost], HttpHandler]


@dataclass(frozen=True, slots=True)
class MountedHandler:
    """A handler in its place, for the virtual host `space`. With `login`, names and passwords in
    requests are checked before. With `everywhere` each worker may answer for all virtual hosts."""

    handle: HttpHandler
    space: str
    login: bool = False
    everywhere: bool = False


class HttpHandlers:
    """The handlers of one broker, by virtual host and by the beginning of the path."""

    def __init__(self) -> None:
        self._mounted: dict[str, dict[str, MountedHandler]] = {}

    def mount(
        self,
        space: str,
        prefix: str,
        handler: HttpHandler,
        login: bool = False,
        everywhere: bool = False,
    ) -> None:
        """Give the requests of a virtual host with the path `prefix`, or a path below it, to
        `handler`. The longest prefix counts; ``""`` is for all paths. `login` and `everywhere` are
        those of `MountedHandler`. Raises ValueError if the prefix is taken."""
        mounted = self._mounted.setdefault(space, {})
        if prefix in mounted:
            raise ValueError(f"the path {prefix!r} has a handler already")
        mounted[prefix] = MountedHandler(handler, space, login, everywhere)

    def find(self, space: str, path: str) -> MountedHandler | None:
        """Return the handler for a path in a virtual host; None if there is none."""
        mounted = self._mounted.get(space)
        if mounted is None:
            return None
        prefix = path.rstrip("/")
        while prefix and prefix not in mounted:
            prefix = prefix.rpartition("/")[0]
        return mounted.get(prefix)
