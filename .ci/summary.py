"""Adds up JUnit result files and prints one line: `N passed, N failed, N skipped`."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def count(path: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of one run; a run that left no file is one failure."""
    if not path.is_file():
        return 0, 1, 0
    total = failed = skipped = 0
    for suite in ET.parse(path).getroot().iter("testsuite"):
        total += int(suite.get("tests", "0"))
        failed += int(suite.get("failures", "0")) + int(suite.get("errors", "0"))
        skipped += int(suite.get("skipped", "0"))
    return total - failed - skipped, failed, skipped


def main(names: list[str]) -> int:
    """Print the sum; the exit status is 1 if anything failed or nothing ran."""
    passed, failed, skipped = (
        sum(column) for column in zip(*(count(Path(name)) for name in names), strict=True)
    )
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
