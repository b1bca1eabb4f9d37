"""Common options of a group stand before the command or after it."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer

from ferrymq_broker.cli.any_order import AnyOrderGroup

# The command line is not compiled.
pytestmark = pytest.mark.once


def parsed(*words: str) -> list[object]:
    """Return the options of a group and of its command, for ``bind`` with a key of its own."""
    told: list[object] = []
    app = typer.Typer(cls=AnyOrderGroup, add_completion=False)

    @app.callback()
    def group(
        user: str = "",
        url: str = "",
        key: Annotated[str, typer.Option(help="A file.")] = "",
        plain: bool = False,
    ) -> None:
        told.extend((user, key, plain))

    @app.command()
    def bind(
        names: list[str],
        url: str = "",
        key: str = typer.Option("", "--key", "-k"),
        yes: bool = typer.Option(False, "--yes", "-y"),
    ) -> None:
        told.append((names, url, key, yes))

    @app.command()
    def show(names: list[str], url: str = "", limit: int = 0) -> None:
        told.append((names, url, limit))

    app([*words], standalone_mode=False)
    return told


@pytest.mark.parametrize(
    "words",
    [
        ("--user", "u", "--plain", "show", "q", "--url", "x", "--limit", "3"),
        ("--url", "x", "show", "q", "--limit", "3", "--user", "u", "--plain"),
        ("--url=x", "show", "--user=u", "q", "--limit=3", "--plain"),
        ("--plain", "--url", "x", "show", "--user", "u", "--limit", "3", "--", "q"),
    ],
)
def test_everything_arrives_wherever_it_stands(words: tuple[str, ...]) -> None:
    assert parsed(*words) == ["u", "", True, (["q"], "x", 3)]


def test_the_place_decides_between_two_options_of_one_name() -> None:
    assert parsed("bind", "a", "--key", "k", "-y") == ["", "", False, (["a"], "", "k", True)]
    assert parsed("--key", "k", "bind", "a") == ["", "k", False, (["a"], "", "", False)]
    assert parsed("--key", "f", "show", "a") == ["", "f", False, (["a"], "", 0)]


def test_what_follows_two_dashes_is_no_option() -> None:
    told = parsed("show", "--", "--user", "u")
    assert told == ["", "", False, (["--user", "u"], "", 0)]


def test_a_value_may_look_like_an_option() -> None:
    assert parsed("bind", "a", "-k", "--plain", "--user", "u") == [
        "u",
        "",
        False,
        (["a"], "", "--plain", False),
    ]


@pytest.mark.parametrize("words", [("--user",), ("show", "q", "--limit"), ("--no", "show", "q")])
def test_wrong_usage_is_refused_as_ever(words: tuple[str, ...]) -> None:
    with pytest.raises(Exception, match=r"requires an argument|No such option|Missing"):
        parsed(*words)
