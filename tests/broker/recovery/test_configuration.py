"""A configuration and a store: the file holds, the rest stays, what cannot be is said."""

from __future__ import annotations

import logging
import tomllib
from textwrap import dedent

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.queues.queue import Queue
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.store.tables import ALIAS
from ferrymq_broker.values.policy import QueuePolicy, TopicPolicy
from tests.broker.harness import Network
from tests.broker.management.asker import Asker
from tests.broker.recovery.kit import browse, send, store_of, subscribe


def config(text: str) -> Config:
    return Config.model_validate(tomllib.loads(dedent(text)))


def test_a_declared_node_follows_the_file_and_keeps_its_messages(net: Network) -> None:
    net.restart(config('[[queue]]\nname = "q"\nmax-length = 5'))
    send(net.connect().sender("q"), b"a", b"b")
    net.restart(config('[[queue]]\nname = "q"\nmax-length = 3\npersist = true'))
    assert net.queue("q").policy == QueuePolicy(max_length=3, persist=True)
    assert browse(net, "q") == [b"a", b"b"]
    net.restart()
    assert net.queue("q").policy == QueuePolicy(max_length=3, persist=True)


def test_bounds_of_the_file_hold_at_once(net: Network) -> None:
    send(net.connect().sender("q"), b"a", b"b", b"c")
    net.restart(config('[[queue]]\nname = "q"\nmax-length = 2\noverflow = "drop-head"'))
    assert browse(net, "q") == [b"b", b"c"]
    net.restart()
    assert browse(net, "q") == [b"b", b"c"]


def test_a_node_that_is_declared_no_more_stays(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    net.restart(config('[[queue]]\nname = "q"\n[[topic]]\nname = "t"'))
    send(net.connect().sender("q"), b"a")
    send(net.connect().sender("used"), b"a")
    caplog.clear()
    net.restart(config('[[topic]]\nname = "t"'))
    assert browse(net, "q") == [b"a"]
    said = [line for line in caplog.messages if "any more; it stays" in line]
    assert len(said) == 1 and "'q'" in said[0]


def test_a_node_that_a_link_made_can_be_declared_later(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    send(net.connect().sender("q"), b"a")
    net.restart(config('[[queue]]\nname = "q"'))
    assert net.queue("q").origin == "configuration"
    net.restart(config(""))
    assert any("it stays" in line and "'q'" in line for line in caplog.messages)
    assert browse(net, "q") == [b"a"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('[[queue]]\nname = "n"', '[[topic]]\nname = "n"', ["'n'", "a topic", "a queue"]),
        ('[[stream]]\nname = "n"', '[[queue]]\nname = "n"', ["'n'", "a queue", "a stream"]),
        (
            '[[exchange]]\nname = "n"\nrouting = "topic"',
            '[[exchange]]\nname = "n"\nrouting = "fanout"',
            ["'n'", '"fanout"', '"topic"'],
        ),
        (
            '[[queue]]\nname = "n"',
            '[[queue]]\nname = "n"\ndurable = false',
            ["'n'", "not durable"],
        ),
        (
            '[[queue]]\nname = "n"',
            '[[alias]]\nname = "n"\nto = "m"',
            ["'n'", "as alias", "a queue"],
        ),
        (
            '[[queue]]\nname = "n"',
            '[[redirect]]\nname = "n"\nhost = "other"',
            ["'n'", "as redirect", "a queue"],
        ),
    ],
)
def test_what_a_stored_node_cannot_become_is_said(
    net: Network, before: str, after: str, words: list[str]
) -> None:
    net.restart(config(before))
    net.connect()
    with pytest.raises(ConfigError) as caught:
        net.restart(config(after))
    for word in words:
        assert word in str(caught.value)


def test_a_stream_grows(net: Network) -> None:
    net.restart(config('[[stream]]\nname = "s"\npartitions = 1'))
    net.connect()
    net.restart(config('[[stream]]\nname = "s"\npartitions = 3'))
    net.connect()
    net.restart()
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream)
    assert len(stream.partitions) == 3 == stream.policy.partitions


def test_a_stream_does_not_shrink(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    """Nor does its broker refuse to start: what is in the other partitions is still wanted."""
    net.restart(config('[[stream]]\nname = "s"\npartitions = 3'))
    send(net.connect().sender("s::2"), b"kept")
    for max_records in (10, 20, 20):
        caplog.clear()
        net.restart(config(f'[[stream]]\nname = "s"\nmax-records = {max_records}'))
        stream = net.space.nodes["s"]
        assert isinstance(stream, Stream)
        assert len(stream.partitions) == 3 == stream.policy.partitions
        assert stream.policy.max_records == max_records
        assert stream.message_count() == 1
        said = [line for line in caplog.messages if "more partitions than" in line]
        assert len(said) == 1 and "'s'" in said[0]
        net.connect()
    net.restart()
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream) and len(stream.partitions) == 3 == stream.policy.partitions


