"""The suite of Azure's SDKs: features, clients, expectations and the page."""

from __future__ import annotations

from typing import Final

from tests.interop.azure.cases import FEATURES
from tests.interop.azure.clients import CLIENTS, HERE, Runner
from tests.interop.azure.expectations import EXPECTATIONS
from tests.interop.features.suite import Suite, page_of

SUITE: Final = Suite(
    "tests.interop.azure",
    HERE,
    page_of("azure-compatibility.md"),
    FEATURES,
    CLIENTS,
    EXPECTATIONS,
    Runner,
)
