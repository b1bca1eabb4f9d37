"""A virtual host in which a client may do nothing, at another worker than the one that accepts."""

from __future__ import annotations

import pytest

from tests.broker.workers.several import HOSTS, TENANT, WorkerBroker, opening
from tests.hostile.logins import OK, begin, outcome, plain

PASSWORD = "correct horse"
CONFIG = f"""
[security.users]
shop = "a long password"
stranger = "{PASSWORD}"
[[rule]]
who = "user:shop"
may = "*"
where = "*"
{TENANT}
[[virtual-host.rule]]
who = "user:shop"
may = "send"
where = "*"
"""

ways = pytest.mark.parametrize(
    ("acceptor", "server"), [(0, 0), (0, 1), (1, 0), (1, 1)], ids=["00", "01", "10", "11"]
)


@ways
def test_a_user_without_any_right_in_the_virtual_host(
    broker: WorkerBroker, acceptor: int, server: int
) -> None:
    """Whether it exists or not is not told."""
    heard = []
    for hostname in (HOSTS[server], "vhost:nobody"):
        with broker.connect(acceptor) as client:
            begin(client, "PLAIN", plain("stranger", PASSWORD))
            assert outcome(client) == OK
            client.open(opening(hostname))
            heard.append(client.verdict())
    assert heard[0][:2] == ("connection", "amqp:unauthorized-access")
    assert str(heard[0]).replace(HOSTS[server], "HOST") == str(heard[1]).replace(
        "vhost:nobody", "HOST"
    )
