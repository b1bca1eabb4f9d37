"""Options: parsed once, and wrong ones named with what is allowed."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from pyspark_ferrymq import AmqpOptionError
from pyspark_ferrymq.offsets import Offset, PartitionOffset
from pyspark_ferrymq.options import SourceOptions
from pyspark_ferrymq.options.names import CONNECTION, SINK, SOURCE, check_names
from pyspark_ferrymq.options.start_and_end import AtCheckpoint, AtEnd, AtOffsets, AtTime

URL = "amqp://localhost"
CHECKPOINT = '{"v":1,"streams":{"orders":{"id":"x","p":{"0":3}}}}'


def parse(**options: str) -> SourceOptions:
    """With a URL and a stream, unless they are given; two underscores are a dot."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    named.setdefault("url", URL)
    if not {"subscribe", "subscribePattern", "assign"} & named.keys():
        named["subscribe"] = "orders"
    return SourceOptions.parse(named)


def test_the_defaults_are_those_of_the_kafka_connector() -> None:
    options = parse()
    assert options.fail_on_data_loss
    assert (options.num_retries, options.retry_interval) == (3, 10)
    assert options.max_trigger_delay == 15 * 60_000
    assert options.for_streaming() == AtEnd("latest")
    assert options.for_batch() == (AtEnd("earliest"), AtEnd("latest"))


def test_names_come_in_any_case() -> None:
    options = SourceOptions.parse(
        {"URL": URL, "subscribe": "a, b ,a", "maxoffsetspertrigger": "7", "INCLUDERAW": "True"}
    )
    assert options.selection.names == ("a", "b")
    assert options.max_offsets_per_trigger == 7
    assert options.include_raw


def test_an_unknown_name_comes_with_a_suggestion() -> None:
    with pytest.raises(AmqpOptionError, match="'maxOfsetsPerTrigger'; did you mean 'maxOffsets"):
        parse(maxOfsetsPerTrigger="1")
    with pytest.raises(AmqpOptionError, match="no paths"):
        parse(path="orders")
    said = r"'pushdown' was removed.*'endingOffsets'.*'selector'"
    with pytest.raises(AmqpOptionError, match=said):
        parse(pushDown="true")
    # Spark's own go through.
    parse(checkpointLocation="x", queryName="q")


@pytest.mark.parametrize("name", [*CONNECTION, *SOURCE, *SINK])
def test_every_name_is_known_in_any_case(name: str) -> None:
    check_names([name, name.lower(), name.upper()])
    with pytest.raises(AmqpOptionError, match=f"did you mean '{name}'"):
        check_names([f"{name}q"])


