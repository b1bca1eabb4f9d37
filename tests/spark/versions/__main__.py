"""Tries the data source on each version of Spark.

python -m tests.spark.versions get [VERSION ...]
python -m tests.spark.versions run [--core] [VERSION ...]
python -m tests.spark.versions page

`get` puts old versions into build/spark. `run` runs the tests of all features, one version after
another, and writes tests/spark/versions/results.json; with `--core` it runs those of CI,
the versions side by side, and keeps no results. `page` writes the table of
docs/pipeline/spark-versions.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.conftest import spark_lacks
from tests.spark.versions.features import FEATURES
from tests.spark.versions.obtain import OLD, ROOT, folder_of, obtain, release_of
from tests.spark.versions.results import PAGE, cells, keep, page

_NEWEST = "newest"
_REPORTS = ROOT / "build" / "test-results"


def get(versions: Sequence[str]) -> int:
    """Get what is not there. Without a network, only the project's own checks fail."""
    for version in versions:
        try:
            obtain(version)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"Spark {version} cannot be had, its tests are left out: {error}")
            if os.environ.get("CI"):
                return 1
    return 0


def test(version: str, core: bool) -> int:
    """Run the tests on a version that is there, and return the status of pytest."""
    tests = [each for feature in FEATURES if feature.core or not core for each in feature.tests]
    environment = dict(os.environ)
    if version in OLD:
        before = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder_of(version)), before]))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--durations=10", "-p", "no:cacheprovider"),
            f"--junitxml={_REPORTS / f'spark-{version}.xml'}",
            *(f"tests/spark/{each}" for each in dict.fromkeys(tests)),
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"== Spark {release_of(version)}\n{done.stdout if done.returncode else ''}", end="")
    print(done.stdout.rstrip().splitlines()[-1])
    return done.returncode


def run(versions: Sequence[str], core: bool) -> int:
    """Run the tests on all given versions, and return 1 if one fails."""
    if lacks := spark_lacks():
        print(f"left out, Spark {', '.join(versions)}: {lacks}")
        return 0
    status = get([version for version in versions if version in OLD])
    there = [version for version in versions if release_of(version) is not None]
    with ThreadPoolExecutor(2 if core else 1) as pool:
        done = list(pool.map(lambda version: test(version, core), there))
    if not core:
        keep(
            {
                str(release_of(version)): cells(_REPORTS / f"spark-{version}.xml")
                for version in there
            }
        )
    return 1 if status or any(done) else 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("get", "run", "page"))
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"{', '.join(OLD)}, newest")
    parser.add_argument("--core", action="store_true", help="only what CI runs on the old versions")
    given = parser.parse_intermixed_args()
    if given.command == "page":
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
        return 0
    if given.command == "get":
        return get(given.versions or OLD)
    return run(given.versions or (*OLD, _NEWEST), given.core)


if __name__ == "__main__":
    sys.exit(main())
