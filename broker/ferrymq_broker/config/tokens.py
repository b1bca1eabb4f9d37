"""Accepted tokens: ``[[security.jwt]]``, ``[[security.shared-access-key]]``."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ferrymq_broker.config.access import AccessRule
from ferrymq_broker.config.paths import FOLDER
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.units import Seconds
from ferrymq_broker.values.names import DEFAULT_SPACE, MAX_ADDRESS_LENGTH

# The default: asymmetric signatures, because the key that checks them cannot make them.
ASYMMETRIC: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
SYMMETRIC: Final = ("HS256", "HS384", "HS512")

Algorithm = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
    "HS256",
    "HS384",
    "HS512",
]

_URLS: Final = ("http://", "https://")


def is_url(keys: str) -> bool:
    """Return whether keys are fetched from a URL instead of read from a file."""
    return keys.lower().startswith(_URLS)


def _check_keys(keys: str, info: ValidationInfo) -> str:
    if not is_url(keys):
        if not keys or "\0" in keys:
            raise ValueError("the path of a file, or a URL that starts with https://")
        context = info.context
        folder = context.get(FOLDER) if isinstance(context, dict) else None
        return str(folder / keys) if isinstance(folder, Path) else keys
    parts = urlsplit(keys)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL of keys takes no user and no password: the keys are public")
    if not parts.hostname:
        raise ValueError(f"{keys}: a host is missing")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError(
            f"{keys}: keys of another machine need https://, because http:// can be falsified"
        )
    return keys


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _one_or_more(value: object) -> object:
    """Make a list of a single value, because a file may leave the brackets out."""
    return [value] if isinstance(value, str | dict) else value


_Name = Annotated[str, Field(min_length=1, max_length=1024)]
_Names = Annotated[list[_Name], BeforeValidator(_one_or_more), Field(min_length=1, max_length=100)]


class Jwt(Section):
    """``[[security.jwt]]``: an issuer whose JSON Web Tokens (RFC 7519) are accepted.

    A token is valid if it is from the `issuer`, for one of `audience`, signed by one of `keys` (a
    JWKS or PEM file, or the URL of a JWKS) with one of `algorithms`, and if the present time is
    within its validity, with a tolerance of `leeway` seconds. The user name is in the claim
    `user_claim`, the user's groups in the claims `groups_claim`; a name with dots names a claim
    inside a claim. With `as_password` a client may also send a token as the password of SASL PLAIN.
    Keys of a URL are fetched again when they are older than `refresh` seconds.
    """

    issuer: _Name
    audience: _Names
    keys: Annotated[str, AfterValidator(_check_keys)]
    algorithms: Annotated[list[Algorithm], BeforeValidator(_one_or_more), Field(min_length=1)] = (
        Field(default_factory=lambda: list(ASYMMETRIC))  # type: ignore[arg-type]
    )
    leeway: Annotated[Seconds, Field(ge=0, le=600)] = 30.0
    user_claim: _Name = "sub"
    groups_claim: Annotated[list[_Name], BeforeValidator(_one_or_more), Field(max_length=20)] = (
        Field(default=[])
    )
    as_password: bool = False
    refresh: Annotated[Seconds, Field(ge=60)] = 3600.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        symmetric = [name for name in self.algorithms if name in SYMMETRIC]
        if symmetric and len(symmetric) < len(self.algorithms):
            raise ValueError(
                f"{symmetric[0]} is symmetric, others are not; the algorithms of one issuer "
                "are either all symmetric or all asymmetric"
            )
        if symmetric and is_url(self.keys):
            raise ValueError(f"{symmetric[0]} needs a secret key, and keys at a URL are not secret")
        return self


# The rights of the broker for those that keys of Azure's services have.
RIGHTS_OF_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "send": ("send",),
    "listen": ("receive", "browse", "dead-letter"),
    "manage": ("send", "receive", "browse", "dead-letter", "manage", "create", "delete"),
}


class SharedAccessKey(Section):
    """``[[security.shared-access-key]]``: a key with which clients sign tokens for nodes.

    Such a token gives the rights `may` at the addresses `where` in the `virtual_host`, and those
    that rules of any virtual host give to ``key:NAME``. `rights` may say ``send``, ``listen`` and
    ``manage`` instead of `may`. A key with an `entity` is for that node alone, and what belongs to
    it; rules call it ``key:ENTITY#NAME``. With `secondary` there are two keys, so that one stays in
    use while the other is replaced.
    """

    name: Annotated[str, Field(min_length=1, max_length=256)]
    primary: SecretStr
    secondary: SecretStr | None = None
    may: Annotated[list[str], BeforeValidator(_one_or_more)] = Field(default=[])
    rights: Annotated[list[Literal["send", "listen", "manage"]], BeforeValidator(_one_or_more)] = (
        Field(default=[])
    )
    where: Annotated[list[str], BeforeValidator(_one_or_more)] = Field(
        default_factory=lambda: ["*"]
    )
    entity: str = Field(default="", max_length=MAX_ADDRESS_LENGTH)
    virtual_host: _Name = DEFAULT_SPACE

    @field_validator("primary", "secondary")
    @classmethod
    def _check_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < 8:
            raise ValueError("the key is too easy to guess: use at least 8 characters, better 32")
        return key

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.may and self.rights:
            raise ValueError("rights are a short form of may: use one of the two")
        if self.entity and "where" in self.model_fields_set:
            raise ValueError("a key with an entity is for that alone: leave out where")
        self.access_rule(self.entity)
        return self

    @property
    def id(self) -> str:
        """The name of the key in rules and in the log."""
        return f"{self.entity}#{self.name}" if self.entity else self.name

    def access_rule(self, entity: str) -> AccessRule | None:
        """Return the rule for the key's own rights; None if the key has no rights of its own.
        `entity` is the native address of its entity, if it has one."""
        may = self.may or list(
            dict.fromkeys(each for right in self.rights for each in RIGHTS_OF_KEYS[right])
        )
        if not may:
            return None
        where = [entity] if entity else self.where
        asked = {"who": [f"key:{self.id}"], "may": may, "where": where}
        try:
            return AccessRule.model_validate(asked)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ValueError(reason) from None


class Tokens(Section):
    """``[security.tokens]``: limits for tokens that clients send over an open connection.

    A client that has no rights without a token must send one within `deadline` seconds. A
    connection has at most `limit` tokens, one for each address.
    """

    deadline: Annotated[Seconds, Field(gt=0)] = 20.0
    limit: int = Field(default=256, ge=1, le=100_000)


def _check_issuers(issuers: list[Jwt]) -> list[Jwt]:
    names = [each.issuer for each in issuers]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the issuer {name!r} is declared twice")
    return issuers


def _check_names(keys: list[SharedAccessKey]) -> list[SharedAccessKey]:
    seen: set[str] = set()
    secrets: dict[tuple[str, str], str] = {}
    for key in keys:
        if key.id in seen:
            raise ValueError(
                f"there are two keys {key.id!r}; one key may have a primary and a secondary"
            )
        seen.add(key.id)
        for secret in (key.primary, key.secondary):
            if secret is not None:
                other = secrets.setdefault((key.name, secret.get_secret_value()), key.id)
                if other != key.id:
                    raise ValueError(
                        f"the keys {other!r} and {key.id!r} have the same secret, so that tokens "
                        "do not tell them apart"
                    )
    return keys


# One table, or several.
Issuers = Annotated[
    list[Jwt], BeforeValidator(_one_or_more), Field(max_length=100), AfterValidator(_check_issuers)
]
SharedAccessKeys = Annotated[
    list[SharedAccessKey],
    BeforeValidator(_one_or_more),
    Field(max_length=1000),
    AfterValidator(_check_names),
]
