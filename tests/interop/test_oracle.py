"""What Proton and rhea make of the scripts of `oracle_scripts`, and what we do.

Every verdict is pinned. Where the three differ, the reason is in decision 0007, whose tables are
compared with the verdicts here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from proton import VERSION

from tests.interop import oracle
from tests.interop.oracle_scripts import SCRIPTS
from tests.interop.rhea_client import FOLDER, needs_rhea

PAGE = (
    Path(__file__).parents[2] / "docs" / "decisions" / "0007-what-other-implementations-do.md"
).read_text("utf-8")

# Of ferrymq, Proton and rhea.
VERDICTS: dict[str, tuple[str, str, str]] = {
    "another protocol": ("header, gone", "close amqp:connection:framing-error", "silent, gone"),
    "amqp 0-9-1": ("header, gone", "close amqp:connection:framing-error", "silent, gone"),
    "version 1.1.0": ("header, gone", "close amqp:connection:framing-error", "silent, gone"),
    "frame of 7 bytes": (
        "close amqp:connection:framing-error",
        "close amqp:connection:framing-error",
        "silent, gone",
    ),
    "data offset 1": (
        "close amqp:connection:framing-error",
        "close amqp:connection:framing-error",
        "silent, gone",
    ),
    "data offset beyond the frame": (
        "close amqp:connection:framing-error",
        "close amqp:connection:framing-error",
        "silent, gone",
    ),
    "extended header": ("answered", "answered", "answered"),
    "frame type 5": ("close amqp:connection:framing-error", "silent", "silent, gone"),
    "sasl frame after the open": ("close amqp:connection:framing-error", "silent", "silent, gone"),
    "frame above our max-frame-size": (
        "close amqp:connection:framing-error",
        "close amqp:connection:framing-error",
        "silent",
    ),
    "empty frame": ("silent", "silent", "silent"),
    "empty frame on a channel above channel-max": (
        "close amqp:connection:framing-error",
        "silent",
        "silent",
    ),
    "bytes after a begin": ("close amqp:connection:framing-error", "answered", "answered"),
    "unknown descriptor": ("close amqp:decode-error", "silent", "silent, gone"),
    "no descriptor": ("close amqp:decode-error", "silent", "silent, gone"),
    "list cut short": ("close amqp:decode-error", "silent", "silent, gone"),
    "field of another type": ("close amqp:decode-error", "answered", "silent, gone"),
    "null behind the last field": ("answered", "answered", "answered"),
    "value behind the last field": ("close amqp:decode-error", "answered", "answered"),
    "begin before the open": ("close amqp:illegal-state", "silent", "answered"),
    "close before the open": ("close amqp:illegal-state", "close", "silent, gone"),
    "second open": ("close amqp:illegal-state", "silent", "silent, gone"),
    "open without container-id": ("close amqp:decode-error", "answered", "answered"),
    "open on channel 1": ("close amqp:connection:framing-error", "answered", "answered"),
    "max-frame-size below 512": ("close amqp:invalid-field", "answered", "answered"),
    "close": ("close", "close", "close"),
    "close with an error": ("close", "close", "close"),
    "begin after the close": ("silent, gone", "silent, gone", "silent, gone"),
    "begin above channel-max": (
        "close amqp:connection:framing-error",
        "close amqp:connection:framing-error",
        "answered",
    ),
    "second begin on a channel": ("close amqp:illegal-state", "answered", "answered"),
    "begin in answer to none": ("close amqp:not-found", "close amqp:invalid-field", "silent, gone"),
    "end without a session": (
        "close amqp:connection:framing-error",
        "close amqp:not-allowed",
        "silent, gone",
    ),
    "flow without a session": (
        "close amqp:connection:framing-error",
        "close amqp:not-allowed",
        "silent, gone",
    ),
    "attach without a session": (
        "close amqp:connection:framing-error",
        "close amqp:not-allowed",
        "silent, gone",
    ),
    "transfer without a session": (
        "close amqp:connection:framing-error",
        "close amqp:not-allowed",
        "silent, gone",
    ),
    "end": ("end", "end", "end"),
    "begin on a channel that was ended": ("answered", "answered", "answered"),
    "attach after the end": (
        "close amqp:connection:framing-error",
        "close amqp:not-allowed",
        "silent, gone",
    ),
    "echo": ("answered", "silent", "silent"),
    "flow without next-incoming-id": ("silent", "silent", "silent"),
    "attach": ("answered", "answered", "answered"),
    "attach above handle-max": (
        "close amqp:connection:framing-error",
        "close amqp:connection:framing-error",
        "answered",
    ),
    "handle in use": ("end amqp:session:handle-in-use", "answered", "answered"),
    "name in use": ("detach amqp:link:stolen", "close amqp:invalid-field", "silent, gone"),
    "same name, other role": ("answered", "answered", "silent, gone"),
    "name in use on another session": ("detach amqp:link:stolen", "answered", "answered"),
    "sender without initial-delivery-count": ("end amqp:invalid-field", "answered", "answered"),
    "snd-settle-mode 7": ("close amqp:decode-error", "answered", "answered"),
    "detach of an unknown handle": (
        "end amqp:session:unattached-handle",
        "close amqp:invalid-field",
        "silent, gone",
    ),
    "flow for an unknown handle": (
        "end amqp:session:unattached-handle",
        "close amqp:invalid-field",
        "silent, gone",
    ),
    "transfer for an unknown handle": (
        "end amqp:session:unattached-handle",
        "close amqp:invalid-field",
        "silent, gone",
    ),
    "detach, not closed": ("detach", "detach", "detach"),
    "detach, closed": ("detach", "detach", "detach"),
    "second detach": (
        "end amqp:session:unattached-handle",
        "close amqp:invalid-field",
        "silent, gone",
    ),
    "transfer after the detach": (
        "end amqp:session:unattached-handle",
        "close amqp:invalid-field",
        "silent, gone",
    ),
    "drain of a sender without messages": ("silent", "silent", "silent"),
    "transfer": ("silent", "silent", "silent"),
    "transfer without delivery-id": (
        "end amqp:invalid-field",
        "close amqp:invalid-field",
        "silent",
    ),
    "transfer without delivery-tag": ("end amqp:invalid-field", "silent", "silent"),
    "delivery-tag of 33 bytes": ("end amqp:invalid-field", "silent", "silent"),
    "transfer to a sender": ("end amqp:not-allowed", "silent", "silent"),
    "transfer beyond the credit": ("detach amqp:link:transfer-limit-exceeded", "silent", "silent"),
    "delivery-id in use": (
        "end amqp:invalid-field",
        "close amqp:session:invalid-field",
        "silent, gone",
    ),
    "delivery-id that leaves a gap": ("silent", "close amqp:session:invalid-field", "silent, gone"),
    "delivery-tag in use": ("detach amqp:not-allowed", "silent", "silent"),
    "other delivery-id inside a delivery": (
        "end amqp:invalid-field",
        "close amqp:invalid-field",
        "silent, gone",
    ),
    "other delivery-tag inside a delivery": ("end amqp:invalid-field", "silent", "silent"),
    "abort": ("silent", "silent", "silent"),
    "settled in mode unsettled": ("detach amqp:not-allowed", "silent", "silent"),
    "unsettled in mode settled": ("detach amqp:not-allowed", "silent", "silent"),
    "resumed, but not known": ("silent", "silent", "silent"),
    "disposition of unknown deliveries": ("silent", "silent", "silent"),
    "disposition that ends before it begins": ("silent", "close amqp:not allowed", "silent"),
}

scripts = pytest.mark.parametrize("name", SCRIPTS)


def rows() -> dict[str, tuple[str, str, str]]:
    """The verdicts in the tables of the decision, each with a section and a conclusion."""
    found = {}
    for row in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE):
        name, ours, protons, rheas, section, conclusion = row.split(" | ")
        if section != "section":
            assert re.match(r"\d+\.\d+", section) and conclusion.endswith(
                (".", "?", "`).", "below.")
            )
            found[name] = (ours, protons, rheas)
    return found


def test_every_script_has_verdicts() -> None:
    assert list(VERDICTS) == list(SCRIPTS)


@scripts
def test_ours(name: str) -> None:
    assert oracle.verdict(oracle.ferrymq(SCRIPTS[name])) == VERDICTS[name][0]


@pytest.mark.interop
@scripts
def test_protons(name: str) -> None:
    assert oracle.verdict(oracle.proton(SCRIPTS[name])) == VERDICTS[name][1]


@pytest.mark.interop
@needs_rhea
def test_rheas() -> None:
    answers = oracle.rhea_all(SCRIPTS)
    verdicts = {name: oracle.verdict(answer) for name, answer in answers.items()}
    assert verdicts == {name: verdict[2] for name, verdict in VERDICTS.items()}


def test_the_decision_explains_every_disagreement() -> None:
    assert rows() == {name: v for name, v in VERDICTS.items() if len(set(v)) > 1}


def test_the_decision_names_what_all_agree_on() -> None:
    agree = [name for name, v in VERDICTS.items() if len(set(v)) == 1]
    said = re.search(r"## Where all agree\n\n(\d+) scripts: (.+?)\.\n", PAGE, re.DOTALL)
    assert said is not None
    assert int(said[1]) == len(agree)
    assert " ".join(said[2].split()) == ", ".join(agree)
    assert f"has {len(SCRIPTS)} scripts" in PAGE


@pytest.mark.interop
def test_the_decision_names_the_versions() -> None:
    assert f"python-qpid-proton {VERSION[0]}.{VERSION[1]}" in PAGE
    locked = json.loads((FOLDER / "package-lock.json").read_text("utf-8"))
    assert f"rhea {locked['packages']['node_modules/rhea']['version']}" in PAGE
