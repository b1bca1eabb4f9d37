"""A stream whose partitions are on several brokers, as one of these brokers has it."""

from __future__ import annotations

import tomllib
from textwrap import dedent
from zlib import crc32

import pytest

from ferrymq.engine.sasl import Plain
from ferrymq_broker.config import Config
from ferrymq_broker.config.errors import ConfigError
from ferrymq_broker.errors import BrokerError
from ferrymq_broker.management.setup import install
from ferrymq_broker.nodes.streams.stream import Stream
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import UInt
from ferrymq_types.messaging import Accepted, Data, MessageAnnotations, Properties, Rejected
from tests.broker.harness import Endpoint, Network
from tests.broker.management.asker import Asker
from tests.broker.management.rules import guard, rule
from tests.broker.recovery.kit import stored_network
from tests.broker.streams.kit import declare, keyed, offsets, read
from tests.broker.test_termini import refused

A, B, C = "amqp://a.example", "amqp://b.example:5673", "amqp://c.example"
TWO = (f"0-1 {A}", f"2-3 {B}")
THREE = (*TWO, f"4-5 {C}")


def config(*entries: str, advertise: str = A, more: str = "") -> Config:
    text = f"""
    advertise = "{advertise}"
    [[stream]]
    name = "s"
    partitions-on = {list(entries)}
    {more}
    """
    return Config.model_validate(tomllib.loads(dedent(text)))


def spread(net: Network, *entries: str, advertise: str = A) -> Stream:
    net.space.advertised = advertise
    return declare(net, partitions=6 if entries == THREE else 4, partitions_on=entries or TWO)


def ends(stream: Stream) -> list[int]:
    return [stream.range(number)[1] for number in range(len(stream.partitions))]


def the_stream(net: Network) -> Stream:
    stream = net.space.nodes["s"]
    assert isinstance(stream, Stream)
    return stream


@pytest.mark.spec("2.8.18")
@pytest.mark.parametrize("sends", [True, False])
def test_a_link_to_a_partition_elsewhere_is_redirected(net: Network, sends: bool) -> None:
    spread(net)
    net.space.alias("orders", "s")
    client = net.connect()
    link: Endpoint = client.sender("orders::3") if sends else client.receiver("orders::3")
    assert refused(link, "amqp:link:redirect")
    assert link.error is not None
    assert link.error.info == {
        "hostname": "b.example",
        "network-host": "b.example",
        "port": 5673,
        "address": "s::3",
        "ferrymq:urls": [B],
    }
    assert isinstance(link.error.info["port"], UInt)


def test_a_partition_that_is_here_is_served_here(net: Network) -> None:
    stream = spread(net, advertise=B)
    client = net.connect()
    client.sender("s::2").send(b"x")
    assert ends(stream) == [0, 0, 1, 0]
    assert offsets(read(client, "s::2")) == [0]
    assert refused(client.receiver("s::0"), "amqp:link:redirect")
    assert refused(client.receiver("s::4"), "amqp:not-found")


def test_the_members_of_a_cluster_are_one_entry(net: Network) -> None:
    net.space.advertised = "amqp://B2.example:5672"
    declare(net, partitions=2, partitions_on=(f"0 {A}", "1 amqp://b1.example,amqp://b2.example"))
    client = net.connect()
    assert client.sender("s::1").link.usable
    there = client.sender("s::0")
    assert there.error is not None and there.error.info is not None
    net.space.remove(net.space.nodes["s"])
    net.run()
    declare(net, partitions=2, partitions_on=("0 amqp://b2.example", f"1 {A},{B}"))
    there = client.sender("s::1")
    assert there.error is not None and there.error.info is not None
    assert there.error.info["ferrymq:urls"] == [A, B]
    assert there.error.info["network-host"] == "a.example"


@pytest.mark.parametrize("sends", [True, False])
def test_a_link_to_the_whole_stream_is_refused(net: Network, sends: bool) -> None:
    spread(net)
    client = net.connect()
    link: Endpoint = client.sender("s") if sends else client.receiver("s")
    assert refused(link, "amqp:not-allowed")
    assert link.error is not None
    assert "s::0 to s::3" in str(link.error.description)
    assert link.error.info == {"partitions": 4, "ferrymq:partitions-on": list(TWO)}


