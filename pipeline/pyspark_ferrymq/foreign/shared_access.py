"""Connection strings of Event Hubs, and the tokens made from their keys.

    Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=KEY;SharedAccessKey=SECRET

`EntityPath` is the hub of the key. ``UseDevelopmentEmulator=true`` is for a server without TLS,
whose endpoint may have a port. A token is a shared access signature: it names an address and an
expiry time, signed with the key. A new connection sends tokens to the node ``$cbs``, one for each
hub that the options name.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError

if TYPE_CHECKING:
    from ferrymq.blocking import Connection
    from pyspark_ferrymq.options.option_values import Values

OPTION: Final = "connectionString"
_SHAPE: Final = "Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=SECRET"
_TYPE: Final = "servicebus.windows.net:sastoken"
# Seconds until a token expires. The service then ends the connection, and another one is opened.
_LIFETIME: Final = 86_400
# Options that contradict a connection string.
_OTHERS: Final = ("url", "username", "password", "passwordFile", "passwordEnv", "sasl.mechanism")
_PORTS: Final = {"amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """A host and a key for it. `entities` are the addresses that tokens are for; none means all."""

    url: str
    host: str
    key_name: str
    key: str = field(repr=False)
    entities: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Values) -> SharedAccess | None:
        """Parse the option `connectionString`; return None if it is missing.

        Raises `AmqpOptionError`, which never quotes the key.
        """
        text = given.text(OPTION)
        if text is None:
            return None
        for name in given.given(_OTHERS):
            given.at_most_one(OPTION, name)
        parts: dict[str, str] = {}
        for part in text.split(";"):
            name, sign, value = part.strip().partition("=")
            if sign:
                parts[name.strip().lower()] = value.strip()
            elif name:
                raise _wrong("it has a part that is not NAME=VALUE")
        for name in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey"):
            if not parts.get(name.lower()):
                raise _wrong(f"{name} is missing")
        endpoint = urlsplit(parts["endpoint"])
        try:
            host, port = endpoint.hostname, endpoint.port
        except ValueError:
            host = port = None
        if endpoint.scheme != "sb" or not host:
            raise _wrong("its Endpoint is not sb://HOST/")
        plain = parts.get("usedevelopmentemulator", "").lower() == "true"
        scheme = "amqp" if plain else "amqps"
        named = parts.get("entitypath")
        return cls(
            url=f"{scheme}://{host}:{port or _PORTS[scheme]}",
            host=endpoint.netloc,
            key_name=parts["sharedaccesskeyname"],
            key=parts["sharedaccesskey"],
            entities=(named,) if named else _entities(given),
        )

    def token(self, audience: str, expiry: int) -> str:
        """Return a shared access signature for a URI, valid to `expiry`, in seconds since 1970."""
        uri = quote(audience, safe="")
        signed = hmac.new(self.key.encode(), f"{uri}\n{expiry}".encode(), hashlib.sha256)
        signature = quote(b64encode(signed.digest()), safe="")
        name = quote(self.key_name, safe="")
        return f"SharedAccessSignature sr={uri}&sig={signature}&se={expiry}&skn={name}"

    def put(self, connection: Connection, place: str, timeout: float) -> None:
        """Send tokens for all `entities`. Raises `AmqpSourceError` if one is refused."""
        from ferrymq import LinkDetached, ManagementError

        try:
            management = connection.management("$cbs", replies="link", timeout=timeout)
        except LinkDetached as error:
            raise AmqpSourceError(
                f"option {OPTION!r}: {place} has no node '$cbs' that takes its tokens: {error}"
            ) from None
        expiry = int(time.time()) + _LIFETIME
        with management:
            for entity in self.entities or ("",):
                audience = f"sb://{self.host}/{entity}"
                try:
                    management.request("put-token", _TYPE, audience, self.token(audience, expiry))
                except ManagementError as error:
                    raise AmqpSourceError(
                        f"option {OPTION!r}: {place} refuses the token of the key"
                        f" {self.key_name!r} for {audience}: {error.description} ({error.status})"
                    ) from None


def _entities(given: Values) -> tuple[str, ...]:
    """Return the hubs that the options name, to read from or to write to."""
    subscribed = given.text("subscribe")
    if subscribed is not None:
        return tuple(name.strip() for name in subscribed.split(",") if name.strip())
    if given.has("assign"):
        return tuple(given.json("assign", '{"hub":[0,1]}'))
    address = given.text("address")
    # An address of a partition begins with its hub.
    return () if address is None else (address.split("/", 1)[0],)


def _wrong(reason: str) -> AmqpOptionError:
    return AmqpOptionError(f"option {OPTION!r}: {reason}; it looks like {_SHAPE}")
