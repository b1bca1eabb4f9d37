"""Compiles the hot modules with mypyc: the build hook of the wheel and the engine of `make build`.

Theory of operation. `[tool.ferrymq.mypyc]` in pyproject.toml lists the modules to compile. They
form ONE mypyc group, so a call from one package into another is a direct C call. The result is a
*tree*: a folder with every package of every import root, each `.py` file beside the extension
compiled from it, and the group's shared library (`ferrymq__mypyc`) at the top::

    build/compiled -> compiled-0123456789ab
    build/compiled/ferrymq__mypyc.cpython-311-x86_64-linux-gnu.so
    build/compiled/ferrymq_codec/reader.py
    build/compiled/ferrymq_codec/reader.cpython-311-x86_64-linux-gnu.so

The source folders never hold an extension. Whoever wants the compiled variant puts the tree in
front of the import path (`PYTHONPATH=build/compiled`), whoever wants the interpreted one does not;
neither can pick up the other by accident. A wheel takes its extensions from such a tree; an
editable install points at the sources and is therefore always interpreted.

A tree is never changed. `build/compiled` is a link to the tree of the present sources, which is
replaced in one step. A process that runs from the folder behind the link keeps its modules: a tree
goes only when it is neither the present nor the previous one, and no process has loaded from it. A
wheel never changes the link: it has a tree of its own, unless the present one fits.

    python hatch_build.py build [--force] [--out DIR] [--only GLOB]...
    python hatch_build.py build --behind  in the background if nothing is compiled yet
    python hatch_build.py status        compiled, stale or pure: what build/compiled holds
    python hatch_build.py can-compile   exit status 0 if this machine can

Objects of the C compiler are kept outside the checkout too, in `ferrymq/objects` below
`$XDG_CACHE_HOME` or `~/.cache`, each under a hash of what it was compiled from. So a fresh clone or
a second worktree compiles only what is new. The folder is bounded, any number of builds may use it
at once, and a build that cannot write there does without.

`FERRYMQ_PURE=1` builds nothing, and so does a machine without a C compiler or the Python headers:
one line says so and the interpreted files are used. A module that mypyc or the C compiler refuses
is an error.

One module because hatchling loads a build hook from a single file, before ferrymq is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import gc
import hashlib
import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

STAMP = ".ferrymq-build"
# How long a build takes, in seconds of one processor: mypy and the C compiler, for each module.
CHECK_SECONDS = 0.06
C_SECONDS = 0.6
# Seconds between two lines of progress.
EVERY = 5.0
# Prints those lines while mypy works, whose threads would wait for it. It ends with its parent.
TICK = """
import contextlib, os, sys, time
parent, about, every = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
began = time.monotonic()
with contextlib.suppress(KeyboardInterrupt):
    while True:
        time.sleep(every)
        if os.getppid() != parent:
            break
        done = time.monotonic() - began
        rest = f" of about {about:.0f} s" if done < about else ", longer than usual"
        print(f"    {done:.0f} s{rest}", file=sys.stderr, flush=True)
