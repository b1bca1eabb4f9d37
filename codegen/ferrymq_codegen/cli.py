"""The command line: `generate`, `diff` and `reference`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ferrymq_codegen import amqp_0_9_1, amqp_1_0, output
from ferrymq_codegen.changes import Change
from ferrymq_codegen.format import format_files
from ferrymq_codegen.identifiers import is_name
from ferrymq_codegen.mistakes import Location, Mistake, SpecError, shown
from ferrymq_codegen.specification import (
    CORE,
    CORE_0_9_1,
    DTD,
    DTD_0_9_1,
    FOLDERS,
    FOLDERS_0_9_1,
    ROOT,
)
from ferrymq_codegen.verify import verify


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol that the generator knows.

    `folders` are those of its XML, `package` the package that is made from them. `build` returns
    the files of a package, not formatted, from folders, a DTD and its import name; `compare` the
    differences between two lists of folders; `pages` the reference by file name.
    """

    folders: Sequence[Path]
    dtd: Path
    package: str
    build: Callable[[Sequence[Path], Path, str], dict[str, str]]
    compare: Callable[[Sequence[Path], Sequence[Path], Path], list[Change]]
    pages: Callable[[], dict[str, str]]


PROTOCOLS: Final = {
    "1.0": Protocol(FOLDERS, DTD, CORE, amqp_1_0.build, amqp_1_0.compare, amqp_1_0.pages),
    "0-9-1": Protocol(
        FOLDERS_0_9_1,
        DTD_0_9_1,
        CORE_0_9_1,
        amqp_0_9_1.build,
        amqp_0_9_1.compare,
        amqp_0_9_1.pages,
    ),
}
"""The protocols by their version."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit status: 0 success, 1 mistakes or differences, 2 usage."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "diff":
            return _diff(options)
        if options.command == "reference":
            return _reference(options)
        return _generate(options)
    except SpecError as error:
        for mistake in error.mistakes:
            print(mistake, file=sys.stderr)
        return 1


def _generate(options: argparse.Namespace) -> int:
    if options.spec or options.out or options.dtd or options.protocol:
        return _package(PROTOCOLS[options.protocol or "1.0"], options)
    return max(_package(protocol, options) for protocol in PROTOCOLS.values())


def _package(protocol: Protocol, options: argparse.Namespace) -> int:
    """Write or compare one package."""
    out: Path = options.out or ROOT / "generated" / protocol.package
    if not is_name(out.name):
        what = f'"{out.name}" cannot be imported: --out must end in a package name'
        raise SpecError([Mistake(Location(shown(out), 0), what)])
    spec = options.spec or protocol.folders
    files = format_files(protocol.build(spec, options.dtd or protocol.dtd, out.name))
    if options.verify:
        verify(files, out.name)
    if options.check:
        return output.check(files, out)
    output.replace(files, out)
    print(f"{shown(out)}: {len(files)} files")
    return 0


def _diff(options: argparse.Namespace) -> int:
    from ferrymq_codegen.report import as_json, as_table

    protocol = PROTOCOLS[options.protocol or "1.0"]
    old, new = [*options.both, options.old], [*options.both, options.new]
    changes = protocol.compare(old, new, options.dtd or protocol.dtd)
    if options.json:
        print(as_json(changes))
    else:
        as_table(changes)
    return 1 if any(change.breaking for change in changes) else 0


def _reference(options: argparse.Namespace) -> int:
    out: Path = options.out
    pages = PROTOCOLS[options.protocol or "1.0"].pages()
    out.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (out / name).write_text(text, "utf-8")
    print(f"{shown(out)}: {len(pages)} pages")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m codegen", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    generate = commands.add_parser("generate", help="write the Python types of a spec")
    generate.add_argument(
        "--spec",
        action="append",
        type=Path,
        metavar="DIR",
        help="a folder of .xml files; may be repeated (default: those of the protocol)",
    )
    generate.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="the package to write; its name is the import name (default: that of the protocol)",
    )
    generate.add_argument(
        "--check", action="store_true", help="write nothing, fail on any difference"
    )
    generate.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not import the output nor run mypy on it",
    )
    diff = commands.add_parser("diff", help="the wire-level differences between two specs")
    diff.add_argument("old", type=Path, metavar="OLD", help="a folder of .xml files")
    diff.add_argument("new", type=Path, metavar="NEW", help="a folder of .xml files")
    diff.add_argument(
        "--with",
        dest="both",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="a folder that both specs build upon; may be repeated",
    )
    diff.add_argument("--json", action="store_true", help="print JSON")
    reference = commands.add_parser("reference", help="write pages about every type, in Markdown")
    reference.add_argument("--out", type=Path, required=True, metavar="DIR", help="their folder")
    for command in (generate, diff):
        command.add_argument(
            "--dtd", type=Path, help="the DTD to validate against (default: the protocol's)"
        )
    for command in (generate, diff, reference):
        command.add_argument(
            "--protocol",
            choices=list(PROTOCOLS),
            help="the version of AMQP (default: 1.0; generate without options writes all packages)",
        )
    return parser
