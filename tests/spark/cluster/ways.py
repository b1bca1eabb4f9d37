"""The ways to bring the data source to executors: each makes what it takes, and a way to submit."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.spark.cluster.standalone import HOME, environment

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = (
    "generated/ferrymq_types",
    "runtime/ferrymq_codec",
    "runtime/ferrymq",
    "pipeline/pyspark_ferrymq",
)
# What executors need beside PySpark and ferrymq itself.
NEEDED: Final = ("pyarrow", "librt", "mypy_extensions", "scramp", "asn1crypto", "xxhash")
_JOB: Final = Path(__file__).with_name("job.py")


class Way(NamedTuple):
    """How a job is submitted: the Python of driver and executors, and arguments."""

    driver: Path
    python: str
    arguments: tuple[str, ...] = ()
    register: bool = False


def bare(folder: Path) -> Path:
    """The Python of a new environment that has what is `NEEDED`, and not ferrymq.

    Packages are linked from the one this runs in: nothing is downloaded.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None, f"{name} is not installed"
        places = spec.submodule_search_locations
        whole = Path(places[0] if places else spec.origin or "")
        (site / whole.name).symlink_to(whole)
        # What is known of it, and libraries it brings.
        for beside in (
            *whole.parent.glob(f"{name}-*.dist-info"),
            *whole.parent.glob(f"{name}.libs"),
        ):
            (site / beside.name).symlink_to(beside)
    return folder / "bin" / "python"


def by_files(folder: Path) -> Way:
    """``--py-files``: the sources in a zip; the session has to be told."""
    bundle = folder / "ferrymq.zip"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as out:
        for source in SOURCES:
            package = ROOT / source
            for path in sorted(package.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    out.write(path, path.relative_to(package.parent))
    python = bare(folder / "env")
    return Way(python, str(python), ("--py-files", str(bundle)), register=True)


def wheel(folder: Path) -> Path:
    """The wheel of this checkout, interpreted. It is built from a copy: the build looks after the
    compiled tree of the checkout it is started in, and a pure one removes that."""
    copy = folder / "checkout"
    for source in (*SOURCES, "broker/ferrymq_broker"):
        shutil.copytree(ROOT / source, copy / source, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, copy],
        capture_output=True, text=True, check=False,
        env={**environment(), "FERRYMQ_PURE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (found,) = folder.glob("*.whl")
    return found


def by_wheel(folder: Path) -> Way:
    """A wheel in the environment that executors have already: nothing else to do."""
    python = bare(folder / "env")
    (site,) = (folder / "env" / "lib").glob("*/site-packages")
    with zipfile.ZipFile(wheel(folder)) as built:
        built.extractall(site)
    return Way(python, str(python))


def by_archive(folder: Path) -> Way:
    """The whole environment in an archive that Spark hands out, as venv-pack makes it.

    The driver has the same, unpacked under the same name in the directory it is started in.
    """
    python = by_wheel(folder).driver
    packed = folder / "env.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1, dereference=False) as out:
        for path in sorted((folder / "env").iterdir()):
            out.add(path, path.name)
    return Way(python, "./env/bin/python", ("--archives", f"{packed}#env"))


WAYS: Final = {"py-files": by_files, "wheel": by_wheel, "archive": by_archive}


def submit(master: str, way: Way, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the job on a cluster, the URL of its master, from `folder`, as somebody would by hand."""
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    command = [str(HOME / "bin/spark-submit"), "--master", master, *way.arguments]
    for name, value in options.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(_JOB), "--url", url, *(["--register"] if way.register else [])]
    return subprocess.run(
        command,
        env={
            **environment(),
            "PYSPARK_PYTHON": way.python,
            "PYSPARK_DRIVER_PYTHON": str(way.driver),
        },
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
