"""Users of client certificates: ``[[security.certificate-rule]]``."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from ferrymq_broker.config.section import Section

_GROUP = re.compile(r"\{(\d*)\}")


class CertificateRule(Section):
    """A rule for certificates with a name that the whole `pattern` matches.

    The client gets the user name `user`, in which ``{0}`` is the name and ``{1}`` the text of the
    first group of the pattern, and the groups `groups`. `name_from` chooses the name of the
    certificate that is compared; ``subject`` is the whole subject in the form of RFC 4514, for
    example ``CN=alice,OU=shipping,O=example``.
    """

    name_from: Literal["subject-cn", "subject", "san-dns", "san-email", "san-uri"] = "subject-cn"
    pattern: str = Field(default=".+", min_length=1)
    user: str = Field(default="{0}", min_length=1)
    groups: list[str] = Field(default=[])

    @model_validator(mode="after")
    def _check(self) -> CertificateRule:
        try:
            groups = re.compile(self.pattern).groups
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{self.pattern!r} is not a regular expression: {error}") from None
        for number in _GROUP.findall(self.user):
            if not number or int(number) > groups:
                raise ValueError(
                    f"{self.user!r}: the pattern has no group {number or 'without number'}"
                )
        if not all(self.groups):
            raise ValueError("the name of a group cannot be empty")
        return self

    def fill(self, match: re.Match[str]) -> str:
        """Return the user name for a name that the pattern has matched."""
        return _GROUP.sub(lambda group: match[int(group[1])] or "", self.user)
