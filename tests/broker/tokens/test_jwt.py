"""JSON Web Tokens: which are good, and what they say of their bearer (RFC 7519, RFC 8725)."""

from __future__ import annotations

import base64
import hmac
import json
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, RSAKey
from pydantic import ValidationError

from ferrymq_broker.access.identity import UserIdentity
from ferrymq_broker.config.security import Security
from ferrymq_broker.config.tokens import ASYMMETRIC
from ferrymq_broker.security.token_refusal import TokenRefusedError
from ferrymq_broker.security.tokens import TokenVerifier, make_verifier
from tests.broker.tokens.makers import (
    AUDIENCE,
    ISSUER,
    NOW,
    TestClock,
    claims,
    ec_key,
    ed_key,
    jwks,
    make_jwt,
    make_verifier_for,
    part,
    rsa_key,
)


@pytest.fixture
def verifier(tmp_path: Path) -> TokenVerifier:
    return make_verifier_for(tmp_path)


def refused(verifier: TokenVerifier, token: str) -> str:
    """Why a token is refused: nothing of it is said."""
    with pytest.raises(TokenRefusedError) as raised:
        verifier.check_jwt(token)
    for piece in token.split("."):
        assert not piece or len(piece) < 8 or piece not in str(raised.value)
    return str(raised.value)


def test_who_a_token_is_about(verifier: TokenVerifier) -> None:
    identity = verifier.check_jwt(make_jwt(), "OAUTHBEARER")
    assert isinstance(identity, UserIdentity)
    assert (identity.user, identity.key) == ("alice", "")
    assert (identity.mechanism, identity.expires) == ("OAUTHBEARER", NOW + 3600.0)
    assert identity.groups == frozenset()
    assert identity.claims["iss"] == {ISSUER}


@pytest.mark.parametrize("alg", ["EdDSA", "Ed25519"])
def test_edwards_curves(verifier: TokenVerifier, alg: str) -> None:
    assert verifier.check_jwt(make_jwt(ed_key(), alg)).user == "alice"


@pytest.mark.parametrize("alg", ["RS256", "RS512", "PS256", "PS384"])
def test_rsa(tmp_path: Path, alg: str) -> None:
    verifier = make_verifier_for(tmp_path, keys=jwks(ec_key(), rsa_key()))
    assert verifier.check_jwt(make_jwt(rsa_key(), alg)).user == "alice"


# -- signatures that prove nothing -------------------------------------------------------------


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE"])
@pytest.mark.parametrize("signature", ["", "c2ln"])
def test_no_signature(verifier: TokenVerifier, alg: str, signature: str) -> None:
    token = f"{part({'alg': alg, 'kid': 'ec'})}.{part(claims())}.{signature}"
    assert "algorithms" in refused(verifier, token)


