"""Check that the packages say the types of what they offer: `make lint` runs this program.

`pyright --verifytypes` counts the public symbols of a package. A symbol counts as typed if its type
is written down, so that every type checker sees the same one: an attribute without an annotation,
for example, counts as untyped. The program prints the shares and fails below the bounds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

# The least share of typed symbols, in percent.
BOUNDS: Final[dict[str, float]] = {
    "ferrymq": 98,
    "ferrymq_codec": 95,
    "ferrymq_codec_0_9_1": 95,
    "ferrymq_types": 95,
    "ferrymq_types_0_9_1": 95,
    "ferrymq_broker": 95,
    "ferrymq_pytest": 98,
}
# The most symbols that are named when a package is below its bound.
SHOWN: Final = 20


def measure(package: str) -> dict[str, Any]:
    """Return what pyright reports of a package."""
    tools = Path(sys.executable).parent
    # Pyright looks for packages in the environment of the first `python` of the path, and in
    # PYTHONPATH, which may hold the compiled build.
    variables = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": "",
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    command = [str(tools / "pyright"), "--verifytypes", package, "--ignoreexternal", "--outputjson"]
    run = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(run.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        raise SystemExit(f"pyright failed for {package}:\n{run.stdout}{run.stderr}") from None
    return report


def untyped(report: dict[str, Any]) -> list[str]:
    """Return a line for each symbol whose own declaration is the reason why it is not typed."""
    lines = []
    for symbol in report["symbols"]:
        if symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]:
            continue
        for finding in symbol["diagnostics"]:
            # The other findings are consequences: a parameter whose class has such an attribute.
            if "missing type annotation" in finding["message"]:
                lines.append(f"    {symbol['name']}: {finding['message'].splitlines()[0]}")
                break
    return lines


def main() -> int:
    """Print the share of each package; return 1 if one is below its bound."""
    if shutil.which("node") is None:
        print("there is no Node: pyright is left out")
        return 0
    with ThreadPoolExecutor(2) as pool:
        reports = dict(zip(BOUNDS, pool.map(measure, BOUNDS), strict=True))
    status = 0
    shares = []
    for package, report in reports.items():
        share = 100 * report["completenessScore"]
        shares.append(f"{package} {share:.1f} %")
        if share < BOUNDS[package]:
            status = 1
            print(f"{package}: {share:.1f} % of the symbols are typed, not {BOUNDS[package]} %")
            print("\n".join(untyped(report)[:SHOWN]))
    print(f"typed symbols: {', '.join(shares)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
