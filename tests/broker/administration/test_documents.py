"""Documents of clients: those that are read, and those that must be refused without harm."""

from __future__ import annotations

import random

import pytest

from ferrymq_broker.errors import BrokerError
from ferrymq_servicebus.administration import atom, descriptions, rule_documents
from ferrymq_servicebus.administration.errors import HttpError

QUEUE = (
    f'<entry xmlns="{atom.ATOM}"><content type="application/xml">'
    f'<QueueDescription xmlns="{atom.SERVICE_BUS}"><LockDuration>PT1M</LockDuration>'
    "<MaxDeliveryCount>4</MaxDeliveryCount></QueueDescription></content></entry>"
).encode()
RULE = (
    f'<?xml version="1.0" encoding="utf-8"?><entry xmlns="{atom.ATOM}"><content>'
    f'<RuleDescription xmlns="{atom.SERVICE_BUS}" xmlns:i="{atom.INSTANCE}">'
    '<Filter i:type="CorrelationFilter"><Label>x</Label><Properties><KeyValueOfstringanyType>'
    f'<Key>a</Key><Value xmlns:d="{atom.SCHEMA}" i:type="d:int">5</Value>'
    '</KeyValueOfstringanyType></Properties></Filter><Action i:type="SqlRuleAction">'
    "<SqlExpression>SET a = 1</SqlExpression></Action></RuleDescription></content></entry>"
).encode()
PIECES = (
    b"utf-16", b"idna", b"big5", b"dateTime", b"double", b"nan", b"SqlFilter", b"<![CDATA[",
    b"&#0;", b"&#xD800;", b"&lol;", b"<!DOCTYPE a>", b"int", b"9" * 30, b"2020-13-01",
)  # fmt: skip


def use(document: bytes) -> bool:
    """Read a document, and write what it means. Return whether it was accepted."""
    try:
        element = atom.read_description(document)
        if descriptions.kind_of(element) == "RuleDescription":
            rule = rule_documents.read_rule(element, "rule")
            written = atom.encode(rule_documents.write_rule(rule, "2026-01-01T00:00:00Z"))
            again = rule_documents.read_rule(atom.parse(written), "rule")
            assert again.filter.key == rule.filter.key
        else:
            kind = descriptions.kind_of(element)
            written = atom.encode(descriptions.write(kind, descriptions.read(element)))
            assert descriptions.read(atom.parse(written)) == descriptions.read(element)
    except (HttpError, BrokerError):
        return False
    return True


def changed(document: bytes, rng: random.Random) -> bytes:
    """The document with a few changes."""
    data = bytearray(document)
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(data) + 1)
        what = rng.random()
        if what < 0.4:
            data[at:at] = rng.choice(PIECES)
        elif what < 0.6:
            del data[at : at + rng.randint(1, 20)]
        elif what < 0.8:
            data[at : at + 1] = bytes([rng.randrange(256)])
        else:
            piece = rng.choice(PIECES)
            data[at : at + len(piece)] = piece
    return bytes(data)


@pytest.mark.parametrize("seed", range(2))
def test_documents_with_changes_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    accepted = sum(use(changed(rng.choice((QUEUE, RULE)), rng)) for _ in range(500))
    assert 50 < accepted < 450


@pytest.mark.parametrize(
    "value", ["x", "", "9223372036854775808", "9" * 5000, "1.5", "-9" + "0" * 30]
)
def test_numbers_that_fit_no_type(value: str) -> None:
    with pytest.raises(HttpError, match="is not of type int"):
        rule_documents.read_rule(
            atom.read_description(RULE.replace(b">5<", f">{value}<".encode())), "rule"
        )


def test_the_encoding_that_a_document_names_does_not_count() -> None:
    assert use(RULE.replace(b"utf-8", b"idna"))
    assert not use(RULE.replace(b">x<", "é".encode("latin-1")).replace(b"utf-8", b"latin-1"))
