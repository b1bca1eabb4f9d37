"""What all workers of a broker share: users, rules and the configuration. A change by one worker
counts at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ferrymq
from ferrymq.errors import ConnectionClosed
from ferrymq_broker.security.users_file import write_users
from tests.broker.security.logins import ALICE, BOB
from tests.broker.workers.pages import TENANT, WORKERS, fetch, read
from tests.broker.workers.several import wait_until
from tests.raw.process import Broker

CONFIG = f"""{WORKERS}
[[listener]]
url = "amqp://127.0.0.1:0"
[security]
users-file = "%(folder)s/users.json"
rules-file = "%(folder)s/rules.toml"
[[rule]]
who = "user:alice"
may = "*"
where = ["*", "$*"]
{TENANT}
[[virtual-host.rule]]
who = "user:alice"
may = "*"
where = ["*", "$*"]
"""
WHO = "alice:s\u00e9same"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the files that the workers share."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    """A broker of two workers, which alice manages."""
    write_users(folder / "users.json", {"alice": ALICE, "bob": BOB})
    with Broker(CONFIG % {"folder": folder}) as process:
        yield process


def test_a_rule_that_one_worker_makes_counts_at_the_other(broker: Broker) -> None:
    url = f"{broker.monitoring}/management/v1"
    user = {"password": "open sesame", "groups": ["staff"]}
    assert fetch(f"{url}/user/carol", "PUT", user, WHO)[0] == 201
    tenant = f"{url}/queue/invoices?virtual-host=tenant"
    carol = "carol:open sesame"
    assert fetch(tenant, "PUT", {}, carol)[0] == 403
    rule = {"who": "group:staff", "may": ["manage", "create"], "where": ["*", "$*"]}
    # Worker 1 makes this one, and worker 0 knows who carol is.
    assert fetch(f"{url}/rule/staff?virtual-host=tenant", "PUT", rule, WHO)[0] == 201
    assert fetch(tenant, "PUT", {}, carol)[0] == 201
    whoami = f"{url}/whoami?virtual-host=tenant"
    assert read(whoami, user=carol)["manages"] is True
    # Worker 0 follows: it says in which virtual hosts carol has rights.
    wait_until(
        lambda: read(f"{url}/whoami", user=carol)["virtual-hosts"] == ["tenant"],
        "worker 0 does not follow the rules",
    )


async def test_a_user_who_changes_is_disconnected_from_all_workers(broker: Broker) -> None:
    url = f"{broker.monitoring}/management/v1/user/dave"
    assert fetch(url, "PUT", {"password": "first"}, WHO)[0] == 201
    rule = {"who": "user:dave", "may": "*", "where": "*"}
    rules = f"{broker.monitoring}/management/v1/rule/dave?virtual-host=tenant"
    assert fetch(rules, "PUT", rule, WHO)[0] == 201
    amqp = broker.url.replace("amqp://", "amqp://dave:first@")
    async with ferrymq.connect(amqp, hostname="vhost:tenant") as connection:
        receiver = await connection.receiver("invoices")
        assert fetch(url, "PATCH", {"password": "second"}, WHO)[0] == 200
        with pytest.raises(ConnectionClosed, match="the user was changed or deleted"):
            await receiver.receive(timeout=20)


def test_reload_reloads_all_workers(broker: Broker, folder: Path) -> None:
    config = broker.directory / "ferrymq.toml"
    text = config.read_text() + '\n[[virtual-host.queue]]\nname = "added"\n'
    config.write_text(text)
    url = f"{broker.monitoring}/management/v1"
    answer = read(f"{url}/broker/broker/reload", method="POST", body={}, user=WHO)
    assert answer["differences"]
    added = f"{url}/queue/added?virtual-host=tenant"
    wait_until(
        lambda: fetch(added, user=WHO)[0] == 200, "worker 1 does not follow the configuration"
    )
    assert broker.log.count("reloading") == 2
