"""Exclusive readers with an epoch, consumer groups, and how many readers a group may have."""

from __future__ import annotations

import pytest

from ferrymq_broker.management import ADDRESS
from ferrymq_broker.management.setup import install
from ferrymq_broker.values.policy import StreamPolicy
from ferrymq_codec.scalars import Described, Symbol, Timestamp, UInt, ULong
from ferrymq_types.messaging import Source, TerminusDurability
from tests.broker.harness import Client, Network, Receiver
from tests.broker.management.asker import Asker
from tests.broker.stores import ManualStore
from tests.broker.streams.chunk_kit import read_chunks, records
from tests.broker.streams.kit import declare, granted, numbered, offsets, read
from tests.broker.transactions.kit import Controller, acquire

TOO_LOW = "ferrymq:epoch-too-low"
STOLEN = "amqp:link:stolen"
EPOCH = "ferrymq:epoch"
GROUP = "ferrymq:consumer-group"


def take(
    client: Client,
    address: str = "s::0",
    epoch: int | None = None,
    group: str | None = None,
    **options: object,
) -> Receiver:
    """A reader with an epoch, of a consumer group."""
    properties: dict[str, object] = {}
    if epoch is not None:
        properties[EPOCH] = epoch
    if group is not None:
        properties[GROUP] = group
    return read(client, address, properties=properties, **options)  # type: ignore[arg-type]


def condition(receiver: Receiver) -> str | None:
    """Why the link has ended; None if it is attached."""
    error = receiver.error
    assert receiver.detached == (error is not None)
    return None if error is None else str(error.condition)


@pytest.mark.parametrize("epoch", [5, 6])
def test_an_equal_or_higher_epoch_takes_the_place(net: Network, epoch: int) -> None:
    declare(net)
    before = take(net.connect(), epoch=5)
    client = net.connect()
    client.sender("s").send(b"0")
    after = take(client, epoch=epoch)
    assert (condition(before), condition(after)) == (STOLEN, None)
    assert before.error is not None
    assert before.error.info == {"partition": 0, "epoch": epoch}
    assert granted(after)[EPOCH] == epoch
    client.sender("s").send(b"1")
    assert (before.bodies(), after.bodies()) == ([b"0"], [b"0", b"1"])
    assert net.broker.default.nodes["s"].consumers_of() != []


def test_a_lower_epoch_is_refused(net: Network) -> None:
    declare(net)
    before = take(net.connect(), epoch=5)
    after = take(net.connect(), epoch=4)
    assert (condition(before), condition(after)) == (None, TOO_LOW)
    assert after.error is not None and after.error.info == {"partition": 0, "epoch": 5}
    net.connect().sender("s").send(b"x")
    assert before.bodies() == [b"x"]


def test_without_an_epoch_beside_one_with(net: Network) -> None:
    declare(net)
    plain = [take(net.connect()) for _ in range(3)]
    exclusive = take(net.connect(), epoch=0)
    assert [condition(reader) for reader in plain] == [STOLEN] * 3
    assert condition(take(net.connect())) == "amqp:not-allowed"
    assert condition(exclusive) is None


@pytest.mark.parametrize("how", ["closed", "lost"])
def test_an_epoch_ends_with_its_link(net: Network, how: str) -> None:
    declare(net)
    client = net.connect()
    before = take(client, epoch=5)
    if how == "lost":
        client.lose()
    else:
        before.link.close()
        net.run()
    assert condition(take(net.connect(), epoch=1)) is None


def test_groups_and_partitions_do_not_see_each_other(net: Network) -> None:
    declare(net, partitions=2)
    readers = [
        take(net.connect(), address, epoch, group)
        for address, epoch, group in [
            ("s::0", 5, None),
            ("s::1", 4, None),
            ("s::0", 3, "a"),
            ("s::1", 2, "a"),
            ("s::0", None, "b"),
        ]
    ]
    assert [condition(reader) for reader in readers] == [None] * 5
    assert granted(readers[2])[GROUP] == "a"
    assert GROUP not in granted(readers[0]) and EPOCH not in granted(readers[4])