"""
# What the kept objects may take, in bytes: those of some ten versions of the sources.
CACHE_BYTES = 256 << 20
EXTENSION_SUFFIX: str = sysconfig.get_config_var("EXT_SUFFIX") or ".so"


class BuildError(Exception):
    """The sources cannot be compiled; the message says why."""


class Config(NamedTuple):
    """What pyproject.toml says about the compiled build; paths are relative to `root`."""

    root: Path
    group: str
    packages: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    # Packages that no compiled module uses, by patterns of mypy, which does not read them.
    unread: tuple[str, ...]
    # The modules of the hot path, and the level of the C compiler for them and for the others.
    hot: tuple[str, ...]
    hot_opt_level: str
    opt_level: str
    debug_level: str
    multi_file: bool

    @classmethod
    def read(cls, root: Path, only: tuple[str, ...] = ()) -> Config:
        """Read `root`/pyproject.toml; `only` narrows the modules to those matching one glob."""
        tool = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
        mypyc = tool["ferrymq"]["mypyc"]
        return cls(
            root=root,
            group=mypyc["group"],
            packages=tuple(tool["hatch"]["build"]["targets"]["wheel"]["packages"]),
            include=only or tuple(mypyc["include"]),
            exclude=tuple(mypyc["exclude"]),
            unread=tuple(mypyc.get("unread", ())),
            hot=tuple(mypyc.get("hot", ())),
            hot_opt_level=str(mypyc.get("hot-opt-level", mypyc["opt-level"])),
            opt_level=str(mypyc["opt-level"]),
            debug_level=str(mypyc["debug-level"]),
            multi_file=bool(mypyc["multi-file"]),
        )

    def files(self) -> list[Path]:
        """Every file the packages ship, in a stable order."""
        found: list[Path] = []
        for package in self.packages:
            for path in sorted((self.root / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    found.append(path)
        return found

    def compiled(self) -> list[Path]:
        """The Python files to compile, in a stable order."""
        chosen: list[Path] = []
        for path in self.files():
            name = path.relative_to(self.root).as_posix()
            if (
                path.suffix == ".py"
                and any(fnmatch.fnmatchcase(name, glob) for glob in self.include)
                and not any(fnmatch.fnmatchcase(name, glob) for glob in self.exclude)
            ):
                chosen.append(path)
        return chosen

    def is_hot(self, path: Path) -> bool:
        """Whether a module is compiled for speed rather than for size."""
        name = path.relative_to(self.root).as_posix()
        return any(fnmatch.fnmatchcase(name, glob) for glob in self.hot)

    def in_tree(self, path: Path) -> Path:
        """Where a source file lies in a tree: its path below the import root."""
        for package in self.packages:
            if path.is_relative_to(self.root / package):
                return path.relative_to((self.root / package).parent)
        raise BuildError(f"{path} belongs to no package")

    def module(self, path: Path) -> str:
        """The import name of a source file that is not an `__init__`."""
        return ".".join(self.in_tree(path).with_suffix("").parts)

    def digest(self) -> str:
        """A hash of everything the tree depends on: sources, settings, compiler versions."""
        digest = hashlib.sha256()
        facts = [sys.version, EXTENSION_SUFFIX, _mypy_version(), *map(str, self[1:])]
        digest.update("\0".join(facts).encode())
        for path in [Path(__file__).resolve(), *self.files()]:
            digest.update(f"\0{path}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def work_dir(self) -> Path:
        """Where generated C and objects are kept from one build to the next."""
        facts = [sys.prefix, _mypy_version(), self.opt_level, self.debug_level, *self.include]
        facts += [self.hot_opt_level, *self.hot]
        key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:8]
        mode = "multi" if self.multi_file else "single"
        return self.root / "build" / "mypyc" / f"{sys.implementation.cache_tag}-{mode}-{key}"


def _mypy_version() -> str:
    try:
        return importlib.metadata.version("mypy")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def why_not() -> str | None:
    """Why nothing can be compiled here, in a few words; None when it can."""
    if os.environ.get("FERRYMQ_PURE", "") not in ("", "0"):
        return "FERRYMQ_PURE is set"
    if sys.implementation.name != "cpython":
        return f"mypyc needs CPython, this is {sys.implementation.name}"
    try:
        importlib.import_module("mypyc.build")
        importlib.import_module("setuptools")  # it provides distutils where Python no longer does
    except ImportError as error:
        return f"{error.name} is not installed"
    from distutils import ccompiler
    from distutils.errors import CCompilerError, DistutilsError
    from distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as folder, _quiet():
        probe = Path(folder, "probe.c")
        probe.write_text(
            "#include <Python.h>\nint ferrymq_probe(void) { return PY_VERSION_HEX; }\n"
        )
        try:
            compiler: Any = ccompiler.new_compiler()
            customize_compiler(compiler)
            compiler.compile(
                [str(probe)], output_dir=folder, include_dirs=[sysconfig.get_path("include")]
            )
        except (CCompilerError, DistutilsError, OSError):
            return "no C compiler with the Python headers was found"
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the probe, whose compiler would otherwise complain on file descriptor 2."""
    sys.stderr.flush()
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one build at a time work in a checkout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            import fcntl
        except ImportError:  # Windows: two builds at once are the caller's affair
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("waiting for another build of this checkout", file=sys.stderr, flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    """mypy finds its configuration and names its modules relative to the current folder."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class _Objects:
    """The objects that builds of this user have compiled, each under a hash of what it came from.

    A file is the SHA-256 of the object followed by the object, so that damage is a miss. Files get
    their name when they are complete, and are copied, never linked: nobody sees half of one, and
    no compiler writes into one.
    """

    def __init__(self, folder: Path, facts: list[str]) -> None:
        self.folder = folder
        self._facts = facts

    @classmethod
    def open(cls, compiler: Any) -> _Objects | None:
        """Return what is kept of this compiler; None where nothing can be."""
        if compiler.compiler_type != "unix":
            return None
        try:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            folder = folder / "ferrymq" / "objects"
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK | os.X_OK):
                return None
            asked = subprocess.run(
                [compiler.compiler_so[0], "--version"], capture_output=True, check=True
            )
        except (OSError, RuntimeError, subprocess.CalledProcessError):
            return None
        # Where the headers are differs between environments; the versions say what is in them.
        command = [one for one in compiler.compiler_so if not one.startswith("-I")]
        facts = [sys.version, EXTENSION_SUFFIX, str(sysconfig.get_config_var("CONFIG_ARGS"))]
        facts += [_mypy_version(), asked.stdout.decode("latin-1"), *command]
        facts += [os.environ.get(name, "") for name in ("CPATH", "C_INCLUDE_PATH")]
        return cls(folder, facts)

    def begin(self, options: dict[str, Any]) -> hashlib._Hash:
        """Begin the keys of what is compiled with these options of `CCompiler.compile`."""
        flags = ("macros", "debug", "extra_preargs", "extra_postargs")
        facts = [*self._facts, *(repr(options.get(name)) for name in flags)]
        digest = hashlib.sha256("\0".join(facts).encode())
        for header in sorted(options.get("depends") or []):
            _add_file(digest, Path(header))
        return digest

    def fetch(self, key: str, product: Path) -> bool:
        """Write the object `key` to `product`; False if there is none."""
        try:
            kept = (self.folder / key).read_bytes()
            if hashlib.sha256(kept[32:]).digest() != kept[:32]:
                return False
            # The files used last are removed last.
            os.utime(self.folder / key)
        except OSError:
            return False
        product.parent.mkdir(parents=True, exist_ok=True)
        product.write_bytes(kept[32:])
        return True

    def keep(self, key: str, product: Path) -> None:
        """Keep the object at `product` under `key`, if there is room and leave to."""
        content = product.read_bytes()
        try:
            handle, name = tempfile.mkstemp(prefix="new-", dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(content).digest())
                    file.write(content)
                os.replace(name, self.folder / key)
            except BaseException:
                os.unlink(name)
                raise
        except OSError:
            return

    def shrink(self, limit: int = CACHE_BYTES) -> None:
        """Remove the files used longest ago until the rest takes at most `limit` bytes."""
        kept = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # Another build has removed it.
                about = path.stat()
                kept.append((about.st_mtime, about.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _add_file(digest: hashlib._Hash, path: Path) -> None:
    """Add the name and the content of a file to a hash."""
    content = path.read_bytes()
    digest.update(f"\0{path.name}\0{len(content)}\0".encode())
    digest.update(content)


class _Progress:
    """How far a build is, on standard error: a line every few seconds."""

    def __init__(self, modules: int) -> None:
        self.modules = modules
        self.total = 0
        self.done = 0
        self.began = time.monotonic()
        self._said = 0.0
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Say what is going to happen, and about how long it takes."""
        cores = os.cpu_count() or 1
        seconds = (CHECK_SECONDS + C_SECONDS / cores) * self.modules
        self.say(
            f"compiling {self.modules} modules: about {max(5, round(seconds, -1)):.0f} s the first"
            f" time, on {cores} processors; later only what has changed"
        )
        self.say("1/2 mypy checks the types and translates to C")

    @contextlib.contextmanager
    def checking(self) -> Iterator[None]:
        """Say how long mypy has worked, every few seconds."""
        seconds = [str(CHECK_SECONDS * self.modules), str(EVERY)]
        command = [sys.executable, "-S", "-c", TICK, str(os.getpid()), *seconds]
        with subprocess.Popen(command) as ticks:
            try:
                yield
            finally:
                ticks.kill()

    def compile(self, files: int) -> None:
        """Begin the part whose length is known."""
        self.total = files
        self.began = time.monotonic()
        self.say(f"2/2 the C compiler: {files} files")

    def step(self) -> None:
        """Count one C file, compiled or still fresh."""
        with self._lock:
            self.done += 1
            now = time.monotonic()
            if now - self._said >= EVERY and self.done < self.total:
                left = (now - self.began) / self.done * (self.total - self.done)
                self.say(f"    {self.done} of {self.total} files, about {left:.0f} s left")

    def say(self, line: str) -> None:
        """Print a line at once, whoever reads it."""
        self._said = time.monotonic()
        print(line, file=sys.stderr, flush=True)


def _compile(config: Config, target: Path, progress: _Progress) -> None:
    """Run mypyc and the C compiler; put the extensions into `target`, laid out as packages."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    work = config.work_dir()
    paths = [path.relative_to(config.root).as_posix() for path in config.compiled()]
    with _working_in(config.root), contextlib.ExitStack() as checking:
        checking.enter_context(progress.checking())
        # mypy makes millions of objects that last until the process ends: looking for cycles among
        # them, at last when the process ends, would cost a quarter of the time.
        gc.disable()
        try:
            extensions = mypycify(
                # What is imported and not compiled may need packages that are not here.
                ["--config-file", _mypy_settings(config), "--follow-imports=silent", *paths],
                only_compile_paths=paths,
                group_name=config.group,
                opt_level=config.opt_level,
                debug_level=config.debug_level,
                multi_file=config.multi_file,
                target_dir=str(work.relative_to(config.root) / "c"),
            )
        except SystemExit as stopped:  # mypyc's way to say that it has printed the errors
            raise BuildError("mypyc refused the sources; its messages are above") from stopped
        finally:
            checking.close()
            gc.freeze()
            gc.enable()
        hot = {_c_file(config.module(path)) for path in config.compiled() if config.is_hot(path)}
        for extension in extensions:
            extension.extra_compile_args = _c_flags(extension.extra_compile_args)
            if sys.platform == "linux":
                extension.extra_link_args.append("-Wl,--gc-sections")
        command: Any = build_ext(Distribution({"name": config.group, "ext_modules": extensions}))
        command.build_lib = str(work / "lib")
        command.build_temp = str(work / "o")
        command.parallel = os.cpu_count() or 1
        try:
            command.ensure_finalized()
            header = work / "c" / f"__native_internal_{config.group}.h"
            _compile_in_parallel(command, header, hot, f"-O{config.hot_opt_level}", progress)
            progress.compile(sum(len(extension.sources) for extension in extensions))
            command.run()
        except Exception as error:
            raise BuildError(f"the C compiler failed: {error}") from error
        for extension in extensions:
            relative = command.get_ext_filename(extension.name)
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(work / "lib" / relative, target / relative)


def _mypy_settings(config: Config) -> str:
    """Write the settings of mypy for the build, and return their file, relative to the root."""
    path = Path("build", "mypyc", "settings.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = Path("pyproject.toml").read_text("utf-8")
    if config.unread:
        modules = ", ".join(f'"{name}"' for name in config.unread)
        text += f"\n[[tool.mypy.overrides]]\nmodule = [{modules}]\n"
        text += 'ignore_missing_imports = true\nfollow_imports = "skip"\n'
    path.write_text(text, "utf-8")
    return path.as_posix()


def _compile_in_parallel(
    command: Any, header: Path, hot: set[str], hot_level: str, progress: _Progress
) -> None:
    """Make setuptools compile one extension's C files side by side, and only what nobody compiled.

    `command` is a `build_ext`; its compiler exists only once it runs. `header` is what the C files
    of the group include first. `hot` are the names of C files that get the flag `hot_level` too.
    """
    build_all = command.build_extensions
    headers = {
        name: _PrecompiledHeader(header, command.extensions[0], name, level)
        for name, level in (("group", []), ("hot", [hot_level]))
    }

    def build_extensions() -> None:
        compiler = command.compiler
        compile_serially = compiler.compile
        kept = _Objects.open(compiler)

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            folder = options.get("output_dir")
            depends = options.get("depends") or []
            begun = kept.begin(options) if kept is not None else hashlib.sha256()

            def compile_one(source: str) -> None:
                (product,) = compiler.object_filenames([source], output_dir=folder)
                if not _is_fresh(product, [source, *depends]):
                    # Files that are not of a module are mypyc's runtime library.
                    name = Path(source).name
                    is_hot = name in hot or not name.startswith("__native_")
                    is_hot = is_hot and compiler.compiler_type == "unix"
                    level = [hot_level] if is_hot else []
                    digest = begun.copy()
                    digest.update(repr(level).encode())
                    _add_file(digest, Path(source))
                    key = digest.hexdigest()
                    if kept is None or not kept.fetch(key, Path(product)):
                        more = headers["hot" if is_hot else "group"].arguments(compiler)
                        postargs = [*(options.get("extra_postargs") or []), *level, *more]
                        compile_serially([source], **options | {"extra_postargs": postargs})
                        if kept is not None:
                            kept.keep(key, Path(product))
                progress.step()

            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                list(pool.map(compile_one, sources))
            objects: list[str] = compiler.object_filenames(sources, output_dir=folder)
            return objects

        compiler.compile = compile_all
        build_all()
        if kept is not None:
            kept.shrink()

    command.build_extensions = build_extensions


class _PrecompiledHeader:
    """The group's header, which has Python.h, compiled once before the first C file that needs it.

    It is included before anything else of a C file. Files that do not ask for it, those of the
    extensions beside the modules, get nothing from it but Python.h, which they include.
    """

    def __init__(self, header: Path, extension: Any, name: str, level: list[str]) -> None:
        self._header = header
        self._extension = extension
        self._name = name
        self._level = level
        self._lock = threading.Lock()
        self._arguments: list[str] | None = None

    def arguments(self, compiler: Any) -> list[str]:
        """Return what a command of the compiler needs to use it: nothing where it cannot be."""
        with self._lock:
            if self._arguments is None:
                self._arguments = self._compile(compiler)
        return self._arguments

    def _compile(self, compiler: Any) -> list[str]:
        # Only GCC finds it by the name of the header.
        if compiler.compiler_type != "unix" or not self._header.exists():
            return []
        asked = subprocess.run(
            [compiler.compiler_so[0], "-v"], capture_output=True, check=False, text=True
        )
        if "\ngcc version" not in asked.stderr:
            return []
        folder = self._header.parent.with_name("pch")
        folder.mkdir(parents=True, exist_ok=True)
        header = folder / f"{self._name}.h"
        header.write_text(f'#include "{self._header.name}"\n', "utf-8")
        product = folder / f"{self._name}.h.gch"
        product.unlink(missing_ok=True)
        places = [*self._extension.include_dirs, *compiler.include_dirs]
        subprocess.run(
            [
                *compiler.compiler_so,
                *(f"-I{place}" for place in places),
                *self._extension.extra_compile_args,
                *self._level,
                *("-x", "c-header", str(header), "-o", str(product)),
            ],
            check=True,
        )
        return [f"-I{place}" for place in self._extension.include_dirs] + ["-include", str(header)]


def _c_flags(flags: list[str]) -> list[str]:
    """mypyc's flags, adjusted to a build on somebody else's machine."""
    # A warning of a newer C compiler must not stop an installation.
    flags = [flag for flag in flags if flag != "-Werror"]
    if os.name == "posix":
        # The modules of the group call each other inside one library: nothing else needs to see
        # their functions, and hidden ones are called without the detour through the linkage table.
        flags.append("-fvisibility=hidden")
        # Tables for debuggers, a tenth of the code. Nothing here throws an exception of C++.
        flags.append("-fno-asynchronous-unwind-tables")
        # The linker leaves out what nobody calls.
        flags.append("-ffunction-sections")
    return flags


def _c_file(module: str) -> str:
    """Return the name of the C file that mypyc writes for a module of a group."""
    return f"__native_{module.replace('.', '___')}.c"


def _is_fresh(product: str, inputs: list[str]) -> bool:
    try:
        made = os.stat(product).st_mtime
        return all(os.stat(name).st_mtime <= made for name in inputs)
    except OSError:
        return False


def is_current(config: Config, out: Path) -> bool:
    """Whether `out` holds a tree built from exactly these sources."""
    stamp = out / STAMP
    return stamp.is_file() and stamp.read_text("utf-8") == config.digest()


def build_behind(config: Config, out: Path) -> bool:
    """Start a build of a first tree in the background; false if there is a tree, or can be none.

    What starts meanwhile finds no tree and runs interpreted, so nobody waits for a compiler. The
    build belongs to the process group of the terminal: Ctrl-C ends it, and the next one goes on
    with the objects that this one has kept.
    """
    if out.is_dir() or why_not() is not None or not config.compiled():
        return False
    print(
        "the modules are compiled in the background: what starts now runs interpreted, several"
        " times slower; what starts when that is done runs compiled",
        file=sys.stderr,
        flush=True,
    )
    command = [sys.executable, str(Path(__file__).resolve()), "build", "--out", str(out)]
    subprocess.Popen([*command, "--low-priority"], stdin=subprocess.DEVNULL)
    return True


def status(config: Config, out: Path) -> str:
    """`compiled` (built from these sources), `stale` (from others) or `pure` (nothing built)."""
    if not out.is_dir():
        return "pure"
    return "compiled" if is_current(config, out) else "stale"


def build_tree(config: Config, out: Path, *, force: bool = False) -> str:
    """Bring the compiled tree at `out` up to date and say in one line what happened.

    `out` becomes a link to the tree, which is replaced in one step. Where nothing can be compiled
    it is removed, so that an import path that names it falls through to the sources.

    Raises:
        BuildError: mypyc or the C compiler refused the sources.
    """
    out = out.parent.resolve() / out.name
    with _locked(config.root / "build" / ".lock"):
        reason = why_not()
        if reason is not None:
            _point(out, None)
            return f"pure build: {reason}, so the modules run interpreted"
        count = len(config.compiled())
        if not count:
            _point(out, None)
            return "pure build: there are no modules to compile"
        if not force and is_current(config, out):
            return f"compiled build: up to date, {count} modules in {out}"
        began = time.monotonic()
        digest = config.digest()
        tree = out.with_name(f"{out.name}-{digest[:12]}")
        if force or not is_current(config, tree):
            if tree.exists():
                tree = out.with_name(f"{tree.name}-{time.time_ns():x}")
            _fill(config, tree, digest)
        _point(out, tree)
        seconds = time.monotonic() - began
        return f"compiled build: {count} modules in {seconds:.0f} s, {out}"


def _fill(config: Config, tree: Path, digest: str) -> None:
    """Compile into a new tree, which has its name only when it is complete."""
    fresh = tree.with_name(tree.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    for path in config.files():
        copy = fresh / config.in_tree(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    progress = _Progress(len(config.compiled()))
    progress.begin()
    try:
        _compile(config, fresh, progress)
    except BuildError:
        shutil.rmtree(fresh)
        raise
    (fresh / STAMP).write_text(digest, "utf-8")
    fresh.rename(tree)


def _point(out: Path, tree: Path | None) -> None:
    """Make `out` a link to the tree, or nothing; remove trees that nobody can be using."""
    previous = out.resolve() if out.is_symlink() else None
    if out.exists() and not out.is_symlink():
        # A tree of an earlier version of this file, which was a folder itself.
        previous = out.with_name(f"{out.name}-{time.time_ns():x}")
        out.rename(previous)
    if tree is None:
        out.unlink(missing_ok=True)
    else:
        link = out.with_name(out.name + ".link")
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(tree.name, target_is_directory=True)
        except OSError:  # Windows asks for a privilege: there, the tree itself takes the place.
            out.unlink(missing_ok=True)
            tree.rename(out)
        else:
            link.replace(out)
    trees = re.compile(re.escape(out.name) + r"-[0-9a-f]{12,16}(-[0-9a-f]+)?(\.new)?")
    for path in out.parent.iterdir():
        if trees.fullmatch(path.name) and path not in (tree, previous) and not _in_use(path):
            shutil.rmtree(path, ignore_errors=True)


def _in_use(tree: Path) -> bool:
    """Whether a process has loaded an extension of the tree, as far as the system tells (Linux)."""
    mark = f"{tree.resolve()}{os.sep}".encode()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if mark in maps.read_bytes():
                return True
        except OSError:  # Gone, or of another user.
            continue
    return False


class FerrymqBuildHook(BuildHookInterface[Any]):
    """Puts the extensions into a wheel; leaves editable installs and source archives alone."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects the files of a target."""
        if self.target_name != "wheel" or version == "editable":
            return
        config = Config.read(Path(self.root).resolve())
        for path, place in _shared_files(config):
            build_data["shared_data"][str(path)] = place
        # What runs from build/compiled is not this wheel's business: that link stays as it is.
        out = config.root / "build" / "compiled"
        if why_not() is not None or not is_current(config, out):
            out = config.root / "build" / "wheel"
        self.app.display_info(build_tree(config, out))
        if not out.is_dir():
            return
        out = out.resolve()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in sorted(out.rglob(f"*{EXTENSION_SUFFIX}")):
            build_data["force_include"][str(path)] = path.relative_to(out).as_posix()


def _shared_files(config: Config) -> Iterator[tuple[Path, str]]:
    """Write the manual pages and the shells' completions of `ferrymq`; yield each file and its
    place in an environment.

    Commands of other extras than the broker's have no page, because their packages are not here.
    """
    if "broker/ferrymq_broker" not in config.packages:
        return
    share = config.root / "build" / "share"
    roots = {str((config.root / package).parent) for package in config.packages}
    # In an isolated build, the path that is there leads to the requirements of the build.
    paths = [*sorted(roots), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    for module in ("man_pages", "completion"):
        command = [sys.executable, "-m", f"ferrymq_broker.cli.{module}", str(share / module)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    for path in sorted((share / "man_pages").glob("*.1")):
        yield path, f"share/man/man1/{path.name}"
    yield share / "completion" / "bash", "share/bash-completion/completions/ferrymq"
    yield share / "completion" / "zsh", "share/zsh/site-functions/_ferrymq"
    yield share / "completion" / "fish", "share/fish/vendor_completions.d/ferrymq.fish"


class ReadmeHook(MetadataHookInterface):
    """Gives the package's description absolute links: an index has no files beside it."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling for the dynamic field `readme`."""
        source = metadata["urls"]["Source"]
        text = Path(self.root, "README.md").read_text("utf-8")
        relative = r"(?!#|[a-z]+:)([^)\s]+)\)"
        text = re.sub(rf"(!\[[^\]]*\])\({relative}", rf"\1({source}/raw/main/\2)", text)
        text = re.sub(rf"\]\({relative}", rf"]({source}/blob/main/\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def main(argv: list[str] | None = None) -> int:
    """The command line: see the module docstring. Returns the exit status."""
    root = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(prog="hatch_build.py", description="compile the hot modules")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="bring the compiled tree up to date")
    build.add_argument("--force", action="store_true", help="rebuild an up-to-date tree too")
    build.add_argument(
        "--behind", action="store_true", help="return at once if nothing is compiled yet"
    )
    build.add_argument("--low-priority", action="store_true", help="leave the processors to others")
    build.add_argument("--only", action="append", default=[], metavar="GLOB")
    build.add_argument("--out", type=Path, default=root / "build" / "compiled", metavar="DIR")
    commands.add_parser("status", help="what build/compiled holds: compiled, stale or pure")
    commands.add_parser("can-compile", help="whether this machine can compile")
    arguments = parser.parse_args(argv)
    if arguments.command == "can-compile":
        reason = why_not()
        print(reason or "yes")
        return 1 if reason else 0
    if arguments.command == "status":
        print(status(Config.read(root), root / "build" / "compiled"))
        return 0
    config = Config.read(root, tuple(arguments.only))
    if arguments.low_priority and hasattr(os, "nice"):
        os.nice(10)
    if arguments.behind and build_behind(config, arguments.out.absolute()):
        return 0
    try:
        print(build_tree(config, arguments.out.absolute(), force=arguments.force))
    except BuildError as error:
        print(f"build failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("build interrupted: the next one continues", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