def test_messages_that_come_another_way_keep_to_their_partition(net: Network) -> None:
    stream = spread(net)
    relay = net.connect().sender(None)
    to = Properties(to="s")
    for number, accepted in ((1, True), (2, False)):
        name = MessageAnnotations(value={"x-opt-partition": UInt(number)})
        state = relay.send_sections(name, to, Data(value=b"")).remote_state
        assert isinstance(state, Accepted if accepted else Rejected)
    key = next(key for key in "abcdef" if crc32(key.encode()) % 4 == 3)
    state = relay.send_sections(*keyed(key)[:1], to, Data(value=b"")).remote_state
    assert isinstance(state, Rejected) and state.error is not None
    assert state.error.condition == "amqp:not-allowed"
    assert "'s::3', which is at amqp://b.example:5673" in str(state.error.description)
    assert ends(stream) == [0, 1, 0, 0]
    for _ in range(4):
        relay.send_sections(to, Data(value=b""))
    assert ends(stream) == [2, 3, 0, 0]


def test_another_broker_adds_partitions(net: Network) -> None:
    stream = spread(net)
    client = net.connect()
    client.sender("s::1").send(b"x")
    stream.change_policy(StreamPolicy(partitions=6, partitions_on=THREE))
    assert len(stream.partitions) == 6 and len(stream.here()) == 2
    assert refused(client.sender("s::5"), "amqp:link:redirect")
    assert client.sender("s::1").link.usable


def test_a_stream_of_this_broker_gets_partitions_on_another(net: Network) -> None:
    net.space.advertised = A
    stream = declare(net, partitions=2)
    client = net.connect()
    whole, part, reader = client.sender("s"), client.sender("s::1"), read(client, "s")
    whole.send(b"x")
    stream.change_policy(StreamPolicy(partitions=4, partitions_on=TWO))
    net.finish()
    for link in (whole, reader):
        assert link.error is not None and link.error.condition == "amqp:not-allowed"
    assert part.link.usable
    assert ends(stream) == [1, 0, 0, 0]


def test_a_partition_with_records_does_not_move(net: Network) -> None:
    stream = spread(net)
    net.connect().sender("s::1").send(b"x")
    moved = StreamPolicy(partitions=4, partitions_on=(f"0 {A}", f"1-3 {B}"))
    with pytest.raises(BrokerError, match="partition 1 of 's' has records here"):
        stream.change_policy(moved)
    assert ends(stream) == [0, 1, 0, 0] and len(stream.here()) == 2


def test_a_partition_without_records_moves(net: Network) -> None:
    stream = spread(net)
    client = net.connect()
    link = client.sender("s::1")
    stream.change_policy(StreamPolicy(partitions=4, partitions_on=(f"0 {A}", f"1-3 {B}")))
    net.finish()
    assert link.error is not None and link.error.condition == "amqp:link:redirect"
    stream.change_policy(StreamPolicy(partitions=4, partitions_on=TWO))
    client.sender("s::1").send(b"x")
    assert ends(stream) == [0, 1, 0, 0]


def test_holds_are_of_the_partitions_that_are_here(net: Network) -> None:
    stream = spread(net)
    net.broker.begin_pass(net.now)
    stream.hold("copy", 0, 0)
    stream.hold("copy", 1, 0)
    hold = stream.holds.find("copy")
    assert hold is not None and hold.whole
    with pytest.raises(BrokerError, match=r"amqp:link:redirect.*b\.example"):
        stream.hold("copy", 2, 0)
    assert stream.holds.describe()[0]["offsets"] == [0, 0, None, None]
    net.finish()


@pytest.mark.parametrize(
    ("entries", "advertised", "reason"),
    [
        (TWO, "", "no advertise"),
        (TWO, C, "no entry with the URL of this broker, amqp://c.example"),
    ],
)
def test_a_broker_has_to_know_its_own_partitions(
    net: Network, entries: tuple[str, ...], advertised: str, reason: str
) -> None:
    net.space.advertised = advertised
    with pytest.raises(BrokerError, match=reason):
        declare(net, partitions=4, partitions_on=entries)


# -- management --------------------------------------------------------------------------------


def test_management_tells_the_placement(net: Network) -> None:
    net.space.advertised = A
    install(net.space, net.broker)
    asker = Asker(net)
    made = asker.ask("CREATE", "stream", "s", {"partitions-on": list(TWO)})
    assert made.status == 201
    net.connect().sender("s::1").send(b"x")
    placement = [{"partition": number, "urls": [url]} for number, url in enumerate((A, A, B, B))]
    seen = asker.ask("READ", "stream", "s").map()
    assert seen["partitions"] == 4
    assert seen["partitions-on"] == list(TWO)
    assert seen["placement"] == placement
    found = asker.ask("RANGES", "stream", body={"names": ["s"]}).map()["streams"]
    assert isinstance(found, list)
    assert found[0]["placement"] == placement
    assert [one["partition"] for one in found[0]["partitions"]] == [0, 1]
    asker.ask("CREATE", "stream", "here")
    found = asker.ask("RANGES", "stream", body={"names": ["here"]}).map()["streams"]
    assert isinstance(found, list) and "placement" not in found[0]


