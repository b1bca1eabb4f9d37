"""The command line: `generate`, `diff` and `reference`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ferrymq_codegen import output
from ferrymq_codegen.format import format_files
from ferrymq_codegen.mistakes import Location, Mistake, SpecError, shown
from ferrymq_codegen.names import is_name
from ferrymq_codegen.read import read_spec
from ferrymq_codegen.render import render
from ferrymq_codegen.resolve import resolve
from ferrymq_codegen.specification import DTD, FOLDERS, ROOT
from ferrymq_codegen.verify import verify


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


def build(folders: list[Path], package: str, dtd: Path = DTD) -> dict[str, str]:
    """Return every file of the output by name. Raises `SpecError`."""
    return format_files(render(resolve(read_spec(folders, dtd)), package))


def _generate(options: argparse.Namespace) -> int:
    folders = options.spec or list(FOLDERS)
    out: Path = options.out
    if not is_name(out.name):
        what = f'"{out.name}" cannot be imported: --out must end in a package name'
        raise SpecError([Mistake(Location(shown(out), 0), what)])
    files = build(folders, out.name, options.dtd)
    if options.verify:
        verify(files, out.name)
    if options.check:
        return output.check(files, out)
    output.replace(files, out)
    print(f"{shown(out)}: {len(files)} files")
    return 0


def _diff(options: argparse.Namespace) -> int:
    from ferrymq_codegen.diff import compare
    from ferrymq_codegen.report import as_json, as_table

    old = resolve(read_spec([*options.both, options.old], options.dtd))
    new = resolve(read_spec([*options.both, options.new], options.dtd))
    changes = compare(old, new)
    if options.json:
        print(as_json(changes))
    else:
        as_table(changes)
    return 1 if any(change.breaking for change in changes) else 0


def _reference(options: argparse.Namespace) -> int:
    from ferrymq_codegen.reference import write

    out: Path = options.out
    print(f"{shown(out)}: {len(write(out))} pages")
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
        help="a folder of .xml files; may be repeated (default: spec and spec/extensions)",
    )
    generate.add_argument(
        "--out",
        type=Path,
        default=ROOT / "generated" / "ferrymq_types",
        metavar="DIR",
        help="the package to write; its name is the import name",
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
            "--dtd", type=Path, default=DTD, help="the DTD to validate against (%(default)s)"
        )
    return parser