def hs256(head: dict[str, object], secret: bytes) -> str:
    signed = f"{part({'alg': 'HS256', **head})}.{part(claims())}"
    digest = hmac.digest(secret, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


@pytest.mark.parametrize("kind", ["pem", "der", "jwk", "n"])
def test_a_public_key_taken_for_a_secret(tmp_path: Path, kind: str) -> None:
    """The server has a public key, and is told that it is a secret (RFC 8725 §2.1)."""
    key = rsa_key()
    secret = {
        "pem": key.as_pem(private=False),
        "der": key.as_der(private=False),
        "jwk": json.dumps(key.as_dict(private=False)).encode(),
        "n": str(key.as_dict(private=False)["n"]).encode(),
    }[kind]
    for number, keys in enumerate((jwks(key), key.as_pem(private=False).decode())):
        folder = tmp_path / str(number)
        folder.mkdir()
        verifier = make_verifier_for(folder, keys=keys)
        assert "algorithms" in refused(verifier, hs256({"kid": "rsa"}, secret))
        assert "algorithms" in refused(verifier, hs256({}, secret))


def test_no_configuration_mixes_secrets_and_public_keys(tmp_path: Path) -> None:
    def jwt_of(**table: object) -> None:
        issuer = {"issuer": ISSUER, "audience": AUDIENCE, "keys": "keys.json", **table}
        Security.model_validate({"jwt": issuer})

    jwt_of(algorithms=["HS256", "HS512"])
    with pytest.raises(ValidationError, match="either all symmetric"):
        jwt_of(algorithms=["RS256", "HS256"])
    with pytest.raises(ValidationError, match="secret"):
        jwt_of(algorithms="HS256", keys="https://login.example/jwks")
    for never in ("none", "A256KW", "ES256K", ""):
        with pytest.raises(ValidationError):
            jwt_of(algorithms=[never])
    assert not any(name.startswith("HS") or name == "none" for name in ASYMMETRIC)


def test_a_secret_that_was_asked_for(tmp_path: Path) -> None:
    secret = b"0123456789abcdef0123456789abcdef"
    keys = json.dumps({"keys": [OctKey.import_key(secret, {"kid": "s"}).as_dict()]})
    verifier = make_verifier_for(tmp_path, keys=keys, algorithms="HS256")
    assert verifier.check_jwt(hs256({"kid": "s"}, secret)).user == "alice"
    assert "signature" in refused(verifier, hs256({"kid": "s"}, b"x" * 32))
    assert "algorithms" in refused(verifier, make_jwt())


def test_an_algorithm_that_was_not_asked_for(tmp_path: Path) -> None:
    verifier = make_verifier_for(tmp_path, algorithms=["EdDSA"])
    assert "algorithms" in refused(verifier, make_jwt())
    assert verifier.check_jwt(make_jwt(ed_key(), "EdDSA")).user == "alice"


def test_a_key_that_is_for_another_algorithm(tmp_path: Path) -> None:
    key = ECKey.generate_key("P-256", {"kid": "ec", "alg": "ES384"})
    verifier = make_verifier_for(tmp_path, keys=jwks(key))
    plain = ECKey.import_key({**key.as_dict(private=True), "alg": "ES256"})
    assert "signature" in refused(verifier, make_jwt(plain))


def test_a_curve_that_is_for_another_algorithm(tmp_path: Path) -> None:
    key = ECKey.generate_key("P-384", {"kid": "ec"})
    verifier = make_verifier_for(tmp_path, keys=jwks(key))
    assert verifier.check_jwt(make_jwt(key, "ES384")).user == "alice"
    head, body, signature = make_jwt(key, "ES384").split(".")
    lie = f"{part({'alg': 'ES256', 'kid': 'ec'})}.{body}.{signature}"
    assert head and "signature" in refused(verifier, lie)


def test_somebody_elses_signature(verifier: TokenVerifier) -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "ec"})
    assert "signature" in refused(verifier, make_jwt(stranger))


def test_a_token_that_brings_its_own_key(verifier: TokenVerifier) -> None:
    stranger = ECKey.generate_key("P-256", {"kid": "stranger"})
    public = stranger.as_dict(private=False)
    head: dict[str, object] = {"jwk": public, "jku": "http://127.0.0.1:1/", "kid": "ec"}
    assert "signature" in refused(verifier, make_jwt(stranger, header=head))


@pytest.mark.parametrize("at", [0, 1, 2])
def test_every_part_is_signed(verifier: TokenVerifier, at: int) -> None:
    parts = make_jwt().split(".")
    char = "A" if parts[at][9] != "A" else "B"
    parts[at] = parts[at][:9] + char + parts[at][10:]
    refused(verifier, ".".join(parts))


def test_changed_claims(verifier: TokenVerifier) -> None:
    head, _, signature = make_jwt().split(".")
    assert "signature" in refused(verifier, f"{head}.{part(claims(sub='root'))}.{signature}")


# -- keys by name ------------------------------------------------------------------------------


def test_an_unknown_key(verifier: TokenVerifier) -> None:
    assert "key is not among" in refused(verifier, make_jwt(header={"kid": "other"}))
    refused(verifier, f"{part({'alg': 'ES256', 'kid': 7})}.{part(claims())}.c2ln")


def test_a_token_that_names_no_key_is_tried_with_all(verifier: TokenVerifier) -> None:
    assert verifier.check_jwt(make_jwt(header={"kid": None})).user == "alice"