def test_every_option_is_on_the_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline" / "options.md"
    text = page.read_text("utf-8")
    assert [name for name in (*CONNECTION, *SOURCE) if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": ""}, "option 'url': it is empty"),
        ({"url": "http://localhost"}, "option 'url': a URL starts with amqp://.*not http:"),
        ({"subscribe": " , "}, "'subscribe'.*names of streams"),
        ({"subscribe": "orders::1"}, "partitions are chosen by assign"),
        ({"subscribePattern": "("}, "'subscribePattern'.*regular expression"),
        ({"assign": "x"}, "'assign'.*not JSON"),
        ({"assign": "{}"}, "'assign'.*lists of partitions"),
        ({"assign": '{"a":[true]}'}, "'assign'.*lists of partitions"),
        ({"assign": '{"a":[-1]}'}, "'assign'.*lists of partitions"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "'subscribe' and 'assign' exclude"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger': '0'.*1 or more"),
        ({"maxOffsetsPerTrigger": "many"}, "'many' is not allowed"),
        (
            {"maxOffsetsPerTrigger": "1", "maxBytesPerTrigger": "1"},
            "'maxOffsetsPerTrigger' and 'maxBytesPerTrigger' exclude each other",
        ),
        ({"maxBytesPerTrigger": "1x"}, "'1x'.*64k"),
        ({"maxTriggerDelay": "5m"}, "needs the option 'minOffsetsPerTrigger'"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1y"}, "such as 30s"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "5 is more than the 4"),
        ({"failOnDataLoss": "maybe"}, "'maybe' is not allowed; it has to be one of true, false"),
        ({"startingOffsets": "newest"}, "earliest, latest, or JSON"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "'startingOffsets'.*JSON such as"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-1 for the latest"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "-1 for the latest"),
        ({"startingOffsets": '{"a":{"0":1,"00":2}}'}, "'startingOffsets'.*'00'"),
        (
            {"startingOffsets": '{"a":{"0":9223372036854775808}}'},
            "an offset, or -2 for the earliest",
        ),
        ({"maxBytesPerTrigger": "9" * 5000}, "a number of bytes"),
        ({"connectTimeoutMs": "9" * 5000}, "a number of milliseconds"),
        ({"maxOffsetsPerTrigger": "9" * 5000}, "a number, 1 or more"),
        ({"startingOffsets": '{"v":3,"streams":{}}'}, "version 3"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "exclude each other"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "needs the option 'startingTimestamp'"),
        ({"endingOffsets": "earliest"}, "'endingOffsets'.*latest, or JSON"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "a::0 has -2"),
        ({"maxRecordsPerBatch": "70000"}, "from 1 to 65536"),
        ({"maxBytesPerBatch": "17m"}, "from 1 to 16777216"),
        ({"service": "kafka"}, "one of ferrymq, eventhubs"),
        ({"queueMode": "take"}, "one of browse"),
        ({"queueMode": "browse", "selector": "n = 1"}, "'selector'.*'queueSelector'"),
        ({"selector": "n = 1" + " OR n = 1" * 1000}, "'selector'.*8192 are allowed"),
        ({"hold": "x" * 257}, "257 characters"),
        ({"address": "there"}, "'address' is only for writing"),
        ({"password": "geheim"}, "'password' needs the option 'username'"),
        ({"username": "u", "password": "geheim", "passwordEnv": "X"}, "exclude each other"),
        ({"url": "amqp://u:geheim@h", "username": "u"}, "already names a user"),
        ({"url": "amqp://u:geheim@h", "passwordFile": "f"}, "already names a user"),
        ({"url": "amqp://a,amqp://u:geheim@b", "username": "u"}, "already names a user"),
        ({"url": "amqp://a,b"}, "'url'.*comma"),
        ({"url": "amqps://a,amqp://b"}, "either all URLs use TLS"),
        (
            {"url": "amqp://u:geheim@a,amqp://v:geheim@b", "sasl.mechanism": "PLAIN"},
            "all URLs need the same user",
        ),
        ({"sasl.mechanism": "PLAIN", "username": "u"}, "PLAIN needs a secret"),
        ({"sasl.mechanism": "KERBEROS"}, "one of auto, SCRAM-SHA-512"),
        ({"tls.ca": "ca.pem"}, "'tls.ca' is for TLS"),
        ({"url": "amqps://h", "tls.key": "key.pem"}, "'tls.key' needs the option 'tls.cert'"),
        ({"url": "amqps://h", "tls.verify": "false", "tls.ca": "x"}, "has no effect"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], says: str) -> None:
    with pytest.raises(AmqpOptionError, match=says) as caught:
        parse(**options)
    assert "geheim" not in str(caught.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(AmqpOptionError, match="'url' is missing"):
        SourceOptions.parse({"subscribe": "a"})
    with pytest.raises(AmqpOptionError, match="'subscribe', 'subscribePattern', 'assign'"):
        SourceOptions.parse({"url": URL})


def test_secrets_show_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (
        parse(url="amqp://user:geheim@localhost"),
        parse(username="user", password="geheim"),
    ):
        assert "geheim" not in repr(options) and "geheim" not in str(options.connection)
        # Executors have all of it.
        assert pickle.loads(pickle.dumps(options)) == options


def test_a_secret_is_read_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    settings = parse(username="user", passwordFile=str(path)).connection
    with pytest.raises(AmqpOptionError, match=r"'passwordFile'.*on every executor"):
        settings.secret()
    path.write_text("geheim\n")
    assert settings.secret() == "geheim"
    settings = parse(username="user", passwordEnv="FERRYMQ_TEST_SECRET").connection
    with pytest.raises(AmqpOptionError, match=r"executorEnv\.FERRYMQ_TEST_SECRET"):
        settings.secret()
    monkeypatch.setenv("FERRYMQ_TEST_SECRET", "geheim")
    assert settings.secret() == "geheim"


def test_bounds() -> None:
    assert parse(startingOffsets="EARLIEST").starting == AtEnd("earliest")
    assert parse(startingOffsets='{"orders":{"0":23,"1":-1}}').starting == AtOffsets(
        "startingOffsets", {"orders": {0: 23, 1: -1}}
    )
    assert parse(startingOffsets=CHECKPOINT).starting == AtCheckpoint(
        "startingOffsets", Offset({"orders": PartitionOffset("x", {0: 3})})
    )
    assert parse(startingTimestamp="7").starting == AtTime(7, "error")
    assert parse(
        startingTimestamp="7", startingOffsetsByTimestampStrategy="LATEST"
    ).starting == AtTime(7, "latest")
    assert parse(endingTimestamp="9").ending == AtTime(9, "latest")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffsets": "latest"}, "as this is a batch"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "a::0 has -1"),
        ({"maxOffsetsPerTrigger": "1"}, "'maxOffsetsPerTrigger' is for readStream"),
        ({"hold": "x"}, "'hold' is for readStream"),
    ],
)
def test_what_a_batch_has_not(options: dict[str, str], says: str) -> None:
    parsed = parse(**options)
    parsed.for_streaming()
    with pytest.raises(AmqpOptionError, match=says):
        parsed.for_batch()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "availableNow"),
        ({"queueMode": "browse"}, "'queueMode'"),
    ],
)
def test_what_a_query_has_not(options: dict[str, str], says: str) -> None:
    parsed = parse(**options)
    parsed.for_batch()
    with pytest.raises(AmqpOptionError, match=says):
        parsed.for_streaming()


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "first"},
        {"startingOffsets": "latest"},
        {"startingOffsets": "{]"},
        {"startingOffsets": '{"a":[0]}'},
        {"startingOffsets": '{"a":{"00":1}}'},
        {"endingOffsets": "last"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": "{]"},
        {"endingOffsets": '{"a":[0]}'},
    ],
)
def test_offsets_that_an_error_suggests_are_allowed(given: dict[str, str]) -> None:
    with pytest.raises(AmqpOptionError) as caught:
        parse(**given).for_batch()
    (option,) = given
    suggested = re.search(r"(?:such as|example is) (\{.*\}\})", str(caught.value))
    assert suggested is not None, str(caught.value)
    parse(**{option: suggested[1]}).for_batch()


