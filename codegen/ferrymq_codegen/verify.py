"""Stage 5: the output must import and pass `mypy --strict` before anything is replaced by it."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

from ferrymq_codegen.mistakes import Location, Mistake, SpecError
from ferrymq_codegen.specification import ROOT

# The packages that generated code imports, in a checkout; in an installation they are on the import
# path.
_FOLDERS: Final = [str(ROOT / name) for name in ("runtime", "generated")]


def verify(files: dict[str, str], package: str) -> None:
    """Import every module of the output and, where mypy is installed, check its types; this is done
    in a temporary folder.

    Raises `SpecError` with the error of Python or mypy.
    """
    with TemporaryDirectory(prefix="codegen-") as name:
        folder = Path(name)
        for part in package.split("."):
            folder /= part
            folder.mkdir()
            # The file prevents that Python finds another package of this name elsewhere.
            (folder / "__init__.py").touch()
        for file, text in files.items():
            (folder / file).write_text(text, "utf-8")
        checker = _start_mypy(folder, name) if find_spec("mypy") is not None else None
        problem = _import(files, package, name)
        text = checker.communicate()[0] if checker is not None else ""
        if problem:
            raise SpecError([Mistake(Location(package, 0), f"cannot be imported: {problem}")])
        if checker is not None and checker.returncode:
            lines = text.replace(name + os.sep, "").strip().splitlines()
            raise SpecError([Mistake(Location("mypy", 0), line) for line in lines])


def _environment(folder: str) -> dict[str, str]:
    path = os.pathsep.join([folder, *filter(os.path.isdir, _FOLDERS)])
    return {**os.environ, "PYTHONPATH": path, "MYPYPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def _import(files: dict[str, str], package: str, folder: str) -> str:
    """Return the error of importing each module first, in its own interpreter state; empty if
    none."""
    modules = [package] + [f"{package}.{f[:-3]}" for f in files if f[0] != "_" and f[-3:] == ".py"]
    # Each module must work as the first import: the imports between them form a cycle.
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        f"    for old in [m for m in sys.modules if (m + '.').startswith({package + '.'!r})]:\n"
        "        del sys.modules[old]\n"
        "    importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip() if done.returncode else ""


def _start_mypy(package: Path, folder: str) -> subprocess.Popen[str]:
    cache = Path(gettempdir()) / f"codegen-mypy-{getpass.getuser()}"
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
            *("--python-version=3.11", "--explicit-package-bases", "--namespace-packages"),
            *("--no-error-summary", "--follow-imports=silent", f"--cache-dir={cache}"),
            str(package),
        ],
        env=_environment(folder),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