def test_keys_without_names(tmp_path: Path) -> None:
    verifier = make_verifier_for(tmp_path, keys=rsa_key().as_pem(private=False).decode())
    assert verifier.check_jwt(make_jwt(rsa_key(), "RS256")).user == "alice"


# -- what a token says -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "https://other.example/"}, "issuer"),
        ({"iss": ISSUER.rstrip("/")}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "other"}, "aud"),
        ({"aud": ["other", "another"]}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": {"ferrymq": 1}}, "aud"),
        ({"aud": None}, "lacks"),
        ({"exp": NOW}, "expired"),
        ({"exp": NOW - 1}, "expired"),
        ({"exp": -1e300}, "expired"),
        ({"exp": None}, "lacks"),
        ({"exp": str(NOW + 10)}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": float("nan")}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"nbf": NOW + 1}, "nbf"),
        ({"nbf": "soon"}, "nbf"),
        ({"iat": NOW + 1}, "iat"),
        ({"sub": None}, "user"),
        ({"sub": ""}, "user"),
        ({"sub": 7}, "user"),
        ({"sub": ["alice"]}, "user"),
        ({"sub": "a\0b"}, "user"),
        ({"sub": "a\nb"}, "user"),
        ({"sub": "\u202eecila"}, "user"),
        ({"sub": "x" * 257}, "user"),
        ({"many": [f"{n}" for n in range(300)]}, "values"),
    ],
)
def test_tokens_that_are_signed_and_not_good(
    verifier: TokenVerifier, changes: dict[str, object], reason: str
) -> None:
    assert reason in refused(verifier, make_jwt(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": ["other", AUDIENCE]},
        {"nbf": NOW, "iat": NOW - 10},
        {"exp": NOW + 0.5},
        {"exp": 10**30},
        {"jti": {"what": "ever"}},
    ],
)
def test_tokens_that_are_good(verifier: TokenVerifier, changes: dict[str, object]) -> None:
    identity = verifier.check_jwt(make_jwt(**changes))
    assert NOW < identity.expires < 300_000_000_000


def test_clocks_may_differ(tmp_path: Path) -> None:
    clock = TestClock()
    verifier = make_verifier_for(tmp_path, clock, leeway=60)
    late, early = make_jwt(exp=NOW), make_jwt(nbf=NOW + 60)
    identity = verifier.check_jwt(late)
    # It is accepted as long as it lasts.
    assert identity.expires == NOW + 60
    verifier.check_jwt(early)
    clock.time = NOW + 60
    assert "expired" in refused(verifier, late)


def test_groups_and_claims(tmp_path: Path) -> None:
    verifier = make_verifier_for(
        tmp_path,
        user_claim="preferred_username",
        groups_claim=["roles", "realm_access.roles", "https://x.example/groups", "scope"],
    )
    identity = verifier.check_jwt(
        make_jwt(
            preferred_username="bob",
            roles=["a", 7, None, ["nested"], True],
            realm_access={"roles": ["b"], "scope": "no"},
            scope="read write",
            admin=True,
            level=3,
            **{"https://x.example/groups": "c"},
        )
    )
    assert identity.user == "bob"
    assert identity.groups == {"a", "7", "b", "c", "read", "write", "read write"}
    assert identity.claims["scope"] == {"read", "write", "read write"}
    assert identity.claims["admin"] == {"true"}
    assert identity.claims["level"] == {"3"}
    assert "realm_access" not in identity.claims


@pytest.mark.parametrize("name", ["name", "department", "sub"])
def test_the_words_of_a_name_are_no_values(tmp_path: Path, name: str) -> None:
    """Nobody becomes an admin by calling himself one."""
    verifier = make_verifier_for(tmp_path)
    identity = verifier.check_jwt(make_jwt(**{name: "Mallory admin"}))
    assert identity.claims[name] == {"Mallory admin"}


def test_several_issuers_have_their_own_keys(tmp_path: Path) -> None:
    tables = []
    for name, key in (("one", ec_key()), ("two", ed_key())):
        path = tmp_path / f"{name}.json"
        path.write_text(jwks(key))
        tables.append({"issuer": name, "audience": AUDIENCE, "keys": str(path)})
    verifier = make_verifier(Security.model_validate({"jwt": tables}), TestClock())
    assert verifier is not None
    assert verifier.check_jwt(make_jwt(iss="one")).user == "alice"
    assert verifier.check_jwt(make_jwt(ed_key(), "EdDSA", iss="two")).user == "alice"
    # Whoever has the key of the one does not speak for the other.
    refused(verifier, make_jwt(iss="two"))
    refused(verifier, make_jwt(header={"kid": "ed"}, iss="two"))


