"""What ``check-config`` says of tokens: files of keys, keys that give, and who may do nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ferrymq_broker.cli.app import make_app
from tests.broker.tokens.makers import ec_key, jwks

ISSUER = """
[[security.jwt]]
issuer = "https://login.example/"
audience = "ferrymq"
keys = "keys.json"
"""
KEY = """
[[queue]]
name = "orders"

[[security.shared-access-key]]
name = "shop"
primary = "the-secret-of-the-shop"
may = "send"
where = "orders"
"""


def check(tmp_path: Path, text: str, *options: str) -> Result:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    return CliRunner().invoke(make_app(), ["check-config", str(path), *options])


def problems(result: Result) -> list[str]:
    assert result.exit_code == 1
    return [problem["reason"] for problem in json.loads(result.stdout)["problems"]]


def test_files_of_keys_are_read(tmp_path: Path) -> None:
    (missing,) = problems(check(tmp_path, ISSUER, "--json"))
    assert "keys.json" in missing and "No such file" in missing
    (tmp_path / "keys.json").write_text("nothing of the kind")
    (wrong,) = problems(check(tmp_path, ISSUER, "--json"))
    assert "neither JSON nor PEM" in wrong
    # It is seen from the folder of the configuration.
    (tmp_path / "keys.json").write_text(jwks(ec_key()))
    assert check(tmp_path, ISSUER).exit_code == 0


def test_where_nobody_may_do_anything(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(jwks(ec_key()))
    assert "there are no rules" in check(tmp_path, ISSUER).output
    rule = '\n[[rule]]\nwho = "user:alice"\nmay = "*"\nwhere = "*"\n'
    assert "there are no rules" not in check(tmp_path, ISSUER + rule).output
    assert "there are no rules" not in check(tmp_path, KEY).output


@pytest.mark.parametrize(("who", "may"), [("key:shop", True), ("key:other", False)])
def test_what_a_key_gives(tmp_path: Path, who: str, may: bool) -> None:
    result = check(tmp_path, KEY, "--explain", "orders", "--as", who)
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    (send,) = [line for line in lines if line.startswith(("may send", "may not send"))]
    assert send.endswith("on line 5") if may else send == "may not send, because no rule says so"
    assert "the-secret" not in result.output


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[security.jwt]\nissuer = "i"\naudience = "a"\nkeys = ""\n', 1, "security.jwt.keys"),
        ('[[security.jwt]]\nissuer = "i"\n', 1, "security.jwt.audience"),
        ('[[security.jwt]]\naudiance = "i"\n', 2, "did you mean 'audience'?"),
        (KEY.replace('"send"', '"sned"'), 5, "did you mean 'send'?"),
    ],
)
def test_mistakes_are_told_with_their_place(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    result = check(tmp_path, text, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)["problems"]
    assert any(each["line"] == line and reason in each["reason"] for each in found), found
    assert "the-secret" not in result.output
