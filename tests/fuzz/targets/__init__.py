"""What is fuzzed: a module each, with `one`, which takes any bytes and raises for a fault of ours,
`seeds`, inputs to begin with, and `mutate`, which makes another input of one."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from random import Random
from typing import NamedTuple

NAMES = (
    "codec",
    "frames",
    "methods_0_9_1",
    "headers_0_9_1",
    "tables_0_9_1",
    "frames_0_9_1",
    "engine_0_9_1",
    "sasl_server",
    "sasl_client",
    "engine_server",
    "engine_client",
    "broker",
    "selector",
    "rules",
    "filters",
    "configuration",
    "messages",
    "management",
    "journal",
    "url",
    "trace",
    "chunks",
    "arrow",
)


class Target(NamedTuple):
    """One thing that is fuzzed."""

    name: str
    one: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[Random, bytes], bytes]


def load(name: str) -> Target:
    """The target of this name. Imports what it tests."""
    if name not in NAMES:
        raise ValueError(f"there is no target {name!r}; the targets are {', '.join(NAMES)}")
    # What the broker has to say about such clients nobody wants to read.
    logging.getLogger("ferrymq").setLevel(logging.CRITICAL + 1)
    module = importlib.import_module(f"tests.fuzz.targets.{name}")
    return Target(name, module.one, module.seeds, module.mutate)
