"""`ferrymq generate`. Importing this module imports no requirement of the generator: every run of
`ferrymq` does so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def generate(
    specs: Annotated[
        list[Path], typer.Argument(metavar="SPEC...", help="XML files, or folders of them.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder of the package, or the folder in which the package lies.",
        ),
    ] = Path(),
    package: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Import name of the package, such as shop_types or shop.types. "
            "Default: the last part of --out.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; fail if the package is not what SPEC says."),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            help="Import the package before anything is replaced, and check its types with mypy "
            "if that is installed."
        ),
    ] = True,
) -> None:
    """Write a Python package with the types of your XML files.

    Types of AMQP 1.0 and of the extensions in ferrymq_types can be used by their names. The package
    refers to them.
    """
    try:
        from ferrymq_codegen.amqp_1_0.own_package import generate as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ferrymq"):
            raise
        typer.echo(f"ferrymq: {error.name} is missing; pip install 'ferrymq[codegen]'", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(run(specs, out, package, check=check, verify=verify))