@pytest.mark.parametrize(
    ("file", "type", "change"),
    [
        ('[[queue]]\nname = "n"\nmax-length = 4', "queue", {"max-length": 6}),
        ('[[topic]]\nname = "n"\nmax-subscriptions = 4', "topic", {"max-subscriptions": 6}),
        ('[[stream]]\nname = "n"\nmax-records = 4', "stream", {"max-records": 6}),
        ('[[exchange]]\nname = "n"', "exchange", {"alternate": "q"}),
    ],
)
def test_an_update_of_what_is_declared_says_what_the_next_start_does(
    net: Network, file: str, type: str, change: dict[str, object]
) -> None:
    net.restart(config(file))
    install(net.space, net.broker)
    asker = Asker(net)
    before = asker.ask("READ", type, "n").map()
    answer = asker.ask("UPDATE", type, "n", change)
    assert answer.status == 200
    assert answer.description == (
        "updated; but the configuration declares it, so the declared settings count again after"
        " the next start"
    )
    assert change.items() <= answer.map().items()
    net.restart(config(file))
    install(net.space, net.broker)
    assert Asker(net).ask("READ", type, "n").map().items() >= {(key, before[key]) for key in change}


def test_an_update_of_what_is_not_declared_says_nothing_of_it(net: Network) -> None:
    net.restart(config('[[queue]]\npattern = "made.*"\nmax-length = 3'))
    install(net.space, net.broker)
    asker = Asker(net)
    net.connect().sender("made.one")
    net.connect().sender("other")
    assert asker.ask("CREATE", "queue", "managed").status == 201
    for name in ("made.one", "other", "managed"):
        answer = asker.ask("UPDATE", "queue", name, {"max-length": 7})
        assert (answer.status, answer.description) == (200, "updated")
    net.restart(config('[[queue]]\npattern = "made.*"\nmax-length = 4'))
    for name in ("made.one", "other", "managed"):
        assert net.queue(name).policy.max_length == 7


def test_more_partitions_of_a_declared_stream_stay(net: Network) -> None:
    file = '[[stream]]\nname = "s"\npartitions = 4\nmax-records = 100'
    net.restart(config(file))
    install(net.space, net.broker)
    asker = Asker(net)
    answer = asker.ask("UPDATE", "stream", "s", {"partitions": 6, "max-records": 5})
    assert answer.status == 200
    assert answer.description == (
        "updated; but the configuration declares it, so the declared settings count again after"
        " the next start, except the partitions"
    )
    send(net.connect().sender("s::5"), b"kept")
    net.restart(config(file))
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream)
    assert (len(stream.partitions), stream.policy.max_records) == (6, 100)
    assert stream.message_count() == 1


def test_without_a_store_the_partitions_do_not_stay() -> None:
    net = Network(memory=True)
    net.restart(config('[[stream]]\nname = "s"'))
    install(net.space, net.broker)
    answer = Asker(net).ask("UPDATE", "stream", "s", {"partitions": 2})
    assert answer.description.endswith("the declared settings count again after the next start")


PATTERN = """
    [[queue]]
    pattern = "jobs.*"
    max-length = {}
    [[queue]]
    name = "jobs.declared"
    max-length = 1
    [[stream]]
    pattern = "log.*"
    partitions = {}
"""


