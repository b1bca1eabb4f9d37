"""The connection options: broker and user, and opening a connection with them.

Options are parsed in the driver and used in executors: files and environment variables are read
where the connection is opened.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError
from pyspark_ferrymq.foreign.shared_access import SharedAccess
from pyspark_ferrymq.options.broker_identity import identity_of
from pyspark_ferrymq.options.option_values import Values, shown

if TYPE_CHECKING:
    from ferrymq.blocking import Connection, ManagementClient
    from ferrymq.engine import SaslMechanism
    from ferrymq.options import ConnectionArguments
    from ferrymq.url import Url

LOGGER: Final = logging.getLogger("pyspark_ferrymq")

SERVICES: Final = ("ferrymq", "eventhubs")
"""The kind of service, which decides how offsets are asked for and how records are received."""

MECHANISMS: Final = (
    "auto",
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "SCRAM-SHA-1",
    "PLAIN",
    "EXTERNAL",
    "ANONYMOUS",
    "OAUTHBEARER",
)
_WITHOUT_PASSWORD: Final = ("EXTERNAL", "ANONYMOUS")
# Brokers for which the warning about unchecked credentials was logged.
_MENTIONED: Final[set[str]] = set()
# By the list of URLs: the cluster of the broker that was met first, with its URL; and the place in
# the list of the URL that worked last, which is tried first.
_CLUSTERS: Final[dict[str, tuple[str, str]]] = {}
_LAST: Final[dict[str, int]] = {}
# Seconds between attempts to reach an unreachable broker: the first pause, and the longest.
_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
# Bytes. Records come in chunks, and fewer frames need less time.
_MAX_FRAME_SIZE: Final = 1024 * 1024
_MOST_BROKERS: Final = 1000


class AmqpUnreachableError(AmqpSourceError):
    """The broker cannot be reached at present."""


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """The options of `names.CONNECTION`. No repr shows a secret."""

    url: str = field(repr=False)
    """The URL with its user and password, if it has them; or several URLs, with commas."""

    place: str
    """The URLs without password, for messages."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    password_env: str | None = None
    mechanism: str = "auto"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: bool = True
    timeout: float = 30.0
    """Seconds for connecting, and for each answer of the broker."""

    group_id: str = field(default="", compare=False)
    """The beginning of the container-ids of our connections, which the broker's operator sees. If
    it is generated, each batch of a query that writes has another one."""

    service: str = "ferrymq"

    shared_access: SharedAccess | None = None
    """The key of a connection string, from which tokens are made."""

    consumer_group: str = "$Default"
    """The consumer group of Event Hubs that reads partitions."""

    brokers: int | None = None
    """How many brokers the URLs lead to, if it is given."""

    broker: str = ""
    """The id of the broker that all URLs have to lead to, "" for any."""

    @classmethod
    def parse(cls, given: Values) -> BrokerOptions:
        """Parse the options. Raises `AmqpOptionError`, which never quotes a secret."""
        shared = SharedAccess.parse(given)
        text = given.required("url") if shared is None else shared.url
        urls = _urls(text)
        if len({url.secure for url in urls}) > 1:
            raise AmqpOptionError("option 'url': either all URLs use TLS, or none of them does")
        username = given.text("username")
        secret = given.at_most_one("password", "passwordFile", "passwordEnv")
        named = next((url for url in urls if url.username is not None), None)
        if named is not None and (username is not None or secret is not None):
            raise AmqpOptionError(
                f"option 'url': it already names a user, so the option"
                f" {'username' if username is not None else secret!r} must not be given"
            )
        mechanism = given.choice("sasl.mechanism", MECHANISMS, "auto")
        if mechanism != "auto" and len({(url.username, url.password) for url in urls}) > 1:
            raise AmqpOptionError(
                f"option 'sasl.mechanism': with {mechanism} all URLs need the same user"
            )
        user = username if username is not None else urls[0].username
        if secret is not None and user is None and mechanism != "OAUTHBEARER":
            raise AmqpOptionError(f"the option {secret!r} needs the option 'username'")
        if (
            mechanism not in ("auto", *_WITHOUT_PASSWORD)
            and secret is None
            and not urls[0].password
        ):
            raise AmqpOptionError(
                f"option 'sasl.mechanism': {mechanism} needs a secret; give one of the options"
                " 'password', 'passwordFile', 'passwordEnv'"
            )
        for name in ("tls.ca", "tls.cert", "tls.key", "tls.verify"):
            plain = next((url for url in urls if not url.secure), None)
            if given.has(name) and plain is not None:
                raise AmqpOptionError(
                    f"the option {name!r} is for TLS, which {str(plain)!r} does not use; give an"
                    " amqps:// or wss:// URL"
                )
        given.needs("tls.key", "tls.cert")
        verify = given.flag("tls.verify", True)
        if not verify and given.has("tls.ca"):
            raise AmqpOptionError("the option 'tls.ca' has no effect with 'tls.verify' = false")
        timeout = given.milliseconds("connectTimeoutMs", 1)
        service = given.choice("service", SERVICES, "ferrymq")
        if given.has("consumerGroup") and service != "eventhubs":
            raise AmqpOptionError(
                "option 'consumerGroup': it is only for Event Hubs ('service' = eventhubs)"
            )
        return cls(
            url=text,
            place=", ".join(map(str, urls)),
            username=username,
            password=given.text("password"),
            password_file=given.text("passwordFile"),
            password_env=given.text("passwordEnv"),
            mechanism=mechanism if shared is None else "ANONYMOUS",
            ca=given.text("tls.ca"),
            cert=given.text("tls.cert"),
            key=given.text("tls.key"),
            verify=verify,
            timeout=30.0 if timeout is None else timeout / 1000,
            group_id=given.text("groupId") or f"spark-{uuid4().hex[:12]}",
            service=service,
            shared_access=shared,
            consumer_group=given.text("consumerGroup") or cls.consumer_group,
            brokers=given.number("brokers", 1, _MOST_BROKERS),
        )

    def each(self) -> list[BrokerOptions]:
        """Return the options for each URL alone."""
        from ferrymq.url import split_urls

        found: dict[str, BrokerOptions] = {}
        for text in split_urls(self.url):
            place = str(_urls(text)[0])
            found.setdefault(place, replace(self, url=text, place=place))
        return list(found.values())

    def secret(self) -> str | None:
        """Return the password or token from the option, file or environment variable.

        Raises `AmqpOptionError`.
        """
        if self.password_file is not None:
            try:
                return Path(self.password_file).read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise AmqpOptionError(
                    f"option 'passwordFile': {self.password_file!r} cannot be read: {reason}. It"
                    " has to be on every executor"
                ) from None
        if self.password_env is not None:
            value = os.environ.get(self.password_env)
            if value is None:
                raise AmqpOptionError(
                    f"option 'passwordEnv': there is no environment variable"
                    f" {self.password_env!r} here. Executors have it with"
                    f" spark.executorEnv.{self.password_env}"
                )
            return value
        return self.password


