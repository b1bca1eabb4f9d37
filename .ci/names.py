"""Check that a public name means one thing: `make lint` runs this program.

No two public classes have the same name, apart from the counterparts below. No module name stands
four times in the shipped packages, apart from the standard ones below. An entry that is no longer
needed is an error too.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
# Without the generator, whose modules are no API: its names are those of the DTD.
SHIPPED: Final = ("generated", "runtime", "broker", "pipeline")

# The same thing for asyncio, for threads, and in the engine, which does no input or output.
_FACES: Final = "the asyncio, blocking and engine forms of one thing"
# What the configuration file says of a thing, and the thing itself.
_DECLARED: Final = "the declaration in the configuration, and what the broker makes of it"

COUNTERPARTS: Final[dict[str, str]] = {
    "Binding": _DECLARED,
    "ChunkReader": _FACES,
    "Connection": _FACES,
    "Coordinator": "the target that a link names (AMQP 1.0 §4.5.1), and what answers such links",
    "Delivery": _FACES,
    "Exchange": _DECLARED,
    "Link": _FACES,
    "Management": _FACES,
    "ManagementClient": _FACES,
    "Method": "a method of AMQP 0-9-1, and a way to log in",
    "Pair": _FACES,
    "PartitionedSender": _FACES,
    "Queue": _DECLARED,
    "Receiver": _FACES,
    "Sender": _FACES,
    "Session": _FACES,
    "Worker": _FACES,
    "Store": _DECLARED,
    "Stream": _DECLARED,
    "Subscription": _DECLARED,
    "SubscriptionRule": _DECLARED,
    "Topic": _DECLARED,
    "Transaction": _FACES,
}

STANDARD_MODULES: Final[dict[str, str]] = {
    "__init__": "Python's name",
    "app": "the commands of one command-line program or of one group of its commands",
    "connection": "AMQP's word: engine, asyncio, blocking, and the options for one",
    "errors": "the errors of one package",
    "options": "the options of one package or of one command",
    "session": "AMQP's word: engine and asyncio, and what a command opens to do its work",
}
MOST_MODULES: Final = 3


def modules(root: Path = ROOT) -> list[Path]:
    """Return every module that is shipped."""
    return [path for folder in SHIPPED for path in sorted((root / folder).rglob("*.py"))]


def public_classes(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the modules in which a public class of each name is defined."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return found


def module_names(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Return the modules of each name."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in paths:
        found[path.stem].append(path)
    return found


def mistakes(root: Path = ROOT) -> list[str]:
    """Return a sentence for each name that means two things and for each entry nobody needs."""
    paths = modules(root)
    many = {
        name: places for name, places in module_names(paths).items() if len(places) > MOST_MODULES
    }
    twice = {name: places for name, places in public_classes(paths).items() if len(places) > 1}
    return [
        *_compare("class", twice, COUNTERPARTS, "COUNTERPARTS", root),
        *_compare("module", many, STANDARD_MODULES, "STANDARD_MODULES", root),
    ]


def _compare(
    kind: str, found: dict[str, list[Path]], listed: dict[str, str], title: str, root: Path
) -> list[str]:
    said = []
    for name in sorted(found.keys() - listed.keys()):
        places = ", ".join(path.relative_to(root).as_posix() for path in found[name])
        said.append(f"the {kind} name {name} stands {len(found[name])} times: {places}")
    for name in sorted(listed.keys() - found.keys()):
        said.append(f"{title} lists {name}, which no longer stands several times")
    return said


def main() -> int:
    """Print the mistakes and return the exit status."""
    found = mistakes()
    for mistake in found:
        print(mistake)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
