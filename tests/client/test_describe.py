"""`ferrymq describe`: a type by any of its names, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ferrymq.describe import Catalogue, UnknownType
from ferrymq_broker.cli.app import make_app
from ferrymq_types.schema import SCHEMAS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), ["describe", *arguments])


@pytest.mark.parametrize(
    "name",
    ["attach", "Attach", "ferrymq_types.transport.Attach", "amqp:attach:list", "0x12", "18"],
)
def test_a_type_is_found_by_every_name(name: str) -> None:
    lines = run(name).output.splitlines()
    assert lines[0] == "attach: attach a link"
    assert "descriptor  amqp:attach:list (0x12)" in lines
    assert "section     AMQP 1.0 §2.7.3" in lines


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_type_can_be_described(name: str) -> None:
    catalogue = Catalogue()
    type_ = catalogue.find(name)
    assert type_ is SCHEMAS[name]
    assert catalogue.find(type_.python) is type_
    lines = list(catalogue.as_text(type_, 100))
    assert max(map(len, lines)) <= 110
    json.dumps(catalogue.as_data(type_))


def test_fields_say_their_type_their_default_and_their_choices() -> None:
    rows = [line.split() for line in run("attach").output.splitlines()]
    assert ["name", "string", "mandatory", "name", "of", "the", "link"] in rows
    assert ["snd_settle_mode", "sender-settle-mode", "(ubyte)", "=", "mixed"] in [
        row[:5] for row in rows
    ]
    assert ["offered_capabilities", "symbol,", "several"] in [row[:3] for row in rows]
    assert "Choices of role: SENDER (false), RECEIVER (true)" in run("attach").output
    assert "SECOND  1" in run("receiver-settle-mode").output
    assert "other values are legal" in run("AmqpErrorCondition").output
    assert "smalluint  0x52  fixed 1" in run("uint").output


def test_json_has_all_of_it() -> None:
    data = json.loads(run("attach", "--json").output)
    assert (data["symbol"], data["code"], data["section"]) == (
        "amqp:attach:list",
        0x12,
        "AMQP 1.0 §2.7.3",
    )
    fields = {field["name"]: field for field in data["fields"]}
    mode = fields["snd-settle-mode"]
    assert (mode["type"], mode["base"], mode["default"]) == (
        "sender-settle-mode",
        "ubyte",
        "mixed",
    )
    assert [(c["name"], c["value"]) for c in mode["choices"]] == [
        ("unsettled", 0),
        ("settled", 1),
        ("mixed", 2),
    ]
    assert fields["name"]["mandatory"] and not mode["mandatory"]
    assert fields["desired-capabilities"]["multiple"]
    assert fields["source"]["requires"] == ["source"]


def test_an_unknown_name_gets_the_nearest() -> None:
    result = run("attatch")
    assert result.exit_code == 1
    assert result.stderr == "ferrymq: there is no type attatch; did you mean attach or detach?\n"
    result = run("zzzz")
    assert result.exit_code == 1
    assert result.stderr == "ferrymq: there is no type zzzz; ferrymq describe lists all types\n"
    with pytest.raises(UnknownType, match=r"there is no type zzzz$"):
        Catalogue().find("zzzz")


def test_a_capability_is_answered_with_its_types() -> None:
    said = "Outcome: a capability of accepted, rejected, released, modified, declared\n"
    assert run("Outcome").output == said
    assert json.loads(run("outcome", "--json").output)["types"][0] == "accepted"


def test_without_a_name_all_types_are_listed() -> None:
    assert len(run().output.splitlines()) >= len(SCHEMAS)
    assert json.loads(run("--json").output)["attach"] == "attach a link"


def test_types_of_a_package_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "described_shop"
    folder.mkdir()
    (folder / "schema.py").write_text(
        "from ferrymq_types.schema import SCHEMAS as CORE\n"
        "SCHEMAS = {'parcel': CORE['attach']._replace(name='parcel', code=99)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run("parcel", "--types", "described_shop").output.startswith("parcel: attach a link")
    assert run("99", "--types", "described_shop").output.startswith("parcel")
    assert run("attach", "--types", "described_shop").output.startswith("attach")
    refused = run("parcel", "--types", "no_such_package")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "ferrymq: --types: there is no package no_such_package in this folder or on Python's "
        "path: set PYTHONPATH to the folder that it is in\n"
    )
    refused = run("parcel", "--types", "json")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "ferrymq: --types: not a package that ferrymq generate has written: "
        "No module named 'json.schema'\n"
    )
