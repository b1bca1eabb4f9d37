"""A configuration and a store: the file holds, the rest stays, what cannot be is said."""

from __future__ import annotations

import tomllib
from textwrap import dedent

import pytest

from ferrymq_broker.config import Config
from ferrymq_broker.errors import ConfigError
from ferrymq_broker.nodes.exchanges.exchange import Exchange
from ferrymq_broker.nodes.policy import QueuePolicy, TopicPolicy
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.store.tables import ALIAS
from tests.broker.harness import Network
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
            '[[stream]]\nname = "n"\npartitions = 3',
            '[[stream]]\nname = "n"\npartitions = 2',
            ["'n'", "partitions = 2", "3"],
        ),
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
    assert store_of(net).count(ALIAS) == 0


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