def connect(settings: BrokerOptions, role: str, *, patient: bool = False) -> Connection:
    """Open a connection. The caller closes it.

    `role` is the purpose, such as ``driver``. The container-id consists of the group and the role,
    so management can tell connections apart. If `patient`, an unreachable broker is tried again
    until the connect timeout: use it if the broker was reachable a moment ago.

    Raises `AmqpOptionError` for a secret or a certificate that cannot be read,
    `AmqpUnreachableError` if the broker cannot be reached, and `AmqpSourceError` if it refuses the
    login.
    """
    from ferrymq import AuthenticationError, TransportError
    from ferrymq.blocking.connection import connect_beside_loop
    from ferrymq.errors import ConnectionClosed

    urls = _with_user(settings)
    urls.insert(0, urls.pop(_LAST.get(settings.place, 0)))
    sasl, token = _credentials(settings)
    context = _context(settings)
    end = time.monotonic() + settings.timeout
    pause = _PAUSE
    while True:
        left = max(end - time.monotonic(), 0.1)
        try:
            # The driver may be a notebook, whose cells run inside an event loop.
            connection = connect_beside_loop(
                urls,
                container_id=f"{settings.group_id}/{role}/{uuid4().hex[:8]}",
                sasl=sasl if sasl is not None else "auto",
                token=token,
                ssl=context,
                timeout=left if patient else settings.timeout,
                max_frame_size=_MAX_FRAME_SIZE,
                # Readers and writers begin again with a new connection.
                reconnect=False,
            )
        except AuthenticationError as error:
            who = _user(settings) or "a client without user name"
            refused = (
                f"{settings.place} refuses the login of {who!r}: {error.reason}. See the options"
                " 'username', 'password' and 'sasl.mechanism'"
            )
            if not error.lost:
                raise AmqpSourceError(refused) from None
            # The broker may have stopped during the login.
            if not patient or time.monotonic() + pause >= end:
                raise AmqpUnreachableError(refused) from None
        except (TransportError, ConnectionClosed, TimeoutError) as error:
            certificate = isinstance(error.__cause__, ssl.SSLCertVerificationError)
            if certificate:
                # Another attempt would fail in the same way.
                raise AmqpSourceError(_unreachable(settings, error, certificate)) from None
            if not patient or time.monotonic() + pause >= end:
                raise AmqpUnreachableError(_unreachable(settings, error, certificate)) from None
        except ValueError as error:
            raise AmqpOptionError(f"{settings.place}: {error}") from None
        else:
            _check_broker(connection, settings)
            _note_broker(connection, settings)
            _mention_unused(connection, settings)
            return _let_in(connection, settings)
        # The broker may be restarting; nothing announces when it is ready.
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def connect_driver(
    settings: BrokerOptions, product: str, *, patient: bool
) -> tuple[Connection, ManagementClient]:
    """Open the driver's connection, and a client of the management node over it.

    Raises as `connect` does, and `AmqpSourceError` if `product` has no management node there.
    """
    from ferrymq import LinkDetached

    connection = connect(settings, "driver", patient=patient)
    try:
        return connection, connection.management(timeout=settings.timeout)
    except BaseException as error:
        connection.close()
        if not isinstance(error, LinkDetached):
            raise
        raise AmqpSourceError(
            f"{settings.place} has no node '$management': {error}. Is it {product}? See the"
            " option 'service'"
        ) from None


