"""The metrics of a broker, from its monitoring endpoint."""

from __future__ import annotations

import re
import urllib.request


def metric(monitoring: str, name: str) -> float:
    """Return a metric with a single value. Raises `OSError` if the broker does not report it."""
    if not monitoring:
        raise OSError(f"the broker does not report {name}: it has no monitoring endpoint")
    with urllib.request.urlopen(f"{monitoring}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    if found is None:
        raise OSError(f"the broker does not report {name}")
    return float(found[1])
