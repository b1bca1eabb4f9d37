"""Commands of `ferrymq` in this process, with an environment and an input of their own."""

from __future__ import annotations

import io
import sys
from typing import NamedTuple

import pytest

from ferrymq_broker.cli.app import make_app, run


class Done(NamedTuple):
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


class Commands:
    """Calls of ``ferrymq WORDS``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str, stdin: str = "", **variables: str) -> Done:
        with self._patch.context() as patch:
            patch.setattr(sys, "argv", ["ferrymq", *words])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            for name, value in variables.items():
                patch.setenv(name, value)
            self._capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                run(make_app())
        code = ended.value.code
        said = self._capsys.readouterr()
        return Done(code if isinstance(code, int) else 0, said.out, said.err)