@pytest.mark.parametrize(
    ("option", "wrong", "number"),
    [("startingOffsets", "-3", "-2"), ("endingOffsets", "-3", "-1")],
)
def test_places_that_an_error_suggests_are_allowed(option: str, wrong: str, number: str) -> None:
    with pytest.raises(AmqpOptionError, match=f"{number} for the") as caught:
        parse(**{option: f'{{"a":{{"0":{wrong}}}}}'}).for_batch()
    # What is named without a condition is allowed.
    assert set(re.findall(r"or (-\d) for", str(caught.value))) == {number}
    parse(**{option: f'{{"a":{{"0":{number}}}}}'}).for_batch()


def test_sizes_and_times_have_units() -> None:
    options = parse(maxBytesPerTrigger="10m", minOffsetsPerTrigger="5", maxTriggerDelay="2 min")
    assert options.max_bytes_per_trigger == 10 * 1024 * 1024
    assert options.max_trigger_delay == 120_000
    assert parse(maxBytesPerBatch="64KiB").max_bytes_per_batch == 65_536


def test_a_selection() -> None:
    some = parse(assign='{"b":[1,0,1],"a":[2]}').selection
    assert some.names == ("a", "b")
    assert some.reads("b", 1) and not some.reads("a", 0)
    pattern = parse(subscribePattern="or.*s").selection
    assert pattern.matches("orders") and not pattern.matches("orders2")
