"""The option `connectionString`: the key of a service, and its tokens for the named hubs.

`ferrymq.azure` has the format. A new connection sends tokens to the node ``$cbs``, one for each hub
that the options name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark_ferrymq.errors import AmqpOptionError, AmqpSourceError

if TYPE_CHECKING:
    from ferrymq.blocking import Connection
    from pyspark_ferrymq.options.option_values import Values

OPTION: Final = "connectionString"
_TYPE: Final = "servicebus.windows.net:sastoken"
# Seconds until a token expires. The service then ends the connection, and another one is opened.
_LIFETIME: Final = 86_400
# Options that contradict a connection string.
_OTHERS: Final = ("url", "username", "password", "passwordFile", "passwordEnv", "sasl.mechanism")


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
        from ferrymq.azure.connection_string import ConnectionString, wrong

        text = given.text(OPTION)
        if text is None:
            return None
        for name in given.given(_OTHERS):
            given.at_most_one(OPTION, name)
        try:
            parts = ConnectionString.parse(text)
            if parts.key is None:
                raise ValueError(wrong("SharedAccessKeyName is missing"))
        except ValueError as error:
            raise AmqpOptionError(f"option {OPTION!r}: {error}") from None
        return cls(
            url=parts.url,
            host=parts.host,
            key_name=parts.key.name,
            key=parts.key.key,
            entities=(parts.entity,) if parts.entity else _entities(given),
        )

    def token(self, audience: str, expiry: int) -> str:
        """Return a shared access signature for a URI, valid to `expiry`, in seconds since 1970."""
        from ferrymq.azure.connection_string import AccessKey

        return AccessKey(self.key_name, self.key).token(audience, expiry)

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
