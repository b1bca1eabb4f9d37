"""PySpark of a version, in a folder of its own to be put before the environment's.

PySpark is only a source archive: a wheel is built from it when it is installed. Unpacking it into
place takes a fraction of that time. All other packages are those of the environment.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
OLD: Final = ("4.0", "4.1", "4.2")
"""The versions that are not in the environment."""

_HOME: Final = ROOT / "build" / "spark"
# Folders of the archive, and where the installed package has them.
_PLACES: Final = {
    "pyspark": "pyspark",
    "deps/jars": "pyspark/jars",
    "deps/bin": "pyspark/bin",
    "lib": "pyspark/python/lib",
}


def folder_of(wanted: str) -> Path:
    """The folder for ``PYTHONPATH``, whether it is there or not."""
    return _HOME / wanted


def release_of(wanted: str) -> str | None:
    """The release that is there, such as 4.0.5; None if there is none."""
    if wanted not in OLD:
        return version("pyspark")
    place = folder_of(wanted) / "pyspark" / "version.py"
    found = (
        re.search(r"__version__.*= *[\"']([^\"']+)", place.read_text()) if place.is_file() else None
    )
    return found and found[1]


def obtain(wanted: str) -> None:
    """Get the last release of a version. Raises `subprocess.CalledProcessError`."""
    if release_of(wanted) is not None:
        return
    _HOME.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_HOME) as temporary:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--disable-pip-version-check", "--no-build-isolation", "--no-binary", "pyspark"),
                *("--dest", temporary, f"pyspark=={wanted}.*"),
            ],
            check=True,
        )
        (archive,) = Path(temporary).glob("pyspark-*.tar.gz")
        _unpack(archive, Path(temporary, "unpacked"))
        Path(temporary, "unpacked").rename(folder_of(wanted))


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as files:
        for member in files:
            _, _, path = member.name.partition("/")
            for folder, place in _PLACES.items():
                if path.startswith(f"{folder}/"):
                    member.name = place + path.removeprefix(folder)
                    files.extract(member, target, filter="data")