def test_management_changes_the_placement(net: Network) -> None:
    net.space.advertised = A
    install(net.space, net.broker)
    asker = Asker(net)
    asker.ask("CREATE", "stream", "s", {"partitions-on": list(TWO)})
    net.connect().sender("s::1").send(b"x")
    refusal = asker.ask("UPDATE", "stream", "s", {"partitions-on": [f"0 {A}", f"1-3 {B}"]})
    assert refusal.status == 409 and "partition 1 of 's' has records" in refusal.description
    assert asker.ask("UPDATE", "stream", "s", {"partitions-on": list(THREE)}).status == 200
    assert asker.ask("READ", "stream", "s").map()["partitions"] == 6
    assert asker.ask("UPDATE", "stream", "s", {"partitions-on": ["1 x"]}).status == 400
    elsewhere = asker.ask("LOCATE", "stream", "s", {"positions": [{"partition": 2, "time": 0}]})
    assert elsewhere.status == 409 and "s::2' is at amqp://b.example" in elsewhere.description


# -- configuration and store ----------------------------------------------------------------------


def test_what_is_here_is_here_after_a_restart() -> None:
    net = stored_network()
    net.restart(config(*TWO))
    net.connect().sender("s::1").send(b"x")
    net.restart(config(*TWO))
    assert ends(the_stream(net)) == [0, 1, 0, 0]
    assert refused(net.connect().sender("s::2"), "amqp:link:redirect")
    net.restart(config(*THREE))
    assert offsets(read(net.connect(), "s::1")) == [0]
    assert [int(each.number) for each in the_stream(net).here()] == [0, 1]


def test_a_broker_does_not_start_if_a_partition_would_move() -> None:
    net = stored_network()
    net.restart(config(*TWO))
    net.connect().sender("s::1").send(b"x")
    with pytest.raises(ConfigError, match=r"with partition 1 at amqp://b\.example:5673, but"):
        net.restart(config(f"0 {A}", f"1-3 {B}"))
    with pytest.raises(ConfigError, match="with 1 partitions, but stored with 4"):
        net.restart(config(f"0 {A}"))


def test_the_url_of_a_broker_may_change() -> None:
    net = stored_network()
    net.restart(config(*TWO))
    net.connect().sender("s::1").send(b"x")
    net.restart(config(f"0-1 {C}", f"2-3 {B}", advertise=C))
    assert offsets(read(net.connect(), "s::1")) == [0]
    # Nor does a broker keep partitions without records under the URL of another one.
    net = stored_network()
    net.restart(config(*TWO))
    net.restart(config(*TWO, advertise=B))
    assert [int(each.number) for each in the_stream(net).here()] == [2, 3]
    net.restart(config(*TWO, advertise=B))
    assert [int(each.number) for each in the_stream(net).here()] == [2, 3]


def test_the_virtual_host_is_the_same_on_all_brokers(net: Network) -> None:
    space = net.broker.add_space("tenant", ["tenant.example"], 100)
    space.advertised = A
    space.create("s", StreamPolicy(partitions=4, partitions_on=TWO))
    link = net.connect(hostname="tenant.example").sender("s::3")
    assert refused(link, "amqp:link:redirect")
    assert link.error is not None and link.error.info is not None
    assert link.error.info["hostname"] == "vhost:tenant"
    assert link.error.info["network-host"] == "b.example"


def test_the_rights_come_before_the_redirect(net: Network) -> None:
    spread(net)
    guard(net, rule("user:writer", "send", "s"), rule("user:other", "send receive", "t"))
    other = net.connect(sasl=Plain("other", "any password"))
    for link in (other.sender("s::3"), other.receiver("s::3"), other.sender("s")):
        assert refused(link, "amqp:unauthorized-access")
        assert link.error is not None and "b.example" not in str(link.error)
    writer = net.connect(sasl=Plain("writer", "any password"))
    assert refused(writer.sender("s::3"), "amqp:link:redirect")
    assert refused(writer.sender("s"), "amqp:not-allowed")
    assert refused(writer.receiver("s::3"), "amqp:unauthorized-access")


def test_groups_and_epochs_are_those_of_a_partition(net: Network) -> None:
    spread(net, advertise=B)
    client = net.connect()
    first = read(client, "s::3", properties={"ferrymq:epoch": 1})
    second = read(client, "s::3", properties={"ferrymq:epoch": 2})
    assert first.error is not None and first.error.condition == "amqp:link:stolen"
    assert second.link.usable
    groups = the_stream(net).describe()["groups"]
    assert groups == [
        {"name": "", "links": 1, "readers": [0, 0, 0, 1], "epochs": [None, None, None, 2]}
    ]
