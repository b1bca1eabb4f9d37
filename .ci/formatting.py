"""Check with black that all files are formatted: `make lint` runs this program.

Black takes a minute for all files where it has no cache. CI has none: there it looks at those that
ruff's formatter would write in another way. The two agree on nearly all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys


def differing(folder: str) -> list[str]:
    """Return the files that ruff's formatter would write in another way."""
    command = [sys.executable, "-m", "ruff", "format", "--check", "--output-format", "json", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    # Ruff looks into code on pages too.
    found = {str(each["filename"]) for each in json.loads(done.stdout)}
    return sorted(name for name in found if name.endswith((".py", ".pyi")))


def main(folder: str) -> int:
    """Return the status: 1 if black would reformat a file."""
    files = differing(folder) if os.environ.get("CI") else [folder]
    black = [sys.executable, "-m", "black"]
    if files and subprocess.run([*black, "--quiet", "--check", *files], check=False).returncode:
        print(f"black would reformat: run {' '.join(black)} {folder}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:] or ["."]))
