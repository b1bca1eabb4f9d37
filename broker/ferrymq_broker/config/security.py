"""Who may connect: ``[security]``."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from ferrymq_broker.config.certificates import CertificateRule
from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.tokens import Issuers, SharedAccessKeys, Tokens


class Security(Section):
    """``[security]``: who may connect.

    Where nobody is named, every name and password is good on loopback listeners, and so is giving
    none: beyond loopback, one of the two must be stated. With users, here or in the `users_file`
    that ``ferrymq user`` writes, only they get in, unless `anonymous` lets in clients that give no
    name as well.

    `groups` are names of users by the group they are in. `plain_without_tls` lets passwords come
    from other machines in the clear, for everybody on the way to read. After `failed_logins` in a
    minute, from one address or for one user, further ones are refused for a while; 0 never does.

    `jwt` are the issuers of tokens that are believed, `shared_access_key` the keys that clients
    sign tokens with; `tokens` is about those that come when a connection is open.
    """

    anonymous: bool | None = None
    users: dict[str, SecretStr] = Field(default_factory=dict)
    users_file: File | None = None
    groups: dict[str, list[str]] = Field(default_factory=dict)
    plain_without_tls: bool = False
    # Which users client certificates are; the first that matches.
    certificate_rule: list[CertificateRule] = Field(default_factory=list)
    failed_logins: int = Field(default=10, ge=0, le=1_000_000)
    jwt: Issuers = Field(default_factory=list)
    shared_access_key: SharedAccessKeys = Field(default_factory=list)
    tokens: Tokens = Field(default_factory=Tokens)

    @property
    def names_somebody(self) -> bool:
        """Whether it says who may connect: then nobody else may."""
        named = self.users or self.certificate_rule or self.jwt
        return bool(named) or self.users_file is not None

    @property
    def takes_tokens(self) -> bool:
        """Whether clients may bring tokens: then nothing is allowed that nobody gives."""
        return bool(self.jwt or self.shared_access_key)

    @field_validator("users")
    @classmethod
    def _check_users(cls, users: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, password in users.items():
            if not name or "\0" in name or "\0" in password.get_secret_value():
                raise ValueError("a user name is not empty, and neither it nor a password has NUL")
        return users

    @field_validator("groups")
    @classmethod
    def _check_groups(cls, groups: dict[str, list[str]]) -> dict[str, list[str]]:
        if not all(groups) or not all(all(names) for names in groups.values()):
            raise ValueError("neither a group nor a user has an empty name")
        return groups

    def groups_of(self) -> dict[str, frozenset[str]]:
        """The groups of every user who is in one."""
        users: dict[str, set[str]] = {}
        for group, names in self.groups.items():
            for name in names:
                users.setdefault(name, set()).add(group)
        return {name: frozenset(groups) for name, groups in users.items()}
