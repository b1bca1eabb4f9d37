"""Shared access signatures: who has signed what for how long."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ferrymq_broker.config.security import Security
from ferrymq_broker.security.shared_access import (
    SharedAccessKeys,
    SignedToken,
    covers,
    host_of,
    scope_of,
)
from ferrymq_broker.security.token_refusal import TokenRefusedError
from tests.broker.tokens.bearers import Bearer, taking
from tests.broker.tokens.makers import NOW, make_sas

PRIMARY, SECONDARY = "primary-secret-of-shop", "secondary-secret-of-shop"
KEYS = SharedAccessKeys(
    Security.model_validate(
        {
            "shared-access-key": [
                {"name": "shop", "primary": PRIMARY, "secondary": SECONDARY},
                {"name": "other", "primary": "secret-of-other"},
            ]
        }
    ).shared_access_key
)


def check(token: str, now: float = NOW) -> SignedToken:
    return KEYS.verify(token, now)


def refused(token: str, now: float = NOW) -> str:
    with pytest.raises(TokenRefusedError) as raised:
        check(token, now)
    return str(raised.value)


def test_a_good_one() -> None:
    signed = check(make_sas("sb://localhost/q1", PRIMARY))
    assert signed.resource == "sb://localhost/q1"
    identity = signed.identity
    assert (identity.user, identity.key, identity.expires) == (None, "shop", NOW + 3600.0)


def test_the_secondary_key_is_as_good() -> None:
    check(make_sas("sb://localhost/q1", SECONDARY))
    check(make_sas("q", "secret-of-other", "other"))


def test_the_example_of_the_client_libraries() -> None:
    """Made with another implementation of HMAC and base64, so that both cannot be wrong alike."""
    keys = SharedAccessKeys(
        Security.model_validate(
            {"shared-access-key": {"name": "RootManageSharedAccessKey", "primary": "SAS_KEY_VALUE"}}
        ).shared_access_key
    )
    token = (
        "SharedAccessSignature sr=sb%3A%2F%2Flocalhost%3A5672%2Fq1"
        "&sig=SIGNATURE&se=1700003600&skn=RootManageSharedAccessKey"
    )
    with pytest.raises(TokenRefusedError, match=r"base64|signature"):
        keys.verify(token, NOW)
    good = token.replace("SIGNATURE", "ZG1o%2B46rQign311y2152Ph0feb8GG8PyepnxGbTEPTI%3D")
    assert keys.verify(good, NOW).resource == "sb://localhost:5672/q1"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (make_sas("sb://localhost/q1", "a wrong secret"), "the key is unknown"),
        (make_sas("sb://localhost/q1", PRIMARY, "other"), "the key is unknown"),
        (make_sas("sb://localhost/q1", PRIMARY, "nobody"), "the key is unknown"),
        (make_sas("sb://localhost/q1", "", "nobody"), "the key is unknown"),
        (make_sas("sb://localhost/q1", PRIMARY, "Shop"), "the key is unknown"),
        (make_sas("sb://localhost/q1", PRIMARY, expires=NOW), "expired"),
        (make_sas("sb://localhost/q1", PRIMARY, expires=NOW - 1), "expired"),
        (make_sas("sb://localhost/q1", PRIMARY, expires="tomorrow"), "number"),
        (make_sas("sb://localhost/q1", PRIMARY, expires="-1"), "number"),
        (make_sas("sb://localhost/q1", PRIMARY, expires="1e9"), "number"),
        (make_sas("sb://localhost/q1", PRIMARY, expires="9" * 13), "number"),
        (make_sas("sb://localhost/q1", PRIMARY, expires="\u0661" * 10), "signature"),
        ("", "signature"),
        ("SharedAccessSignature ", "signature"),
        ("SharedAccessSignature sr=q&sig=x&se=1", "lacks"),
        ("SharedAccessSignature sr=q&sig=!&se=9999999999&skn=shop", "base64"),
        ("SharedAccessSignature sr=%zz&sig=eA&se=9999999999&skn=shop", "percent"),
        ("SharedAccessSignature sr=%ff&sig=eA&se=9999999999&skn=shop", "UTF-8"),
        ("SharedAccessSignature sr=q&sig=&se=9999999999&skn=shop", "signature"),
        ("sharedaccesssignature sr=q&sig=eA&se=9999999999&skn=shop", "signature"),
        ("SharedAccessSignature " + "x" * 9000, "signature"),
    ],
)
def test_bad_ones(token: str, reason: str) -> None:
    assert reason in refused(token)
    assert PRIMARY not in refused(token)


@pytest.mark.parametrize("field", ["sr", "sig", "se", "skn", "x"])
def test_nothing_may_be_said_twice_or_besides(field: str) -> None:
    token = make_sas("sb://localhost/q1", PRIMARY)
    refused(f"{token}&{field}=1")
    refused(token.replace("sr=", f"{field}=1&sr=", 1))


def test_what_is_signed_cannot_be_changed() -> None:
    token = make_sas("sb://localhost/q1", PRIMARY)
    refused(token.replace("q1", "q2"))
    refused(token.replace(f"se={NOW + 3600}", f"se={NOW + 7200}"))
    # Nor written otherwise: the text is signed, not what it means.
    refused(token.replace("%2F", "%2f"))


@given(st.text(max_size=60))
def test_whatever_comes_is_refused(text: str) -> None:
    for token in (text, f"SharedAccessSignature {text}", f"SharedAccessSignature sr={text}&sig=x"):
        refused(token)


# -- what a token is for -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("sb://localhost:5672/q1", "q1"),
        ("amqps://localhost/q1/", "q1"),
        ("SB://host/q1/$management", "q1/$management"),
        ("http://ns.example/topic/Subscriptions/sub", "topic/Subscriptions/sub"),
        ("sb://localhost", ""),
        ("sb://localhost/", ""),
        ("", ""),
        ("/", ""),
        ("q1", "q1"),
        ("/q1", "q1"),
        ("localhost/q1", "localhost/q1"),
        ("sb://[::1]:5672/q1", "q1"),
        ("sb://localhost/Q1", "Q1"),
        ("sb://localhost/q%31", "q%31"),
        ("sb://localhost/a%2Fb", "a%2Fb"),
    ],
)
def test_scopes(name: str, scope: str) -> None:
    assert scope_of(name) == scope


@pytest.mark.parametrize(
    "name",
    [
        "sb://host/q1/../q2",
        "sb://host/../q2",
        "sb://host/./q2",
        "..",
        "a/..",
        "a//b",
        "sb://host//q1",
        "sb://host/q1//",
        "a\\b",
        "q1?api-version=1",
        "q1#x",
        "q\0",
        "q\u202e",
        "x" * 1025,
    ],
)
def test_names_that_could_mean_something_else(name: str) -> None:
    with pytest.raises(TokenRefusedError):
        scope_of(name)


def test_what_covers_what() -> None:
    assert covers("q1", "q1") and covers("q1", "q1/$management") and covers("", "q1")
    for other in ("q10", "q", "Q1", "q1.x", "xq1", "", "q%31"):
        assert not covers("q1", other)
    assert not covers("a%2Fb", "a/b") and not covers("a", "a%2Fb")


@given(
    st.text(st.sampled_from("q1/.%2F"), max_size=12), st.text(st.sampled_from("q1/."), max_size=8)
)
def test_what_is_covered_begins_with_what_covers_it(one: str, other: str) -> None:
    try:
        scope, inner = scope_of(one), scope_of(other)
    except TokenRefusedError:
        return
    if covers(scope, inner):
        assert inner.split("/")[: len(scope.split("/"))] == scope.split("/") or scope == ""


def test_hosts() -> None:
    assert host_of("sb://LocalHost:5672/q1") == "localhost"
    assert host_of("sb://user@host/q1") == "host"
    assert host_of("sb://[::1]:5672/q1") == "[::1]"
    assert host_of("q1") is None


def test_double_encoding_does_not_lead_further() -> None:
    token = make_sas("sb://localhost/" + quote("q1/../q2", safe=""), PRIMARY)
    assert scope_of(check(token).resource) == "q1%2F..%2Fq2"


# -- configuration -----------------------------------------------------------------------------


def key(**table: object) -> Security:
    return Security.model_validate(
        {"shared-access-key": {"name": "k", "primary": PRIMARY, **table}}
    )


def test_keys_are_never_shown() -> None:
    security = key(secondary=SECONDARY, may="send")
    assert PRIMARY not in repr(security) and SECONDARY not in repr(security)
    assert PRIMARY not in str(security.model_dump_json())


@pytest.mark.parametrize(
    "table",
    [
        {"primary": "short"},
        {"name": ""},
        {"may": "fly"},
        {"may": ["send", "Send"]},
        {"may": "send", "where": []},
        {"may": "send", "where": "{host}.x"},
        {"virtual-host": ""},
    ],
)
def test_bad_keys(table: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as raised:
        key(**table)
    assert "short" not in str(raised.value).replace("too_short", "")


def test_names_are_taken_once() -> None:
    one = {"name": "k", "primary": PRIMARY}
    with pytest.raises(ValidationError, match="two keys"):
        Security.model_validate({"shared-access-key": [one, one]})


# -- keys of entities --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            [{"name": "a", "primary": PRIMARY, "may": "send", "rights": "send"}],
            "use one of the two",
        ),
        ([{"name": "a", "primary": PRIMARY, "entity": "q", "where": "q"}], "leave out where"),
        ([{"name": "a", "primary": PRIMARY, "rights": "write"}], "'send', 'listen' or 'manage'"),
        ([{"name": "a", "primary": PRIMARY, "entity": "q"}] * 2, "two keys 'q#a'"),
        (
            [{"name": "a", "primary": PRIMARY}, {"name": "a", "primary": PRIMARY, "entity": "q"}],
            "'a' and 'q#a' have the same secret",
        ),
    ],
)
def test_keys_that_contradict_themselves(keys: list[dict[str, object]], reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        Security.model_validate({"shared-access-key": keys})


def test_rules_name_the_key_of_an_entity() -> None:
    net = taking(
        {
            "security": {
                "shared-access-key": [
                    {"name": "shop", "primary": PRIMARY, "entity": "q1", "rights": "listen"}
                ]
            },
            "rule": [{"who": "key:q1#shop", "may": "send", "where": "q2"}],
        }
    )
    bearer = Bearer(net)
    assert bearer.put(make_sas("sb://localhost/", PRIMARY), "") == 202
    assert bearer.may_send("q2")
    assert not bearer.may_send("q1")
    assert not bearer.client.receiver("q1").detached
    assert bearer.client.receiver("q2").detached
