"""Which user a certificate is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ferrymq_broker.config.certificates import CertificateRule
from ferrymq_broker.connections.authentication import ClientTransport
from ferrymq_broker.security.certificates import CertificateUsers, names_of

# As `ssl.SSLSocket.getpeercert` has it.
CERTIFICATE: dict[str, object] = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Example, Inc."),),
        (("organizationalUnitName", "a"), ("organizationalUnitName", "b")),
        (("commonName", "pump-7"),),
    ),
    "subjectAltName": (
        ("DNS", "pump-7.devices.example"),
        ("DNS", "pump-7.example"),
        ("email", "pump@example.com"),
        ("URI", "spiffe://example/pump/7"),
        ("IP Address", "127.0.0.1"),
    ),
    "notAfter": "Nov 21 10:00:00 2036 GMT",
}


def user_of(*rules: dict[str, object], certificate: dict[str, object] = CERTIFICATE) -> str | None:
    users = CertificateUsers([CertificateRule.model_validate(rule) for rule in rules])
    identity = users.identity_of(certificate)
    return None if identity is None else identity.user


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        ({}, "pump-7"),
        ({"name-from": "subject"}, "CN=pump-7,OU=a+OU=b,O=Example\\, Inc.,C=DE"),
        ({"name-from": "san-dns"}, "pump-7.devices.example"),
        ({"name-from": "san-dns", "pattern": r"([^.]+)\.example", "user": "{1}"}, "pump-7"),
        ({"name-from": "san-email", "pattern": "(.+)@(.+)", "user": "{2}/{1}"}, "example.com/pump"),
        (
            {"name-from": "san-uri", "pattern": r"spiffe://example/(.+)/(\d+)", "user": "{1}"},
            "pump",
        ),
        ({"pattern": "pump"}, None),
        ({"pattern": "ump-7"}, None),
        ({"pattern": "x|pump-7"}, "pump-7"),
        ({"pattern": "(x)?pump-7", "user": "{1}"}, None),
        ({"user": "device"}, "device"),
    ],
)
def test_the_whole_name_has_to_match(rule: dict[str, object], user: str | None) -> None:
    assert user_of(rule) == user


def test_the_first_rule_that_matches_counts() -> None:
    assert user_of({"pattern": "x"}, {"user": "first"}, {"user": "second"}) == "first"


@pytest.mark.parametrize(
    "name", ["alice\0.evil.example", "alice\n", "al\u202eice", " alice", "alice ", "", "a" * 257]
)
def test_names_that_cannot_be_seen_as_they_are_make_no_user(name: str) -> None:
    certificate: dict[str, object] = {"subject": ((("commonName", name),),)}
    assert user_of({"pattern": "(?s).*", "user": "known"}, certificate=certificate) is None
    assert user_of({"name-from": "subject-cn"}, certificate=certificate) is None


@given(st.lists(st.tuples(st.sampled_from(["commonName", "userId"]), st.text(min_size=1))))
def test_different_subjects_have_different_names(pairs: list[tuple[str, str]]) -> None:
    """Nothing in a value can look like another part of the name."""
    certificate: dict[str, object] = {"subject": tuple(((pair),) for pair in pairs)}
    for name in names_of(certificate, "subject"):
        parts: list[str] = [""]
        escaped = False
        for char in name:
            if char == "," and not escaped:
                parts.append("")
            else:
                parts[-1] += char
            escaped = char == "\\" and not escaped
        assert len(parts) == len(pairs)


@pytest.mark.parametrize(
    "rule",
    [
        {"pattern": "("},
        {"pattern": ""},
        {"user": "{1}"},
        {"user": "{}"},
        {"pattern": "(a)", "user": "{2}"},
        {"user": ""},
        {"name-from": "issuer"},
        {"groups": [""]},
    ],
)
def test_rules_that_cannot_be_meant(rule: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CertificateRule.model_validate(rule)


def test_without_a_certificate_there_is_no_mechanism() -> None:
    users = CertificateUsers([CertificateRule()])
    assert list(users.mechanisms(ClientTransport("test"))) == []
    shown = ClientTransport("test", encrypted=True, certificate=CERTIFICATE)
    assert list(users.mechanisms(shown)) == ["EXTERNAL"]
    assert users.scram_keys("SCRAM-SHA-256", "pump-7") is None
