"""Who may connect: ``[security]``."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from ferrymq_broker.config.section import Section


class Security(Section):
    """``[security]``: who may connect.

    Without users every name and password is good on loopback listeners, and so is giving none:
    beyond loopback, one of the two must be stated. With users only they get in, unless
    `anonymous` lets in clients that give no name as well.
    """

    anonymous: bool | None = None
    users: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("users")
    @classmethod
    def _check_users(cls, users: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, password in users.items():
            if not name or "\0" in name or "\0" in password.get_secret_value():
                raise ValueError("a user name is not empty, and neither it nor a password has NUL")
        return users
