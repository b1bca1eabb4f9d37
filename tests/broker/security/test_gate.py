"""Who gets in where: nobody named, users named, on this machine and beyond."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from ferrymq.engine.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS
from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.security import Security
from ferrymq_broker.connections.authentication import ClientTransport, Login
from ferrymq_broker.security.authenticator_factory import make_authenticators
from ferrymq_broker.security.authenticators import Authenticators, LoginRefusedError
from ferrymq_types.security import SaslCode
from tests.broker.security.logins import AFAR, HERE, SAFE, log_in


def gate_of(**settings: object) -> Authenticators:
    """The gate of a configuration."""
    return make_authenticators(Security.model_validate(settings), lambda _: None)


USERS = {"alice": "sésame", "bob": ""}


async def test_where_nobody_is_named_this_machine_gets_in() -> None:
    authenticators = gate_of()
    assert authenticators.mechanisms(HERE) == ["PLAIN", "ANONYMOUS"]
    assert not authenticators.is_required(HERE)
    assert (await log_in(authenticators, "anyone", "anything", HERE)).user == "anyone"
    nobody = await log_in(authenticators, None, None, HERE, "ANONYMOUS")
    assert nobody.identity is not None and nobody.user is None


@pytest.mark.parametrize("transport", [AFAR, SAFE])
async def test_where_nobody_is_named_nobody_else_gets_in(transport: ClientTransport) -> None:
    authenticators = gate_of()
    assert authenticators.mechanisms(transport) == []
    assert authenticators.is_required(transport)
    for mechanism in ("PLAIN", "ANONYMOUS", "SCRAM-SHA-256", "EXTERNAL"):
        verdict = await log_in(authenticators, "anyone", "anything", transport, mechanism)
        assert (verdict.identity, verdict.code) == (None, SaslCode.AUTH)


async def test_anonymous_can_be_switched_off_where_nobody_is_named() -> None:
    authenticators = gate_of(anonymous=False)
    assert authenticators.mechanisms(HERE) == ["PLAIN"]
    assert authenticators.is_required(HERE)
    assert (await log_in(authenticators, None, None, HERE, "ANONYMOUS")).identity is None


async def test_anonymous_everywhere() -> None:
    authenticators = gate_of(anonymous=True)
    assert authenticators.mechanisms(AFAR) == ["ANONYMOUS"]
    assert (await log_in(authenticators, None, None, AFAR, "ANONYMOUS")).identity is not None
    # Anybody may come, but nobody may choose who he is.
    assert (await log_in(authenticators, "alice", "x", AFAR)).identity is None


@pytest.mark.parametrize("transport", [HERE, SAFE])
@pytest.mark.parametrize(
    ("name", "password", "welcome"),
    [
        ("alice", "sésame", True),
        ("bob", "", True),
        ("alice", "", False),
        ("alice", "wrong", False),
        ("Alice", "sésame", False),
        ("nobody", "sésame", False),
        ("", "", False),
    ],
)
async def test_with_users_only_they_get_in(
    transport: ClientTransport, name: str, password: str, welcome: bool
) -> None:
    authenticators = gate_of(users=USERS)
    verdict = await log_in(authenticators, name, password, transport)
    assert verdict.user == (name if welcome else None)
    assert (await log_in(authenticators, None, None, transport, "ANONYMOUS")).identity is None
    assert authenticators.is_required(transport)


async def test_users_and_whoever_says_nothing() -> None:
    authenticators = gate_of(users=USERS, anonymous=True)
    assert authenticators.mechanisms(AFAR) == [*SCRAM_MECHANISMS, "ANONYMOUS"]
    assert (await log_in(authenticators, None, None, AFAR, "ANONYMOUS")).identity is not None
    assert (await log_in(authenticators, "alice", "wrong", SAFE)).identity is None


async def test_no_password_in_the_clear_from_other_machines() -> None:
    authenticators = gate_of(users=USERS)
    assert authenticators.mechanisms(AFAR) == [*SCRAM_MECHANISMS]
    assert (
        authenticators.mechanisms(SAFE)
        == authenticators.mechanisms(HERE)
        == [*SCRAM_MECHANISMS, "PLAIN"]
    )
    refused = await log_in(authenticators, "alice", "sésame", AFAR)
    assert (refused.identity, refused.reason) == (None, "the mechanism is not offered")
    allowed = gate_of(users=USERS, **{"plain-without-tls": True})
    assert allowed.mechanisms(AFAR) == [*SCRAM_MECHANISMS, "PLAIN"]
    assert (await log_in(allowed, "alice", "sésame", AFAR)).user == "alice"


def test_keys_of_users_and_of_others_look_alike() -> None:
    authenticators = gate_of(users=USERS | {"carol": "\a"})
    known, unknown, unprepared = (
        authenticators.scram_keys("SCRAM-SHA-256", name) for name in ("alice", "nobody", "carol")
    )
    assert known is not None and unknown is not None and unprepared is not None
    assert known.iterations == unknown.iterations == unprepared.iterations == DEFAULT_ITERATIONS
    assert len(known.salt) == len(unknown.salt) == len(unprepared.salt)
    again = authenticators.scram_keys("SCRAM-SHA-256", "nobody")
    assert again is not None and again.salt == unknown.salt != unprepared.salt


async def test_a_proof_is_believed_of_those_who_are_known() -> None:
    authenticators = gate_of(users=USERS)
    proved = await log_in(authenticators, "alice", None, AFAR, "SCRAM-SHA-256")
    assert (proved.user, proved.identity and proved.identity.mechanism) == (
        "alice",
        "SCRAM-SHA-256",
    )
    assert (await log_in(authenticators, "nobody", None, AFAR, "SCRAM-SHA-256")).identity is None


async def test_groups_of_the_configuration() -> None:
    authenticators = gate_of(
        users=USERS, groups={"staff": ["alice"], "all": ["alice", "bob", "carol"]}
    )
    alice, bob = await log_in(authenticators, "alice", "sésame"), await log_in(
        authenticators, "bob", ""
    )
    assert alice.identity is not None and alice.identity.groups == {"staff", "all"}
    assert bob.identity is not None and bob.identity.groups == {"all"}


class Scripted:
    """A method whose answer is written down."""

    def __init__(self, answer: UserIdentity | Exception) -> None:
        self.answer = answer

    def mechanisms(self, transport: ClientTransport) -> list[str]:
        return ["PLAIN"]

    def scram_keys(self, mechanism: str, username: str) -> None:
        return None

    async def identify(self, login: Login) -> UserIdentity:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_several_methods_for_one_mechanism_are_asked_in_turn() -> None:
    no, yes = Scripted(LoginRefusedError("no")), Scripted(UserIdentity("ann"))
    authenticators = Authenticators([no, yes], False)
    assert authenticators.mechanisms(HERE) == ["PLAIN"]
    assert (await log_in(authenticators, "x", "y")).user == "ann"
    assert (await log_in(Authenticators([no, no], False), "x", "y")).reason == "no"


async def test_a_mistake_of_ours_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    broken = Authenticators([Scripted(ZeroDivisionError())], False)
    verdict = await log_in(broken, "x", "the password")
    assert (verdict.identity, verdict.code) == (None, SaslCode.SYS)
    assert "ZeroDivisionError" in caplog.text
    assert "the password" not in caplog.text


def test_passwords_are_not_shown() -> None:
    security = Security(users={"alice": SecretStr("geheim")})
    assert "geheim" not in repr(security) + str(security.model_dump())