def _check_broker(connection: Connection, settings: BrokerOptions) -> None:
    """Raise `AmqpSourceError` if the connection leads to another broker than the settings name:
    offsets and fences of one of them mean nothing to the other."""
    if not settings.broker:
        return
    found = identity_of(connection.remote_properties).id
    if found != settings.broker:
        url = connection.url
        connection.close()
        raise AmqpSourceError(
            f"option 'url': {url} led to the broker {settings.broker!r} when the query began, and"
            f" leads to {found!r} now: it was replaced, or was started again without a store."
            " Start the query again, which then finds the brokers that are there"
        )


def _note_broker(connection: Connection, settings: BrokerOptions) -> None:
    """Note which of several URLs works, and which cluster the broker there names.

    Raises `AmqpSourceError` if the URLs lead to different brokers: offsets and fences of one of
    them mean nothing to the other.
    """
    from ferrymq.aio.failover import CLUSTER

    urls = _urls(settings.url)
    if len(urls) == 1:
        return
    for number, one in enumerate(urls):
        if one.place == connection.url.place:
            _LAST[settings.place] = number
    found = connection.remote_properties.get(CLUSTER)
    if not isinstance(found, str):
        return
    known, first = _CLUSTERS.setdefault(settings.place, (found, str(connection.url)))
    if found != known:
        url = connection.url
        connection.close()
        raise AmqpSourceError(
            f"option 'url': {url} is a broker of the cluster {found!r}, and {first} was one of the"
            f" cluster {known!r}; give URLs of one broker"
        )


def _mention_unused(connection: Connection, settings: BrokerOptions) -> None:
    """Warn, once per process and broker, if a ferrymq broker did not check the given user."""
    user = _user(settings)
    unused = connection.remote_properties.get("ferrymq:authenticated") is False
    if user is None or not unused or settings.place in _MENTIONED:
        return
    _MENTIONED.add(settings.place)
    LOGGER.warning(
        "%s accepts clients without a login: the given credentials of the user %r are not"
        " checked",
        settings.place,
        user,
    )


