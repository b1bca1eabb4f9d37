"""The identity of a subscription: its owner and its name.

A durable subscription is found by its authenticated user, its container-id and the name of the link
(AMQP 1.0 §2.6.1). The name of a shared subscription is the link name up to the first ``|``, because
clients number the links to one subscription after it. With the capability ``global`` only the name
counts, whatever the user and container.

| subscription | its name |
|---|---|
| durable | ``CONTAINER/LINK``, ``USER@CONTAINER/LINK`` |
| durable, shared, global; declared | ``NAME`` |
| shared, not durable | ``~CONTAINER/NAME``, ``~/NAME`` if it is global |
| neither | ``~TOKEN``, at random |

`%`, `/`, `@` and `~` are percent-encoded in a user, in a container and in a name that stands alone,
and ``::`` everywhere. So no two subscriptions have the same name, and no name is mistaken for
another address.
"""

from __future__ import annotations

import secrets
from typing import Final, final

from ferrymq_broker.nodes.link_terms import SourceTerms
from ferrymq_broker.values.names import PART

# 144 random bits.
_TOKEN_BYTES: Final = 18


@final
class SubscriptionIdentity:
    """The identity of a subscription with these terms.

    `kept` is whether the subscription outlives its links: the terminus is durable, or does not
    expire at once when its link is detached (AMQP 1.0 §3.5.5–6). A terminus that is not durable and
    expires with its session, the default, is not kept: clients ask for a plain subscription that
    way.
    """

    __slots__ = ("kept", "shared", "everywhere", "label", "key")

    def __init__(self, terms: SourceTerms) -> None:
        party = terms.party
        policy = terms.expiry_policy
        self.kept: bool = (
            terms.durable > 0
            or terms.timeout > 0
            or policy == "never"
            or policy == "connection-close"
        )
        self.shared: bool = "shared" in terms.capabilities
        self.everywhere: bool = self.shared and "global" in terms.capabilities
        name = terms.link_name
        if self.shared:
            name = name.partition("|")[0]
        self.label: str = name
        self.key: str = (
            global_key(name) if self.everywhere else own_key(party.user, party.container_id, name)
        )

    def name(self, terms: SourceTerms) -> str:
        """Return the name of the subscription: a new random name if it is neither durable nor
        shared."""
        if not self.kept and not self.shared:
            return f"~{secrets.token_urlsafe(_TOKEN_BYTES)}"
        label = self.label
        if self.everywhere:
            return public_name(label) if self.kept else f"~/{_colons(label)}"
        party = terms.party
        owner = escape(party.container_id)
        if party.user is not None:
            owner = f"{escape(party.user)}@{owner}"
        name = _colons(f"{owner}/{label}")
        return name if self.kept else f"~{name}"


def global_key(name: str) -> str:
    """Return the identity of a global subscription."""
    return f"global\0{name}"


def topic_key(topic: str, name: str) -> str:
    """Return the identity of a declared subscription that only its address names, because a
    subscription of another topic has the global identity."""
    return f"topic\0{topic}\0{name}"


def public_name(name: str) -> str:
    """Return the name of a global subscription."""
    return _colons(escape(name))


def is_open_to(name: str, user: str | None) -> bool:
    """Return whether a subscription of this name would be global, or would belong to this user."""
    label = name.removeprefix("~")
    owner, slash, _ = label.partition("/")
    if not slash:
        # A random name belongs to one link, whatever its user.
        return label == name
    if not owner:
        return True
    who, at, _ = owner.partition("@")
    return user is None if not at else user is not None and who == _colons(escape(user))


def escape(text: str) -> str:
    """Return the text with the separators of names encoded."""
    return text.replace("%", "%25").replace("/", "%2F").replace("@", "%40").replace("~", "%7E")


def own_key(user: str | None, container: str, name: str) -> str:
    """Return the identity of a subscription of one container."""
    # A user name has no NUL; if a container-id has one, the length differs.
    who = "" if user is None else f"={user}"
    return f"own\0{who}\0{len(container)}\0{container}\0{name}"


def _colons(name: str) -> str:
    name = name.replace(PART, "%3A%3A")
    return "%3A" + name[1:] if name.startswith(":") else name
