"""Connection strings of Azure Service Bus and Event Hubs, and the tokens made from their keys.

    Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=KEY;SharedAccessKey=SECRET

`EntityPath` is the queue, topic or hub of the key. In place of the key there may be a
`SharedAccessSignature`, which is a token. ``UseDevelopmentEmulator=true`` is for a server without
TLS, whose endpoint may have a port.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from ferrymq_types.transport import PORT, SECURE_PORT

SHAPE: Final = "Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=SECRET"
"""Form of a connection string, for error texts."""

_SIGNATURE: Final = "SharedAccessSignature "


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key of a namespace, queue, topic or hub, from which tokens are made."""

    name: str
    key: str = field(repr=False)

    def token(self, audience: str, expiry: int) -> str:
        """Return a shared access signature for a URI, valid to `expiry`, in seconds since 1970."""
        uri = quote(audience, safe="")
        signed = hmac.new(self.key.encode(), f"{uri}\n{expiry}".encode(), hashlib.sha256)
        signature = quote(b64encode(signed.digest()), safe="")
        name = quote(self.name, safe="")
        return f"{_SIGNATURE}sr={uri}&sig={signature}&se={expiry}&skn={name}"


@dataclass(frozen=True, slots=True)
class ConnectionString:
    """The parts of a connection string. No repr shows a secret."""

    host: str
    """The host, with the port if the endpoint has one."""
    url: str
    """The URL to connect to with AMQP."""
    key: AccessKey | None = None
    signature: str | None = field(default=None, repr=False)
    """A token, in place of the key."""
    entity: str | None = None
    """The only queue, topic or hub that the key or signature is for, if the string names one."""

    @classmethod
    def parse(cls, text: str) -> ConnectionString:
        """Parse a connection string; it may have neither a key nor a signature.

        Raises ValueError, which never quotes a secret.
        """
        parts: dict[str, str] = {}
        for part in text.split(";"):
            name, sign, value = part.strip().partition("=")
            if sign:
                parts[name.strip().lower()] = value.strip()
            elif name:
                raise ValueError(wrong("it has a part that is not NAME=VALUE"))
        if not parts.get("endpoint"):
            raise ValueError(wrong("Endpoint is missing"))
        signature = parts.get("sharedaccesssignature") or None
        if signature is not None and not signature.startswith(_SIGNATURE):
            raise ValueError(wrong("its SharedAccessSignature does not begin with that word"))
        key_name, key = parts.get("sharedaccesskeyname"), parts.get("sharedaccesskey")
        if key and not key_name:
            raise ValueError(wrong("SharedAccessKeyName is missing"))
        if key_name and not key:
            raise ValueError(wrong("SharedAccessKey is missing"))
        host, url = _endpoint(
            parts["endpoint"], parts.get("usedevelopmentemulator", "").lower() == "true"
        )
        return cls(
            host=host,
            url=url,
            key=AccessKey(key_name, key) if key_name and key else None,
            signature=signature,
            entity=parts.get("entitypath") or None,
        )


def _endpoint(text: str, plain: bool) -> tuple[str, str]:
    """Return host and URL of an endpoint."""
    try:
        endpoint = urlsplit(text)
        host, port = endpoint.hostname, endpoint.port
    except ValueError:
        raise ValueError(wrong("its Endpoint is not sb://HOST/")) from None
    if endpoint.scheme != "sb" or not host or endpoint.username is not None:
        raise ValueError(wrong("its Endpoint is not sb://HOST/"))
    scheme, usual = ("amqp", PORT) if plain else ("amqps", SECURE_PORT)
    shown = f"[{host}]" if ":" in host else host
    return endpoint.netloc, f"{scheme}://{shown}:{port or usual}"


def wrong(reason: str) -> str:
    """Return the text of an error about a connection string."""
    return f"{reason}; it looks like {SHAPE}"


def expiry_of(signature: str) -> float | None:
    """Return when a shared access signature expires, in seconds since 1970; None if it does not
    say so."""
    fields = parse_qs(signature.removeprefix(_SIGNATURE))
    told = fields.get("se", [""])[0]
    return float(told) if told.isdigit() else None