def test_nodes_of_a_pattern_follow_it(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    net.restart(config(PATTERN.format(5, 2)))
    install(net.space, net.broker)
    client = net.connect()
    for name in ("jobs.a", "jobs.b", "log.a", "plain"):
        send(client.sender(name), b"x")
    assert Asker(net).ask("CREATE", "queue", "jobs.made", {"max-length": 9}).status == 201
    caplog.set_level(logging.INFO, "ferrymq.broker")
    caplog.clear()
    net.restart(config(PATTERN.format(7, 3)))
    lengths = {
        name: node.policy.max_length
        for name, node in net.space.nodes.items()
        if isinstance(node, Queue)
    }
    assert lengths == {
        "jobs.a": 7,
        "jobs.b": 7,
        "jobs.declared": 1,
        # Somebody wanted it so.
        "jobs.made": 9,
        "plain": 0,
    }
    stream = net.space.nodes["log.a"]
    assert isinstance(stream, Stream) and len(stream.partitions) == 3
    assert browse(net, "jobs.a") == [b"x"]
    said = [line for line in caplog.messages if "follow their pattern" in line]
    assert len(said) == 2 and "'jobs.*'" in said[0] and "'nodes': 2" in said[0]
    # It is stored, and nothing is left to be said.
    caplog.clear()
    net.restart(config(PATTERN.format(7, 3)))
    assert not [line for line in caplog.messages if "pattern" in line]
    net.restart()
    assert net.queue("jobs.a").policy.max_length == 7


def test_what_cannot_follow_its_pattern_stays_and_is_named(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    net.restart(config(PATTERN.format(5, 2)))
    install(net.space, net.broker)
    client = net.connect()
    for name in ("jobs.a", "jobs.b"):
        send(client.sender(name), b"x")
    caplog.clear()
    net.restart(config('[[topic]]\npattern = "jobs.*"'))
    assert browse(net, "jobs.a") == [b"x"]
    assert net.queue("jobs.b").policy.max_length == 5
    (said,) = [line for line in caplog.messages if "cannot follow" in line]
    assert "'jobs.*'" in said and "'nodes': 2" in said and "jobs.a" in said
    net.restart(config('[[queue]]\npattern = "jobs.*"\ndurable = false'))
    assert browse(net, "jobs.a") == [b"x"]


ROUTES = """
    [[exchange]]
    name = "x"
    routing = "headers"
    binding = [{ to = "q", arguments = { n = 5, s = "5" } }, { to = "r" }]
    [[queue]]
    name = "q"
    [[alias]]
    name = "other"
    to = "q"
    [[redirect]]
    name = "elsewhere"
    host = "there"
"""


def test_bindings_and_names_of_the_file_are_there_once(net: Network) -> None:
    net.restart(config(ROUTES))
    net.connect()
    for _ in range(2):
        net.restart(config(ROUTES))
        exchange = net.space.nodes["x"]
        assert isinstance(exchange, Exchange)
        assert len(exchange.bindings()) == 2
        assert net.space.aliases == {"other": "q"}
        assert list(net.space.redirects) == ["elsewhere"]
        net.connect()
    assert store_of(net).count(ALIAS) == 0
    # They are the file's: without it they are gone.
    net.restart()
    assert net.space.aliases == {} and not net.space.redirects


def test_the_file_goes_before_an_alias_of_management(net: Network) -> None:
    net.space.set_alias("other", "p")
    net.space.set_alias("q", "p")
    net.connect()
    net.restart(config(ROUTES))
    assert net.space.aliases == {"other": "q"}
    send(net.connect().sender("other"), b"a")
    net.restart(config(ROUTES))
    assert browse(net, "q") == [b"a"]
    # That is for as long as the file has the name.
    assert store_of(net).count(ALIAS) == 2
    net.restart(config(""))
    assert net.space.aliases == {"other": "p", "q": "p"}
    # Of the queue that was declared, its messages are still there.
    assert browse(net, "q") == [b"a"]


def test_an_alias_of_management_comes_back_after_a_redirect(net: Network) -> None:
    net.space.set_alias("elsewhere", "p")
    net.connect()
    net.restart(config(ROUTES))
    assert net.connect().receiver("elsewhere").error is not None
    net.connect()
    net.restart(config(""))
    send(net.connect().sender("elsewhere"), b"a")
    assert browse(net, "p") == [b"a"]


def test_what_management_does_to_a_declared_alias_says_what_the_next_start_does(
    net: Network,
) -> None:
    net.restart(config(ROUTES))
    install(net.space, net.broker)
    asker = Asker(net)
    changed = asker.ask("UPDATE", "alias", "other", {"address": "r"})
    assert (changed.status, changed.description) == (
        200,
        "updated; but the configuration declares it with 'q', which counts again after the next"
        " start",
    )
    assert net.space.aliases == {"other": "r"}
    net.connect()
    net.restart(config(ROUTES))
    install(net.space, net.broker)
    assert net.space.aliases == {"other": "q"}
    gone = Asker(net).ask("DELETE", "alias", "other")
    assert (gone.status, gone.description) == (
        204,
        "deleted; but the configuration declares it, so the next start makes it again",
    )
    assert net.space.aliases == {} and store_of(net).count(ALIAS) == 0
    net.connect()
    net.restart(config(ROUTES))
    assert net.space.aliases == {"other": "q"}


def test_virtual_hosts_have_what_is_theirs(net: Network) -> None:
    text = '[[virtual-host]]\nname = "v"\nhostnames = ["v.example"]'
    net.restart(config(text))
    send(net.connect(hostname="v.example").sender("q"), b"theirs")
    send(net.connect().sender("q"), b"ours")
    net.restart(config(text))
    client = net.connect(hostname="v.example")
    assert client.receiver("q", credit=5).bodies() == [b"theirs"]
    assert browse(net, "q") == [b"ours"]


def test_what_is_in_a_virtual_host_that_is_not_configured_is_kept_aside(net: Network) -> None:
    text = '[[virtual-host]]\nname = "v"\nhostnames = ["v.example"]'
    net.restart(config(text))
    net.broker.spaces["v"].create("t", TopicPolicy())
    for container in ("one", "two"):
        client = net.connect(hostname="v.example", container_id=container)
        subscribe(client, "t", "s").close(closed=False)
    client = net.connect(hostname="v.example")
    send(client.sender("t"), b"shared")
    send(client.sender("q"), b"theirs")
    client.net.broker.spaces["v"].set_alias("other", "q")
    net.connect()
    before = dict(store_of(net).records)
    net.restart(config(""))
    send(net.connect().sender("new"), b"a")
    assert before.items() <= store_of(net).records.items()
    net.restart(config(text))
    client = net.connect(hostname="v.example")
    assert client.receiver("other", credit=5).bodies() == [b"theirs"]
    for container in ("one", "two"):
        reader = net.connect(hostname="v.example", container_id=container)
        assert subscribe(reader, "t", "s").bodies() == [b"shared"]
    assert browse(net, "new") == [b"a"]