def _let_in(connection: Connection, settings: BrokerOptions) -> Connection:
    """Send the tokens of a connection string, if there is one, and return the connection."""
    from ferrymq import AmqpError

    if settings.shared_access is None:
        return connection
    try:
        settings.shared_access.put(connection, settings.place, settings.timeout)
    except (AmqpError, TimeoutError) as error:
        connection.close()
        raise AmqpUnreachableError(_unreachable(settings, error, False)) from None
    except BaseException:
        connection.close()
        raise
    return connection


def client_arguments(settings: BrokerOptions) -> tuple[str, ConnectionArguments]:
    """Return URL and arguments for `ferrymq.connect`, for code that uses AMQP directly.

    They contain secrets. Raises `AmqpOptionError` for a secret or a file that cannot be read.
    """
    sasl, token = _credentials(settings)
    arguments: ConnectionArguments = {
        "ssl": _context(settings),
        "timeout": settings.timeout,
        "token": token,
    }
    if sasl is not None:
        arguments["sasl"] = sasl
    return ",".join(_with_user(settings)), arguments


def _unreachable(settings: BrokerOptions, error: Exception, certificate: bool) -> str:
    if certificate:
        return (
            f"{settings.place}: {error}. The authority that signed the certificate is given by the"
            " option 'tls.ca'"
        )
    if isinstance(error, TimeoutError):
        reason = f"no answer within {settings.timeout:g} s (option 'connectTimeoutMs')"
    else:
        reason = str(error)
    return f"there is no connection to {settings.place} (option 'url'): {reason}"


def _urls(text: str) -> list[Url]:
    from ferrymq.url import parse_urls

    try:
        return parse_urls(text)
    except ValueError as error:
        raise AmqpOptionError(
            f"option 'url': {error}; an example is amqps://broker.example:5671"
        ) from None


def _user(settings: BrokerOptions) -> str | None:
    return settings.username or _urls(settings.url)[0].username


def _with_user(settings: BrokerOptions) -> list[str]:
    """Return the URLs with the user in them. `_credentials` passes the password to a mechanism."""
    from urllib.parse import quote

    from ferrymq.url import split_urls

    texts = split_urls(settings.url)
    if settings.username is None:
        return texts
    user = quote(settings.username, safe="")
    secret = settings.secret() if settings.mechanism == "auto" else None
    password = "" if secret is None else f":{quote(secret, safe='')}"
    parts = [text.split("://", 1) for text in texts]
    return [f"{scheme}://{user}{password}@{rest}" for scheme, rest in parts]


def _credentials(settings: BrokerOptions) -> tuple[SaslMechanism | None, str | None]:
    """Return a mechanism or a token; neither if the URL is enough."""
    from ferrymq.engine import Anonymous, External, Plain, Scram

    mechanism = settings.mechanism
    if mechanism == "auto":
        return None, None
    if mechanism == "ANONYMOUS":
        return Anonymous(), None
    url = _urls(settings.url)[0]
    user = settings.username if settings.username is not None else url.username
    if mechanism == "EXTERNAL":
        return External(user), None
    secret = settings.secret() or url.password or ""
    if mechanism == "OAUTHBEARER":
        return None, secret
    try:
        if mechanism == "PLAIN":
            return Plain(user or "", secret), None
        return Scram(mechanism, user or "", secret), None
    except ValueError as error:
        raise AmqpOptionError(f"option 'sasl.mechanism': {mechanism}: {error}") from None


def _context(settings: BrokerOptions) -> ssl.SSLContext | None:
    if not _urls(settings.url)[0].secure:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except OSError as error:
        raise AmqpOptionError(_unreadable("tls.ca", settings.ca, error)) from None
    if not settings.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert is not None:
        try:
            context.load_cert_chain(settings.cert, settings.key)
        except OSError as error:
            raise AmqpOptionError(_unreadable("tls.cert", settings.cert, error)) from None
    return context


def _unreadable(name: str, path: str | None, error: OSError) -> str:
    reason = error.strerror or str(error)
    return (
        f"option {name!r}: {shown(path)} cannot be used: {reason}. It has to be a PEM file, on"
        " every executor"
    )
