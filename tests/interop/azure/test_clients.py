"""Azure's SDKs on the broker: each feature of the list, with each SDK that is here."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.azure.cases import FEATURES
from tests.interop.azure.clients import CLIENTS, Client, Runner
from tests.interop.azure.expectations import ABSENT, FAILS, judge
from tests.interop.azure.page import PAGE, RESULTS, write

pytestmark = pytest.mark.interop


def surprises(client: Client, everything: bool) -> list[str]:
    """Try features with a client, and return what is not as expected."""
    found = []
    with Runner(client) as runner:
        for feature in client.features:
            if everything or not client.takes_long(feature):
                surprise = judge(client, feature.name, runner.play(feature))
                if surprise:
                    found.append(f"{client.title}: {feature.name}: {surprise}")
    return found


def of_all(clients: list[Client], everything: bool) -> list[str]:
    """Try features with all of these clients at the same time: they sleep most of it."""
    with ThreadPoolExecutor(len(clients)) as pool:
        tried = pool.map(lambda client: surprises(client, everything), clients)
        return [surprise for found in tried for surprise in found]


def present(*, older: bool) -> list[Client]:
    """Return the clients that can be run; skip the test if there are none."""
    clients = [each for each in CLIENTS.values() if each.older == older and not each.missing()]
    if not clients:
        pytest.skip("none of the SDKs is here")
    return clients


@pytest.mark.timeout(300)
def test_a_part_of_the_features_with_each_sdk() -> None:
    assert of_all(present(older=False), everything=False) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_feature_with_each_sdk() -> None:
    assert of_all(present(older=False), everything=True) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_feature_with_older_sdks() -> None:
    clients = present(older=True)
    try:
        for client in clients:
            client.command()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"there is no environment for an older SDK: {error}")
    assert of_all(clients, everything=True) == []


def test_expectations_name_features_and_clients() -> None:
    names = {feature.name for feature in FEATURES}
    assert len(names) == len(FEATURES), "two features have one name"
    assert set(FAILS) <= {*CLIENTS, *(client.package for client in CLIENTS.values())}
    assert set(ABSENT) <= {client.package for client in CLIENTS.values()}
    for each in (*FAILS.values(), *ABSENT.values()):
        assert set(each) <= names


def test_the_page_has_the_results() -> None:
    results = json.loads(RESULTS.read_text("utf-8"))
    page = PAGE.read_text("utf-8")
    assert page == write(results), "run: python -m tests.interop.azure page"
    for key, client in CLIENTS.items():
        cases = set(results[key]["cases"])
        assert cases == {each.name for each in client.features}, f"run the features with {key}"
