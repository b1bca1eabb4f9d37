"""`ferrymq replica`: a cluster is made, shown, switched and fenced."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ferrymq_broker.cli.replica.hand_over import ask_to_hand_over, choose_successor, find_member
from ferrymq_broker.replication.errors import LeaseLost, ReplicationError
from ferrymq_broker.replication.shared_journal import Lease, Member, Position, SharedJournal
from tests.broker.commands import Commands
from tests.broker.replication.journals import JournalCluster, PostgresqlCluster, call
from tests.support.postgresql import ROLE, PostgresqlPair

# The command line is not compiled.
pytestmark = pytest.mark.once


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(monkeypatch, capsys)


def fill(database: PostgresqlCluster) -> None:
    """Let the leader "a" append two batches, of which the standby "b" has one."""

    async def work() -> None:
        journal = database.make()
        await call(journal.acquire, "a", "amqp://a", 600.0)
        await call(journal.append, 1, 1, 1, [b"12345"])
        await call(journal.append, 1, 2, 1, [b"67890"])
        await call(journal.announce, Member("a", "leader", "amqp://a", 2, "1.0", 0.0))
        await call(journal.announce, Member("b", "standby", "amqp://b", 1, "1.0", 0.0))
        id = await call(journal.begin_snapshot, Position(1, 1))
        await call(journal.add_piece, id, 0, b"records")
        await call(journal.finish_snapshot, id, 1, 7)
        journal.close()

    asyncio.run(work())


@pytest.fixture
def at(pair: PostgresqlPair) -> tuple[str, ...]:
    """The options for a new cluster in which something has happened."""
    database = PostgresqlCluster(pair)
    fill(database)
    return ("--url", pair.url(ROLE), "--cluster", database.name)


def test_a_cluster_is_made_once(run: Commands, pair: PostgresqlPair) -> None:
    pair.primary.execute("CREATE DATABASE made")
    url = pair.url().removesuffix("postgres") + "made"
    words = ("replica", "init", "--url", url, "--grant-to", ROLE)
    assert run(*words) == (0, "made the tables, version 1\nmade the cluster ferrymq\n", "")
    assert run(*words) == (0, "there already is the cluster ferrymq\n", "")
    done = run("replica", "init", "--cluster", "other", "--json", FERRYMQ_DATABASE_URL=url)
    assert json.loads(done.stdout) == {"cluster": "other", "new": True, "version": 1, "before": 1}
    shown = run("replica", "status", "--url", url)
    assert "no leader; the last term is 0\njournal: empty\n" in shown.stdout
    assert "no member has announced itself" in shown.stdout
    pair.primary.execute("DROP DATABASE made WITH (FORCE)")


def test_the_status_for_people(run: Commands, at: tuple[str, ...]) -> None:
    done = run("replica", "status", *at)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"cluster cluster \d+ \([0-9a-f-]{36}\)", lines[0])
    assert re.fullmatch(r"leader a, term 1, for \d{3}\.\d s more", lines[1])
    assert lines[2:4] == [
        "journal: batches 1 to 2, 10 bytes",
        "PostgreSQL confirms a commit when its standby has it",
    ]
    assert lines[5].split() == ["member", "role", "behind", "seen", "version", "address"]
    words = [line.split() for line in lines[7:9]]
    assert [[one[0], one[1], one[2], one[-1]] for one in words] == [
        ["a", "leader", "0", "amqp://a"],
        ["b", "standby", "1", "amqp://b"],
    ]
    assert re.fullmatch(r"snapshot \d+: up to batch 1, 7 bytes, [\d-]+ [\d:]+ UTC", lines[-1])


def test_the_status_for_programs(run: Commands, at: tuple[str, ...]) -> None:
    found = json.loads(run("replica", "status", *at, "--json").stdout)
    assert (found["cluster"], found["synchronous"]) == (at[-1], True)
    lease = found["lease"]
    assert 500 < lease.pop("remaining") <= 600
    assert lease == {"term": 1, "leader": "a", "address": "amqp://a", "successor": None}
    assert found["journal"] == {"first": 1, "last": 2, "term": 1, "bytes": 10, "snapshot-bytes": 7}
    assert [(one["name"], one["behind"]) for one in found["members"]] == [("a", 0), ("b", 1)]
    (snapshot,) = found["snapshots"]
    assert (snapshot["batch"], snapshot["term"], snapshot["bytes"]) == (1, 1, 7)


def test_a_fence_asks_first(run: Commands, at: tuple[str, ...]) -> None:
    refused = run("replica", "fence", *at)
    assert refused.returncode == 1 and "use --yes" in refused.stderr
    done = run("replica", "fence", *at, "--yes")
    assert done == (0, "the term is 2 now: the leader of before is fenced off\n", "")
    shown = run("replica", "status", *at)
    assert "no leader; the last term is 2" in shown.stdout
    assert json.loads(run("replica", "fence", *at, "--yes", "--json").stdout) == {"term": 3}


def test_the_configuration_of_a_member_names_the_cluster(
    run: Commands, at: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "ferrymq.toml"
    config.write_text(f"""
        [store]
        path = "data"
        [replication]
        engine = "postgresql"
        url = "{at[1]}"
        cluster = "{at[3]}"
    """)
    found = json.loads(run("replica", "status", "--config", str(config), "--json").stdout)
    assert (found["cluster"], found["lease"]["leader"]) == (at[3], "a")
    other = run("replica", "status", "--config", str(config), "--cluster", "none")
    assert "has no cluster none" in other.stderr
    config.write_text("")
    nothing = run("replica", "status", "--config", str(config))
    assert nothing.returncode == 1 and "there is no [replication]" in nothing.stderr


def test_errors_are_one_line(run: Commands, at: tuple[str, ...]) -> None:
    for words, reason in (
        (("status",), "no database is given"),
        (("promote", "nobody", *at), "there is no member 'nobody'; the members are: a, b"),
        (("promote", "a", *at), "the member 'a' is the leader already"),
        (("promote", "b", *at, "--timeout", "0"), "was not the leader after 0 s"),
        (("status", *at[:2], "--cluster", "none"), "has no cluster none"),
    ):
        done = run("replica", *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("ferrymq: ") and done.stderr.count("\n") == 1
        assert reason in done.stderr
    # The request that came to nothing is taken back.
    assert "asked to hand over" not in run("replica", "status", *at).stdout


def test_a_missing_package_is_named() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; from ferrymq_broker.cli import main;"
        "sys.argv = ['ferrymq', 'replica', 'status', '--url', 'postgresql://h/d']; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ferrymq: psycopg is missing; pip install 'ferrymq[replicated]'\n"


# -- the switch of the leader -----------------------------------------------------------------


class Pair:
    """Members "a" and "b", of which one hands over to the other when it is asked to."""

    def __init__(self, cluster: JournalCluster) -> None:
        self.leader = cluster.join()
        self.standby = cluster.join()
        self.operator: SharedJournal = cluster.join()

    async def start(self) -> asyncio.Task[Lease]:
        await call(self.leader.acquire, "a", "", 600.0)
        for name, role in (("a", "leader"), ("b", "standby")):
            await call(self.leader.announce, Member(name, role, "", 0, "1.0", 0.0))
        return asyncio.create_task(self._hand_over())

    async def _hand_over(self) -> Lease:
        changed = asyncio.Event()
        self.leader.watch(changed.set)
        while (await call(self.leader.observe)).successor != "b":
            await changed.wait()
            changed.clear()
        await call(self.leader.release, 1)
        lease: Lease = await call(self.standby.acquire, "b", "", 600.0)
        return lease


@pytest.mark.parametrize("choice", [find_member("b"), choose_successor], ids=["promote", "demote"])
async def test_the_leader_hands_over(cluster: JournalCluster, choice: object) -> None:
    pair = Pair(cluster)
    handing_over = await pair.start()
    lease = await ask_to_hand_over(pair.operator, choice, 60.0)  # type: ignore[arg-type]
    assert (lease.holder, lease.term, lease.successor) == ("b", 2, "")
    await handing_over
    with pytest.raises(LeaseLost):
        await call(pair.leader.renew, 1, 600.0)


@pytest.mark.parametrize("choice", [find_member("b"), choose_successor], ids=["promote", "demote"])
def test_a_member_that_does_not_run_is_no_leader(choice: object) -> None:
    members = [Member("a", "leader", "", 9, "1.0", 0.1), Member("b", "standby", "", 9, "1.0", 99.0)]
    with pytest.raises(ReplicationError, match="run"):
        choice(members, Lease(1, "a", "", 5.0, ""))  # type: ignore[operator]


def test_the_successor_is_the_least_behind() -> None:
    members = [
        Member("a", "leader", "", 9, "1.0", 0.1),
        Member("b", "standby", "", 7, "1.0", 0.1),
        Member("c", "standby", "", 8, "1.0", 0.1),
        Member("d", "standby", "", 9, "1.0", 99.0),
    ]
    assert choose_successor(members, Lease(1, "a", "", 5.0, "")) == "c"
