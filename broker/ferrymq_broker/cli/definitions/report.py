"""The report of an export or an import, on standard error: what was left out."""

from __future__ import annotations

import sys


def tell_omissions(what: str, omitted: object) -> None:
    """Print a line for each omission, a map of `kind`, `name`, `virtual-host` and `reason`."""
    for each in omitted if isinstance(omitted, list) else []:
        host = each["virtual-host"]
        where = "" if host == "default" else f" in {host}"
        sys.stderr.write(
            f"ferrymq: {what}: {each['kind']} {each['name']!r}{where}: {each['reason']}\n"
        )
