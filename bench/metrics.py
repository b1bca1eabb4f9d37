"""What a broker tells those who watch it."""

from __future__ import annotations

import re
import urllib.request


def metric(monitoring: str, name: str) -> float:
    """A metric that a broker has one value of. Raises `OSError` if it does not tell."""
    if not monitoring:
        raise OSError(f"the broker does not tell its {name}: it answers nobody who watches")
    with urllib.request.urlopen(f"{monitoring}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise OSError(f"the broker does not tell its {name}")
    return float(found[1])