async def test_only_the_tokens_of_some_issuers_are_passwords(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(jwks(ec_key()))
    table = {"audience": AUDIENCE, "keys": str(path)}
    issuers = [{"issuer": "one", "as-password": True, **table}, {"issuer": "two", **table}]
    verifier = make_verifier(Security.model_validate({"jwt": issuers}), TestClock())
    assert verifier is not None and verifier.takes_passwords
    one, two = make_jwt(iss="one"), make_jwt(iss="two")
    assert (await verifier.identify_token(one, "PLAIN", as_password=True)).user == "alice"
    with pytest.raises(TokenRefusedError, match="issuer"):
        await verifier.identify_token(two, "PLAIN", as_password=True)
    assert (await verifier.identify_token(two)).user == "alice"


# -- what is no token --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b.c",
        "a.b.c.d.e",
        f"{part({'alg': 'ES256'})}.{part([1])}.c2ln",
        f"{part([1])}.{part(claims())}.c2ln",
        f"{part({'alg': 7})}.{part(claims())}.c2ln",
        f"{part({})}.{part(claims())}.c2ln",
        f"{part(b'{')}.{part(claims())}.c2ln",
        f"{part({'alg': 'ES256', 'kid': 'ec'})}.{part(b'x' * 10)}.c2ln",
        f"{part({'alg': 'ES256'})}.{part(b'[' * 5000)}.c2ln",
        f"{part(b'{' + chr(34).encode() + b'a' * 5000)}.{part(claims())}.c2ln",
        f"{part({'alg': 'ES256'})}.{part(claims())}.\u00e9",
        "x" * 8193,
        make_jwt(pad="x" * 8192),
    ],
)
def test_what_is_no_token(verifier: TokenVerifier, token: str) -> None:
    refused(verifier, token)


def test_critical_headers_are_not_understood(verifier: TokenVerifier) -> None:
    head: dict[str, object] = {"alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": False}
    # Without the option the payload is in base64; with it, it is not there, or is there in clear.
    refused(verifier, make_jwt(header=head))
    refused(verifier, f"{part(head)}.{part(claims())}.{part(b'x' * 64)}")
    head = {"alg": "ES256", "kid": "ec", "crit": ["exp"], "exp": 1}
    token = f"{part(head)}.{part(claims())}.{part(b'x' * 64)}"
    assert "critical" in refused(verifier, token)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_whatever_comes_is_refused(verifier: TokenVerifier, data: st.DataObject) -> None:
    junk = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["iss", "alg", "kid", "exp", "x"]), inner, max_size=4),
        max_leaves=10,
    )
    text = st.text(max_size=40) | st.builds(
        lambda head, body, end: f"{part(head)}.{part(body)}.{part(end)}", junk, junk, st.binary()
    )
    with pytest.raises(TokenRefusedError):
        verifier.check_jwt(data.draw(text))


def test_an_attack_on_the_verifier_takes_no_time(verifier: TokenVerifier) -> None:
    token = f"{part({'alg': 'ES256'})}.{part(b'{' + b' ' * 5900)}.{'A' * 80}"
    begun = time.process_time()
    for _ in range(20):
        refused(verifier, token)
    assert time.process_time() - begun < 2


def test_small_keys_are_refused() -> None:
    from ferrymq_broker.security.jwks import read_keys

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = RSAKey.generate_key(1024, {"kid": "small"})
        with pytest.raises(ValueError, match="2048"):
            read_keys(jwks(small).encode())
        assert len(read_keys(jwks(small, ec_key()).encode(), lenient=True)) == 1
    short = {"keys": [OctKey.import_key(b"short secret 1234", {"kid": "s"}).as_dict()]}
    with pytest.raises(ValueError, match="32 bytes"):
        read_keys(json.dumps(short).encode(), symmetric=True)
