"""Azure's SDKs on the broker: each feature of the list, with each SDK that is here."""

from __future__ import annotations

import subprocess

import pytest

from tests.interop.azure.cases import Feature
from tests.interop.azure.clients import CLIENTS, Client
from tests.interop.azure.suite import SUITE

pytestmark = pytest.mark.interop


def present(*, older: bool) -> list[Client]:
    """Return the clients that can be run; skip the test if there are none."""
    clients = [each for each in CLIENTS.values() if each.older == older and not each.missing()]
    if not clients:
        pytest.skip("none of the SDKs is here")
    return clients


def everything(client: Client, feature: Feature) -> bool:
    return True


@pytest.mark.timeout(300)
def test_a_part_of_the_features_with_each_sdk() -> None:
    found = SUITE.surprises(present(older=False), lambda client, each: not client.takes_long(each))
    assert found == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_feature_with_each_sdk() -> None:
    assert SUITE.surprises(present(older=False), everything) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_feature_with_older_sdks() -> None:
    clients = present(older=True)
    try:
        for client in clients:
            client.command()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"there is no environment for an older SDK: {error}")
    assert SUITE.surprises(clients, everything) == []


def test_expectations_name_features_and_clients() -> None:
    SUITE.check_expectations()


def test_the_page_has_the_results() -> None:
    SUITE.check_page()
