"""hatch_build.py on a small project of the same shape: several roots, one mypyc group."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hatch_build

ROOT = Path(__file__).resolve().parents[2]

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "sample"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["lower/sample_codec", "upper/sample_app"]
[tool.hatch.build.hooks.custom]
path = "hatch_build.py"
[tool.ferrymq.mypyc]
group = "sample"
include = ["*.py"]
exclude = ["*/__init__.py"]
opt-level = 0
debug-level = 0
multi-file = true
[tool.mypy]
strict = true
mypy_path = ["lower", "upper"]
explicit_package_bases = true
"""
COUNTER = '''
class Counter:
    """Counts."""

    def __init__(self, start: int) -> None:
        self.value: int = start

    def step(self, by: int) -> int:
        self.value += by
        return self.value
'''
USE = """
from sample_codec.counter import Counter


def count(times: int) -> int:
    counter = Counter(0)
    for _ in range(times):
        counter.step(2)
    return counter.value
"""

can_compile = pytest.mark.skipif(
    hatch_build.why_not() is not None, reason=str(hatch_build.why_not())
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where these tests keep objects: not among the user's."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {
        "pyproject.toml": PYPROJECT,
        "lower/sample_codec/__init__.py": "",
        "lower/sample_codec/counter.py": COUNTER,
        "upper/sample_app/__init__.py": "",
        "upper/sample_app/use.py": USE,
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    shutil.copy(ROOT / "hatch_build.py", root)
    return root


def run(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the copy of hatch_build.py that lies in the project."""
    return subprocess.run(
        [sys.executable, "hatch_build.py", *arguments],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def imported(project: Path, path: str, code: str) -> list[str]:
    """What `code` prints when `path` is on the import path; one item a line."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


# In a process of its own: mypyc works relative to the current folder.
WHEEL = """
from hatchling.builders.wheel import WheelBuilder
import zipfile
for wheel in WheelBuilder('.').build(directory='dist', versions=['standard']):
    print(wheel, *zipfile.ZipFile(wheel).namelist(), sep='\\n')
"""
ASK = "import sample_app.use as u; print(u.count(21), u.__file__)"


@can_compile
def test_build_compiles_all_roots_into_one_tree_and_follows_changes(project: Path) -> None:
    built = run(project, "build")
    assert built.returncode == 0, built.stderr
    assert built.stdout.startswith("compiled build: 2 modules"), built.stdout
    # Where mypy takes long, it says now and then how long it has taken.
    said = [line for line in built.stderr.splitlines() if not line.startswith("    ")]
    assert said[0].startswith("compiling 2 modules: about "), said
    assert said[1] == "1/2 mypy checks the types and translates to C"
    assert re.fullmatch(r"2/2 the C compiler: \d+ files", said[2])
    result, file = imported(project, "build/compiled", ASK)
    assert result == "42"
    assert file.endswith(hatch_build.EXTENSION_SUFFIX)
    assert (project / "build/compiled/sample_codec/counter.py").read_text("utf-8") == COUNTER

    again = run(project, "build")
    assert "up to date" in again.stdout
    assert again.stderr == ""
    assert run(project, "status").stdout == "compiled\n"

    source = project / "upper/sample_app/use.py"
    source.write_text(USE.replace("step(2)", "step(3)"), "utf-8")
    assert run(project, "status").stdout == "stale\n"
    assert run(project, "build").returncode == 0
    assert imported(project, "build/compiled", ASK)[0] == "63"

    native = "\n".join(path.read_text() for path in project.glob("build/mypyc/*/c/*app___use.c"))
    assert "CPyDef_counter___Counter___step(" in native, "the call across packages is not direct"


@can_compile
def test_a_first_build_in_the_background(project: Path) -> None:
    # The background build has the same outputs, so this waits for it.
    begun = run(project, "build", "--behind")
    assert begun.returncode == 0
    assert begun.stderr.splitlines()[0].startswith("the modules are compiled in the background")
    assert begun.stdout.startswith("compiled build: 2 modules")
    assert imported(project, "build/compiled", ASK)[0] == "42"
    assert "up to date" in run(project, "build", "--behind").stdout


# A C compiler that writes down what it is called with.
COMPILER = """#!/bin/sh
echo "$@" >> {log}
exec {compiler} "$@"
"""


@can_compile
@pytest.mark.slow
def test_checkouts_share_objects_and_notice_damaged_ones(project: Path, tmp_path: Path) -> None:
    log, compiler, cache = tmp_path / "log", tmp_path / "cc", tmp_path / "cache"
    real = (sysconfig.get_config_var("CC") or "cc").split()[0]
    compiler.write_text(COMPILER.format(log=log, compiler=real), "utf-8")
    compiler.chmod(0o755)

    def compiled(root: Path) -> int:
        """Build in a checkout; how many files of it the compiler was given."""
        log.write_text("", "utf-8")
        built = run(root, "build", CC=str(compiler), XDG_CACHE_HOME=str(cache))
        assert built.returncode == 0, built.stderr
        assert imported(root, "build/compiled", ASK)[0] == "42"
        calls = [line.split() for line in log.read_text("utf-8").splitlines()]
        return sum("-c" in call and "probe.c" not in " ".join(call) for call in calls)

    others = [shutil.copytree(project, tmp_path / name) for name in ("second", "third")]
    files = compiled(project)
    assert files > 4
    kept = list((cache / "ferrymq" / "objects").iterdir())
    assert len(kept) == files
    assert compiled(others[0]) == 0
    for path in kept:
        path.write_bytes(path.read_bytes()[:-1])
    assert compiled(others[1]) == files


@can_compile
@pytest.mark.slow
def test_hot_modules_are_compiled_for_speed(project: Path, tmp_path: Path) -> None:
    log, compiler = tmp_path / "log", tmp_path / "cc"
    real = (sysconfig.get_config_var("CC") or "cc").split()[0]
    compiler.write_text(COMPILER.format(log=log, compiler=real), "utf-8")
    compiler.chmod(0o755)
    settings = project / "pyproject.toml"
    hot = 'hot = ["*/counter.py"]\nhot-opt-level = 1\nopt-level = 0\n'
    settings.write_text(PYPROJECT.replace("opt-level = 0\n", hot), "utf-8")
    built = run(project, "build", CC=str(compiler), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert built.returncode == 0, built.stderr
    levels = {}
    for call in map(str.split, log.read_text("utf-8").splitlines()):
        for module in ("counter", "use"):
            if any(word.endswith(f"___{module}.c") for word in call):
                levels[module] = [word for word in call if word.startswith("-O")][-1]
    assert levels == {"counter": "-O1", "use": "-O0"}


def test_objects_used_last_stay_when_there_are_too_many(tmp_path: Path) -> None:
    objects = hatch_build._Objects(tmp_path, [])
    product = tmp_path.parent / "some.o"
    for second, name in enumerate("abc"):
        product.write_bytes(bytes(1000))
        objects.keep(name, product)
        os.utime(tmp_path / name, (second, second))
    assert objects.fetch("a", product)
    objects.shrink(2500)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


@can_compile
@pytest.mark.slow
def test_a_module_that_mypyc_refuses_is_an_error_and_keeps_the_old_tree(project: Path) -> None:
    # A home that is a file: nothing can be kept there.
    nowhere = str(project / "pyproject.toml")
    assert run(project, "build", XDG_CACHE_HOME=nowhere).returncode == 0
    (project / "upper/sample_app/use.py").write_text(USE.replace("(0)", "('0')"), "utf-8")
    failed = run(project, "build")
    assert failed.returncode == 1
    assert "use.py:6: error" in failed.stdout + failed.stderr
    assert "build failed" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert imported(project, "build/compiled", ASK)[0] == "42"
    assert [path.name for path in (project / "build").glob("*.new")] == []


@can_compile
def test_a_wheel_holds_sources_extensions_and_the_shared_library(project: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    assert WheelBuilder.PLUGIN_NAME == "wheel"
    wheel, *names = imported(project, "", WHEEL)[-20:]
    listing = "\n".join([wheel, *names])
    suffix = hatch_build.EXTENSION_SUFFIX
    for name in ("sample_codec/counter", "sample_app/use"):
        assert f"{name}.py" in listing
        assert f"{name}{suffix}" in listing
    assert f"sample__mypyc{suffix}" in listing
    assert "-none-any.whl" not in listing


def test_pure_build_leaves_no_tree(project: Path) -> None:
    (project / "build/compiled").mkdir(parents=True)
    built = run(project, "build", FERRYMQ_PURE="1")
    assert built.returncode == 0
    assert built.stdout == "pure build: FERRYMQ_PURE is set, so the modules run interpreted\n"
    assert not (project / "build/compiled").exists()


def test_without_a_compiler_the_build_is_pure_and_says_so(project: Path) -> None:
    built = run(project, "build", PATH="", CC="no-such-compiler")
    assert built.returncode == 0, built.stderr
    assert built.stdout.startswith("pure build: no C compiler"), built.stdout
    assert built.stderr == ""
    path = os.pathsep.join(["build/compiled", "lower", "upper"])
    assert imported(project, path, ASK)[1].endswith(".py")


def tree_of(project: Path) -> dict[str, tuple[int, int]]:
    """Every file that an import from build/compiled finds: its inode and when it was written."""
    tree = project / "build/compiled"
    return {
        str(path.relative_to(tree)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in tree.rglob("*")
        if path.is_file()
    }


def test_a_pure_wheel_leaves_the_compiled_tree_alone(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = project / "build/compiled/sample_codec/counter.so"
    used.parent.mkdir(parents=True)
    used.write_text("in use")
    before = tree_of(project)
    monkeypatch.setenv("FERRYMQ_PURE", "1")
    listing = imported(project, "", WHEEL)
    assert "sample_codec/counter.py" in listing
    assert not any(name.endswith(hatch_build.EXTENSION_SUFFIX) for name in listing)
    assert tree_of(project) == before


@can_compile
@pytest.mark.slow
def test_a_wheel_of_other_sources_leaves_the_compiled_tree_alone(project: Path) -> None:
    assert run(project, "build").returncode == 0
    before = tree_of(project)
    (project / "upper/sample_app/use.py").write_text(USE.replace("step(2)", "step(3)"), "utf-8")
    listing = "\n".join(imported(project, "", WHEEL))
    assert f"sample_app/use{hatch_build.EXTENSION_SUFFIX}" in listing
    assert tree_of(project) == before
    assert imported(project, "build/compiled", ASK)[0] == "42"
    assert imported(project, "build/wheel", ASK)[0] == "63"


@can_compile
@pytest.mark.slow
def test_a_build_under_a_running_process(project: Path) -> None:
    """It goes on importing what it was started with, and its tree goes after it."""
    assert run(project, "build").returncode == 0
    tree = (project / "build/compiled").resolve()
    code = f"import sample_codec.counter; print('up', flush=True); input(); {ASK}"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        source = project / "upper/sample_app/use.py"
        for by in (3, 4):
            source.write_text(USE.replace("step(2)", f"step({by})"), "utf-8")
            assert run(project, "build").returncode == 0
        assert imported(project, "build/compiled", ASK)[0] == "84"
        assert process.communicate("\n")[0].split()[0] == "42"
    finally:
        process.kill()
        process.wait()
    # Sources that were built before are not compiled again.
    source.write_text(USE.replace("step(2)", "step(3)"), "utf-8")
    built = run(project, "build")
    assert (built.returncode, built.stderr) == (0, "")
    assert imported(project, "build/compiled", ASK)[0] == "63"
    assert not tree.exists()
    assert len(list((project / "build").glob("compiled-*"))) == 2


@can_compile
@pytest.mark.slow
def test_a_pure_build_under_a_running_process(project: Path) -> None:
    assert run(project, "build").returncode == 0
    tree = (project / "build/compiled").resolve()
    assert run(project, "build", FERRYMQ_PURE="1").returncode == 0
    assert not (project / "build/compiled").exists()
    assert imported(project, str(tree), ASK)[0] == "42"