def test_a_reader_of_the_whole_stream_has_a_place_in_every_partition(net: Network) -> None:
    stream = declare(net, partitions=2)
    whole = take(net.connect(), "s", 5)
    assert condition(take(net.connect(), "s::1", 4)) == TOO_LOW
    assert condition(take(net.connect(), "s::1")) == "amqp:not-allowed"
    stream.grow(3)
    assert condition(take(net.connect(), "s::2", 4)) == TOO_LOW
    one = take(net.connect(), "s::2", 5)
    assert (condition(whole), condition(one)) == (STOLEN, None)
    assert whole.error is not None and whole.error.info == {"partition": 2, "epoch": 5}
    # With the reader its places in the other partitions have gone.
    other = take(net.connect(), "s::0", 0)
    assert condition(take(net.connect(), "s", 4)) == TOO_LOW
    assert condition(other) is None
    assert condition(take(net.connect(), "s", 7)) is None
    assert (condition(one), condition(other)) == (STOLEN, STOLEN)


def test_readers_of_chunks(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(3))
    first = read_chunks(client, more={EPOCH: 5})
    assert condition(read_chunks(net.connect(), more={EPOCH: 4})) == TOO_LOW
    assert condition(take(net.connect())) == "amqp:not-allowed"
    second = read_chunks(client, more={EPOCH: 6}, credit=0)
    assert (condition(first), condition(second)) == (STOLEN, None)
    assert take(client, epoch=7).bodies() == numbered(3)
    assert condition(second) == STOLEN
    assert [body for _, body in records(first)] == numbered(3)
    # Nothing is counted any more for chunks that are not sent.
    assert net.broker.agenda.chunk_budget.held == 0


def test_a_link_that_is_attached_again_meets_only_others(net: Network) -> None:
    declare(net)
    client = net.connect(container_id="worker")
    client.sender("s").send(*numbered(2))
    before = take(client, epoch=5, name="mine")
    # The client has lost the connection; the broker does not know it yet.
    back = net.connect(container_id="worker")
    again = take(back, epoch=3, name="mine")
    assert (condition(before), condition(again)) == (STOLEN, None)
    assert again.bodies() == numbered(2)
    # The end of the earlier connection changes nothing.
    client.lose()
    assert condition(take(net.connect(), epoch=2)) == TOO_LOW
    # A suspended link has no place.
    again.link.detach(closed=False)
    net.run()
    assert condition(take(net.connect(), epoch=2)) is None


def test_a_source_that_asks_to_be_durable_ends_with_its_link(net: Network) -> None:
    declare(net)
    client = net.connect(container_id="worker")
    durable = TerminusDurability.UNSETTLED_STATE
    before = take(client, epoch=5, name="mine", durable=durable)
    source = before.link.remote_attach and before.link.remote_attach.source
    assert isinstance(source, Source) and source.durable == TerminusDurability.NONE
    client.lose()
    # The client is away: its place is free, and it must ask for it again.
    other = take(net.connect(), epoch=6)
    back = net.connect(container_id="worker")
    assert condition(take(back, epoch=5, name="mine", durable=durable)) == TOO_LOW
    assert condition(take(back, epoch=6, name="mine", durable=durable)) is None
    assert condition(other) == STOLEN


def test_a_refused_attach_ends_nobody(net: Network) -> None:
    declare(net)
    before = take(net.connect(), epoch=5)
    client = net.connect()
    # The epoch would do, but the client insists on a filter that the broker does not have.
    refused = client.receiver(
        None,
        source=Source(address="s::0", filter={"x": Described(Symbol("x"), "y")}),
        properties={EPOCH: 6, "ferrymq:require-filters": True},
    )
    assert condition(refused) == "amqp:not-implemented"
    assert condition(before) is None
    assert condition(take(net.connect(), epoch=4)) == TOO_LOW
    assert condition(take(net.connect(), epoch=5)) is None


def test_a_stolen_reader_within_a_transaction(net: Network) -> None:
    declare(net)
    client = net.connect()
    client.sender("s").send(*numbered(2))
    before = take(client, epoch=5, credit=0)
    controller = Controller(client)
    transaction = controller.declare()
    acquire(before, transaction, 10)
    assert len(before.deliveries) == 2
    after = take(net.connect(), epoch=6)
    assert condition(before) == STOLEN
    controller.discharge(transaction, fail=True)
    assert after.bodies() == numbered(2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (EPOCH, -1),
        (EPOCH, True),
        (EPOCH, "5"),
        (EPOCH, ULong(2**63)),
        (EPOCH, Timestamp(5)),
        (GROUP, ""),
        (GROUP, "x" * 257),
        (GROUP, UInt(1)),
    ],
)
def test_invalid_properties(net: Network, name: str, value: object) -> None:
    declare(net)
    reader = read(net.connect(), "s::0", properties={name: value})
    assert condition(reader) == "amqp:invalid-field"


