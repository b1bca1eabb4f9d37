"""Users, passwords, certificates and tokens: ``[security]``."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from ferrymq_broker.config.certificates import CertificateRule
from ferrymq_broker.config.paths import File
from ferrymq_broker.config.section import Section
from ferrymq_broker.config.tokens import Issuers, SharedAccessKeys, Tokens


class Security(Section):
    """``[security]``: who may connect.

    If the section names no users, loopback listeners accept every name and password, and clients
    without a name; other listeners need users or `anonymous`. With users, here or in the
    `users_file` that ``ferrymq user`` writes, only these users may connect, and with `anonymous`
    clients that give no name.

    `rules_file` is the file of the rules that are made while the broker runs.

    `groups` are the users of each group. `plain_without_tls` accepts unencrypted passwords from
    other machines, although everybody on the network can read them. After `failed_logins` in a
    minute, from one address or for one user, further logins are refused for a while; with 0 never.

    `jwt` are the issuers whose tokens are accepted, `shared_access_key` the keys with which clients
    sign tokens; `tokens` is for tokens sent over an open connection.
    """

    anonymous: bool | None = None
    users: dict[str, SecretStr] = Field(default={})
    users_file: File | None = None
    rules_file: File | None = None
    groups: dict[str, list[str]] = Field(default={})
    plain_without_tls: bool = False
    # The user of a client certificate; the first rule that matches decides.
    certificate_rule: list[CertificateRule] = Field(default=[])
    failed_logins: int = Field(default=10, ge=0, le=1_000_000)
    jwt: Issuers = Field(default=[])
    shared_access_key: SharedAccessKeys = Field(default=[])
    tokens: Tokens = Field(default_factory=Tokens.defaults)

    @property
    def names_somebody(self) -> bool:
        """Whether the section names users; then no other client may connect."""
        named = self.users or self.certificate_rule or self.jwt
        return bool(named) or self.users_file is not None

    @property
    def takes_tokens(self) -> bool:
        """Whether clients may send tokens; then every right must be given by a rule or a token."""
        return bool(self.jwt or self.shared_access_key)

    @field_validator("users")
    @classmethod
    def _check_users(cls, users: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, password in users.items():
            if not name or "\0" in name or "\0" in password.get_secret_value():
                raise ValueError(
                    "a user name cannot be empty; names and passwords cannot contain NUL"
                )
        return users

    @field_validator("groups")
    @classmethod
    def _check_groups(cls, groups: dict[str, list[str]]) -> dict[str, list[str]]:
        if not all(groups) or not all(all(names) for names in groups.values()):
            raise ValueError("the name of a group or a user cannot be empty")
        return groups

    def groups_of(self) -> dict[str, frozenset[str]]:
        """Return the groups of every user that is in at least one."""
        users: dict[str, set[str]] = {}
        for group, names in self.groups.items():
            for name in names:
                users.setdefault(name, set()).add(group)
        return {name: frozenset(groups) for name, groups in users.items()}