def test_other_nodes_ignore_the_properties(net: Network) -> None:
    net.declare("q")
    reader = net.connect().receiver("q", properties={EPOCH: 5, GROUP: "g"})
    assert not reader.detached
    assert not {EPOCH, GROUP} & set(granted(reader))


# -- consumer groups ------------------------------------------------------------------------------


def test_only_the_groups_that_the_stream_has(net: Network) -> None:
    stream = declare(net, consumer_groups=("a", "b"))
    assert condition(take(net.connect(), group="a")) is None
    assert condition(take(net.connect(), group="c")) == "amqp:not-found"
    # The group without a name is always there.
    assert condition(take(net.connect())) is None
    stream.change_policy(StreamPolicy())
    assert condition(take(net.connect(), group="c")) is None


def test_a_limit_of_readers(net: Network) -> None:
    stream = declare(net, partitions=2, readers_per_group=2)
    client = net.connect()
    first, _ = take(client, "s", group="a"), take(client, "s::0", group="a")
    refused = take(net.connect(), "s::0", group="a")
    assert condition(refused) == "amqp:resource-limit-exceeded"
    assert refused.error is not None and refused.error.info == {"partition": 0, "readers": 2}
    assert condition(take(net.connect(), "s", group="a")) == "amqp:resource-limit-exceeded"
    assert condition(take(net.connect(), "s::1", group="a")) is None
    assert condition(take(net.connect(), "s::0", group="b")) is None
    # A reader that ends makes room, one with an epoch makes it itself.
    first.link.close()
    net.run()
    assert condition(take(client, "s::0", group="a")) is None
    assert condition(take(client, "s::0", 0, "a")) is None
    stream.change_policy(StreamPolicy(partitions=2, readers_per_group=1))
    assert condition(take(client, "s::1", group="a")) == "amqp:resource-limit-exceeded"


def test_management_shows_groups_and_settings(net: Network) -> None:
    if ADDRESS not in net.space.nodes:
        install(net.space, net.broker)
    asker = Asker(net)
    settings = {"partitions": 2, "consumer-groups": ["a", "b", "a"], "readers-per-group": 5}
    made = asker.ask("CREATE", "stream", "s", settings)
    assert made.status == 201
    client = net.connect()
    readers = [take(client, "s", group="a"), take(client, "s::1", group="a")]
    take(client, "s::0", 7)
    shown = asker.ask("READ", "stream", "s").map()
    assert (shown["consumer-groups"], shown["readers-per-group"]) == (["a", "b"], 5)
    assert shown["groups"] == [
        {"name": "a", "links": 2, "readers": [1, 2], "epochs": [None, None]},
        {"name": "", "links": 1, "readers": [1, 0], "epochs": [7, None]},
    ]
    for reader in readers:
        reader.link.close()
    net.run()
    answer = asker.ask("UPDATE", "stream", "s", {"consumer-groups": ["c"]})
    assert answer.status == 200
    shown = asker.ask("READ", "stream", "s").map()
    assert (shown["consumer-groups"], shown["readers-per-group"]) == (["c"], 5)
    assert [group["name"] for group in shown["groups"]] == [""]  # type: ignore[attr-defined]
    for invalid in ("a", [""], [1], ["x" * 257]):
        answer = asker.ask("UPDATE", "stream", "s", {"consumer-groups": invalid})
        assert answer.status == 400


def test_the_settings_outlive_the_broker() -> None:
    net = Network(store=ManualStore())
    policy = StreamPolicy(consumer_groups=("a", "b"), readers_per_group=1)
    net.space.create("s", policy)
    net.run()
    net.finish()
    take(net.connect(), epoch=9, group="a")
    net.restart()
    assert getattr(net.space.nodes["s"], "policy", None) == policy
    # Epochs do not: no reader is left.
    assert condition(take(net.connect(), epoch=1, group="a")) is None
    assert condition(take(net.connect(), group="c")) == "amqp:not-found"
    assert offsets(take(net.connect(), group="b")) == []
